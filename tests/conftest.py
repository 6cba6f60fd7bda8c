"""Options and fixtures of every test."""

# First what the others import: pytest rewrites the assertions of a module only before its first import.
pytest_plugins = [
    "tests.fixtures.eventually",
    "tests.fixtures.not_run_here",
    "tests.fixtures.grpc_server",
    "tests.fixtures.kafka",
    "tests.fixtures.postgres",
    "tests.fixtures.intake",
    "tests.fixtures.registry",
]
