"""Options and fixtures of every test."""

import signal

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


def pytest_configure() -> None:
    """Let processes of tests be interrupted, also where a shell that runs the tests in its background forbids it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
