"""`workflow-runs demo`."""

import sys
import time

import click

from streams.cli.exits import Exit
from streams.cli.output import print_problem
from streams.dev.demo.screen import Screen
from streams.dev.demo.story import Story, StoryFailed
from streams.dev.processes import StartFailed
from streams.dev.stack import QUICK_SETTINGS, KafkaKind, Stack


@click.command()
@click.option("--hold", is_flag=True, help="Leave everything running afterwards, and print what to try.")
@click.option(
    "--kafka",
    type=click.Choice(["embedded", "apache"]),
    default="embedded",
    show_default=True,
    help="Apache Kafka needs Java and Maven.",
)
def demo(hold: bool, kafka: KafkaKind) -> None:
    """Watch durable runs on a real broker, a real Postgres and real services: a retry, a killed worker, an answer.

    Exits 0 only if the ledger at the end is exact: requests, rows, events, calls and committed offsets.
    """
    screen = Screen()
    try:
        screen.chapter("The stack")
        screen.prose("settings changed for the demo: " + ", ".join(f"{k}={v}" for k, v in QUICK_SETTINGS.items()))
        with Stack(kafka=kafka, tell=screen.told) as stack:
            ledger = Story(stack, screen).play()
            if hold:
                _hold(screen, stack)
    except (StoryFailed, StartFailed) as error:
        screen.line("")
        print_problem(str(error))
        sys.exit(int(Exit.REFUSED))
    if ledger.problems:
        print_problem("the ledger is not exact")
        sys.exit(int(Exit.REFUSED))
    screen.line("")
    screen.line("The ledger is exact.")


def _hold(screen: Screen, stack: Stack) -> None:
    worker = next(worker for worker in stack.workers if worker.process.running)
    screen.chapter("Everything is left running; Ctrl-C ends it")
    screen.line(f"  verbs     {worker.url}")
    screen.line(f"  health    {worker.health_url}/readyz and {worker.health_url}/metrics")
    screen.line(f"  Postgres  {stack.settings['DATABASE_URL']}")
    screen.line(f"  Kafka     {stack.bootstrap}")
    screen.line(f"  registry  {stack.registry_url}")
    screen.line("  try")
    program = f"{sys.prefix}/bin/workflow-runs"
    for example in (
        f"list-jobs --url {worker.url}",
        f"""submit-workflow --url {worker.url} --name embed-text --input '{{"text": "hello"}}'""",
        f"list-jobs --url {worker.url} --status WAITING",
    ):
        screen.line(f"    {program!r} {example}" if " " in program else f"    {program} {example}")
    while True:
        stack.check()
        time.sleep(1)
