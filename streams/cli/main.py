"""The entry point: the commands, and what every command does about errors and interrupts."""

import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Final

import click

from schemas.errors import SettingsInvalid, WorkerError
from streams.cli import migrate, schemas, topics, verbs, worker
from streams.cli.exits import MEANING, Exit, exit_of
from streams.cli.output import print_problem

_EXIT_CODES: Final = "\b\nExit codes:\n" + "\n".join(f"  {int(code):>3}  {MEANING[code]}" for code in Exit)


@click.group(epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="workflow-runs")
def cli() -> None:
    """Run typed workflows durably, from Kafka through Postgres and back to Kafka.

    Settings come from WORKFLOW_RUNS_* in the environment, or from the YAML file that WORKFLOW_RUNS_FILE names.
    `workflow-runs settings` lists them.
    """


for command in (*verbs.COMMANDS, worker.worker, worker.settings, migrate.migrate, topics.topics, schemas.schemas):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code; an error of ours is one line on standard error, never a traceback."""
    for entry in entry_points(group="workflow_runs.commands"):
        try:
            cli.add_command(entry.load(), entry.name)
        except ModuleNotFoundError:
            continue  # the extra that brings this command's parts is not installed
    try:
        code = cli.main(args=arguments, prog_name="workflow-runs", standalone_mode=False)
    except click.exceptions.Abort:
        code = Exit.INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = Exit.USAGE
    except SettingsInvalid as error:
        for sentence in error.problems:
            print_problem(sentence)
        code = Exit.USAGE
    except WorkerError as error:
        print_problem(str(error))
        code = exit_of(error)
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        code = Exit.DONE
    sys.exit(int(code or 0))
