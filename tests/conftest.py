"""Options and fixtures of every test."""

pytest_plugins = ["tests.fixtures.postgres"]
