"""The verbs about runs as commands."""

from pathlib import Path
from typing import Any

import click

from streams.cli.calling import Answer, definition_file, json_argument, print_more, run_verb, verb_options
from streams.cli.output import print_fields, print_table
from streams.cli.workflows import FILES_HELP


@click.command("submit-workflow", epilog=FILES_HELP)
@click.option("--name", help="A stored workflow.")
@click.option("--file", "file", type=definition_file, help="A definition, YAML or JSON.")
@click.option("--input", "input_", required=True, metavar="JSON|@FILE", help="The input, a JSON object.")
@click.option("--job-id", help="The run's id, a UUID: submitting it again changes nothing. Made up when left out.")
@click.option("--business-key", help="An id of your own to find the run by.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label; may be given more than once.")
@verb_options
def submit_workflow(
    name: str | None,
    file: Path | None,
    input_: str,
    job_id: str | None,
    business_key: str | None,
    labels: tuple[str, ...],
    **options: Any,
) -> None:
    """Submit one run of a stored workflow (--name) or of a definition in a file (--file)."""
    if (name is None) == (file is None):
        raise click.UsageError("give either --name or --file")
    call: Answer = {"workflowName": name, "input": json_argument(input_), "jobId": job_id, "businessKey": business_key}
    if labels:
        call["labels"] = dict(_label(label) for label in labels)
    run_verb("submit-workflow", call, print_fields, file=file, **options)


@click.command("get-job")
@click.argument("job_id", metavar="ID")
@verb_options
def get_job(job_id: str, **options: Any) -> None:
    """Show everything about one run; the schemas of its definition with --json alone."""
    run_verb("get-job", {"jobId": job_id}, _print_job, **options)


@click.command("list-jobs")
@click.option("--status", help="Only runs in this status.")
@click.option("--workflow", help="Only runs of this workflow.")
@click.option("--business-key", help="Only runs with this business key.")
@click.option("--limit", type=int, default=50, show_default=True, help="Most runs to list; 500 at most.")
@click.option("--cursor", help="Go on where an earlier list ended.")
@verb_options
def list_jobs(
    status: str | None, workflow: str | None, business_key: str | None, limit: int, cursor: str | None, **options: Any
) -> None:
    """List runs, newest first."""
    call = {"status": status, "workflowName": workflow, "businessKey": business_key, "limit": limit, "cursor": cursor}
    run_verb("list-jobs", call, _print_jobs, **options)


@click.command("complete-step")
@click.argument("job_id", metavar="ID")
@click.argument("step", metavar="STEP")
@click.option("--response", required=True, metavar="JSON|@FILE", help="The answer, as the step's response type has it.")
@verb_options
def complete_step(job_id: str, step: str, response: str, **options: Any) -> None:
    """Answer the step that a run waits for."""
    call = {"jobId": job_id, "stepName": step, "response": json_argument(response)}
    run_verb("complete-step", call, print_fields, **options)


@click.command("cancel-job")
@click.argument("job_id", metavar="ID")
@click.option("--reason", required=True, help="Why; the row and the event carry it.")
@verb_options
def cancel_job(job_id: str, reason: str, **options: Any) -> None:
    """Cancel a run that is not settled yet."""
    run_verb("cancel-job", {"jobId": job_id, "reason": reason}, print_fields, **options)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--label {text!r} is not KEY=VALUE")
    return key, value


def _print_job(answer: Answer) -> None:
    job = answer["job"]
    if isinstance(definition := job.get("workflowDefinition"), dict) and "schema" in definition:
        job = {**job, "workflowDefinition": {**definition, "schema": "(--json prints it)"}}
    print_fields(job)


def _print_jobs(answer: Answer) -> None:
    columns = ("jobId", "workflowName", "status", "attempt", "outstandingStep", "businessKey", "createdAt", "error")
    print_table(answer["jobs"], columns)
    print_more(answer)
