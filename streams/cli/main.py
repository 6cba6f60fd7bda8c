"""The entry point: the commands, and what every command does about errors and interrupts."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

import click

from schemas.errors import SettingsInvalid, WorkerError
from streams.cli.exits import MEANING, Exit, exit_of
from streams.cli.output import print_problem

# Command to the module that has it. Imported when it is called: half of the time of a quick command would go into
# importing what only a worker needs.
_COMMANDS: Final[Mapping[str, str]] = {
    "submit-workflow": "verbs",
    "get-job": "verbs",
    "list-jobs": "verbs",
    "complete-step": "verbs",
    "cancel-job": "verbs",
    "put-workflow": "workflows",
    "list-workflows": "workflows",
    "check-workflow": "workflows",
    "run-workflow": "workflows",
    "describe-workflow": "workflows",
    "worker": "worker",
    "settings": "settings",
    "migrate": "migrate",
    "topics": "topics",
    "dead-letters": "dead_letters",
    "intake": "intake",
    "schemas": "schemas",
    "relay": "relay",
}
_EXIT_CODES: Final = "\b\nExit codes:\n" + "\n".join(f"  {int(code):>3}  {MEANING[code]}" for code in Exit)


class _Commands(click.Group):
    """The commands of this package, and those that installed extras bring by an entry point."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *(entry.name for entry in entry_points(group="workflow_runs.commands"))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (module := _COMMANDS.get(cmd_name)) is not None:
            command: click.Command = getattr(import_module(f"streams.cli.{module}"), cmd_name.replace("-", "_"))
            return command
        for entry in entry_points(group="workflow_runs.commands", name=cmd_name):
            try:
                extra: click.Command = entry.load()
            except ModuleNotFoundError as error:
                return _missing(cmd_name, error)
            return extra
        return None


@click.command(
    cls=_Commands,
    epilog=_EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="workflow-runs")
def cli() -> None:
    """Run typed workflows durably, from Kafka through Postgres and back to Kafka.

    Settings come from WORKFLOW_RUNS_* in the environment, or from the YAML file that WORKFLOW_RUNS_FILE names.
    `workflow-runs settings` lists them.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code; an error of ours is one line on standard error, never a traceback."""
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


def _missing(name: str, error: ModuleNotFoundError) -> click.Command:
    text = f"needs the extra [dev] of workflow-runs, which is not installed ({error.name} is missing)"

    @click.command(name, short_help=text)
    def missing() -> None:
        raise click.UsageError(f"{name} {text}")

    return missing
