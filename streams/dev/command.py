"""`workflow-runs dev`: the whole stack and workers on this machine, to develop against."""

import shlex
import time
from pathlib import Path
from typing import Final

import click

from streams.dev.stack import KafkaKind, Stack

ENVIRONMENT: Final = Path(".cache/dev/env")


@click.command()
@click.option("--workers", type=click.IntRange(1, 8), default=1, show_default=True, help="Worker processes.")
@click.option(
    "--kafka",
    type=click.Choice(["embedded", "apache"]),
    default="embedded",
    show_default=True,
    help="Apache Kafka needs Java and Maven.",
)
def dev(workers: int, kafka: KafkaKind) -> None:
    """Run Postgres, a broker, a registry, two example services and workers until Ctrl-C.

    .cache/dev/env then holds the settings of that stack: `source` it, and every other command works on it.
    """
    with Stack(kafka=kafka, workers=workers, tell=click.echo) as stack:
        ENVIRONMENT.parent.mkdir(parents=True, exist_ok=True)
        ENVIRONMENT.write_text(environment_file(stack))
        try:
            click.echo(f"\nEverything runs; Ctrl-C ends it. In another terminal:\n  source {ENVIRONMENT}")
            while True:
                stack.check()
                time.sleep(1)
        finally:
            ENVIRONMENT.unlink(missing_ok=True)


def environment_file(stack: Stack) -> str:
    """Return shell lines that make this stack the one of the settings, and name the first worker's addresses."""
    settings = {f"WORKFLOW_RUNS_{name}": value for name, value in stack.settings.items()}
    addresses = {"WORKER_URL": stack.workers[0].url, "HEALTH_URL": stack.workers[0].health_url}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in {**settings, **addresses}.items())
