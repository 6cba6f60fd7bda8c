"""Where definitions and schemas come from: files in YAML or JSON, .proto files, registered types, running services."""
