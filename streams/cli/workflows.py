"""The verbs about definitions as commands."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from streams.cli.calling import Answer, definition_file, json_argument, print_more, run_verb, verb_options
from streams.cli.output import print_fields, print_json, print_table
from streams.sources.definition_files import SUFFIXES

RUN_SECONDS: Final = 1_000.0
"""Longest wait for a synchronous run at a worker, which bounds it by its own CALL_CAP_SECONDS."""

FILES_HELP: Final = """\b
FILE is YAML or JSON. Its schema may name files in the same folder, a running
service or a subject of the registry; what they hold now goes along:
  schema: {protoFiles: [shop.proto]}
  schema: {descriptorSetFile: shop.binpb}
  schema: {reflection: {target: "pricing:9000", services: [shop.v1.Pricing]}}
  schema: {registrySubject: {subject: orders-value, version: 3}}
"""

_STEP_COLUMNS: Final = ("step", "kind", "target", "calls", "when", "takes", "gives", "rules")


@click.command("put-workflow", epilog=FILES_HELP)
@click.argument("file", type=definition_file)
@click.option("--name", help="Store it under this name instead of its own.")
@verb_options
def put_workflow(file: Path, name: str | None, **options: Any) -> None:
    """Store a definition as the newest version of its name, if it verifies.

    What its schema resolves to is pinned with it: later changes of files, services or registries change nothing.
    """
    run_verb("put-workflow", {"name": name}, print_fields, file=file, **options)


@click.command("list-workflows")
@click.option("--limit", type=int, default=50, show_default=True, help="Most workflows to list; 500 at most.")
@click.option("--cursor", help="Go on where an earlier list ended.")
@verb_options
def list_workflows(limit: int, cursor: str | None, **options: Any) -> None:
    """List the stored workflows, the newest version of each."""
    run_verb("list-workflows", {"limit": limit, "cursor": cursor}, _print_workflows, **options)


@click.command("check-workflow", epilog=FILES_HELP)
@click.argument("workflow", metavar="FILE|NAME")
@verb_options
def check_workflow(workflow: str, **options: Any) -> None:
    """Say everything that is wrong with a definition, and where; exits 1 when anything is.

    Nothing is stored and nothing called. A file needs no store.
    """
    call, file = _source(workflow)
    run_verb("check-workflow", call, lambda answer: click.echo(f"{workflow} is sound"), file=file, **options)


@click.command("run-workflow", epilog=FILES_HELP)
@click.argument("workflow", metavar="FILE|NAME")
@click.option("--input", "input_", required=True, metavar="JSON|@FILE", help="The input, a JSON object.")
@verb_options
def run_workflow(workflow: str, input_: str, **options: Any) -> None:
    """Run a workflow once, here and now, with real calls, and print its result.

    The run is not kept: a failed call is not tried again, and steps that are answered from outside, wait or send
    records are refused. submit-workflow makes a run that survives. A file needs no store.
    """
    call, file = _source(workflow)
    call["input"] = json_argument(input_)
    run_verb("run-workflow", call, _print_run, file=file, url_seconds=RUN_SECONDS, **options)


@click.command("describe-workflow", epilog=FILES_HELP)
@click.argument("workflow", metavar="FILE|NAME")
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart instead.")
@verb_options
def describe_workflow(workflow: str, mermaid: bool, **options: Any) -> None:
    """Show what a workflow is made of: its steps in order, whom they call, when, and with which types."""
    call, file = _source(workflow)
    run_verb("describe-workflow", call, _print_mermaid if mermaid else _print_description, file=file, **options)


def _source(workflow: str) -> tuple[Answer, Path | None]:
    """What the argument stands for: a file that is there, else the name of a stored workflow."""
    path = Path(workflow)
    if path.is_file():
        return {}, path
    if path.suffix in SUFFIXES or "/" in workflow:
        raise click.UsageError(f"there is no file {workflow}")
    return {"workflowName": workflow}, None


def _print_workflows(answer: Answer) -> None:
    print_table(answer["workflows"], ("name", "version", "createdAt", "createdBy", "definitionHash"))
    print_more(answer)


def _print_run(answer: Answer) -> None:
    for step in answer["steps"]:
        click.echo(f"{step['name']}: {'skipped' if step['skipped'] else 'done'}", err=True)
    click.echo(f"output: {answer['outputType']}", err=True)
    print_json(answer["output"])


def _print_mermaid(answer: Answer) -> None:
    click.echo(answer["mermaid"], nl=False)


def _print_description(answer: Answer) -> None:
    print_fields({name: value for name, value in answer.items() if name not in ("ok", "steps", "mermaid")})
    click.echo()
    print_table([_row(step) for step in answer["steps"]], _STEP_COLUMNS)


def _row(step: Mapping[str, Any]) -> dict[str, object]:
    wait = f"{step['forMs']} ms" if "forMs" in step else step.get("until")
    return {
        "step": step["name"],
        "kind": step["kind"],
        "target": step.get("target"),
        "calls": step.get("method") or step.get("topic") or wait,
        "when": step.get("when"),
        "takes": step.get("requestType"),
        "gives": step["responseType"],
        "rules": step.get("rules"),
    }
