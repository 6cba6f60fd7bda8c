"""The verbs as commands: on the store of the settings, or with --url on a worker's web server."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import click

from schemas import strict_json
from schemas.errors import ContractError, InputInvalid, StoreUnavailable
from streams.cli.exits import Exit, exit_of_answer
from streams.cli.output import print_fields, print_json, print_problem, print_table
from streams.parts.store import open_verbs
from streams.settings import load_settings

Answer = dict[str, Any]
URL_TIMEOUT: Final = aiohttp.ClientTimeout(total=60)

# What a refused call of a worker's web server means here.
_STATUS_EXITS: Final = {404: Exit.UNKNOWN_ID, 409: Exit.CONFLICT, 503: Exit.UNAVAILABLE}


def verb_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that every verb takes."""
    command = click.option("--json", "as_json", is_flag=True, help="Print the verb's JSON as it is.")(command)
    command = click.option("--tenant", default="default", show_default=True, help="Whose runs.")(command)
    return click.option("--url", help="Address of a worker's web server, instead of the store of the settings.")(
        command
    )


@click.command("submit-workflow")
@click.option("--name", help="A stored workflow.")
@click.option(
    "--file", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A definition, JSON."
)
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
    call: Answer = {"workflowName": name, "input": _json_argument(input_), "jobId": job_id, "businessKey": business_key}
    if file is not None:
        call["workflow"] = _json_file(file)
    if labels:
        call["labels"] = dict(_label(label) for label in labels)
    run_verb("submit-workflow", call, print_fields, **options)


@click.command("get-job")
@click.argument("job_id", metavar="ID")
@verb_options
def get_job(job_id: str, **options: Any) -> None:
    """Show everything about one run."""
    run_verb("get-job", {"jobId": job_id}, lambda answer: print_fields(answer["job"]), **options)


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
    call = {"jobId": job_id, "stepName": step, "response": _json_argument(response)}
    run_verb("complete-step", call, print_fields, **options)


@click.command("cancel-job")
@click.argument("job_id", metavar="ID")
@click.option("--reason", required=True, help="Why; the row and the event carry it.")
@verb_options
def cancel_job(job_id: str, reason: str, **options: Any) -> None:
    """Cancel a run that is not settled yet."""
    run_verb("cancel-job", {"jobId": job_id, "reason": reason}, print_fields, **options)


@click.command("put-workflow")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", help="Store it under this name instead of its own.")
@verb_options
def put_workflow(file: Path, name: str | None, **options: Any) -> None:
    """Store a definition (JSON) as the newest version of its name, if it verifies."""
    run_verb("put-workflow", {"workflow": _json_file(file), "name": name}, print_fields, **options)


@click.command("list-workflows")
@click.option("--limit", type=int, default=50, show_default=True, help="Most workflows to list; 500 at most.")
@click.option("--cursor", help="Go on where an earlier list ended.")
@verb_options
def list_workflows(limit: int, cursor: str | None, **options: Any) -> None:
    """List the stored workflows, the newest version of each."""
    run_verb("list-workflows", {"limit": limit, "cursor": cursor}, _print_workflows, **options)


def run_verb(
    name: str, call: Answer, show: Callable[[Answer], None], *, url: str | None, tenant: str, as_json: bool
) -> None:
    """Call the verb, print what it answers, and exit with the code that says how it went."""
    call = {field: value for field, value in call.items() if value is not None}
    answer, code = asyncio.run(_remote(url, name, call) if url else _local(name, call, tenant))
    if as_json:
        print_json(answer)
    elif code is Exit.DONE:
        show(answer)
    else:
        _print_refusal(answer)
    if code is not Exit.DONE:
        sys.exit(int(code))


async def _local(name: str, call: Answer, tenant: str) -> tuple[Answer, Exit]:
    async with open_verbs(load_settings()) as verbs:
        answer = await verbs.call(name, call, tenant_id=tenant)
        return answer, exit_of_answer(answer)


async def _remote(url: str, name: str, call: Answer) -> tuple[Answer, Exit]:
    try:
        async with (
            aiohttp.ClientSession(timeout=URL_TIMEOUT) as session,
            session.post(f"{url.rstrip('/')}/verbs/{name}", json=call) as response,
        ):
            answer = json.loads(await response.read())
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise StoreUnavailable(f"{url} does not answer as a worker does: {error or type(error).__name__}") from error
    if response.status == 200:
        return answer, exit_of_answer(answer)
    return answer, _STATUS_EXITS.get(response.status, Exit.USAGE if response.status == 400 else Exit.REFUSED)


def _json_argument(text: str) -> object:
    if text.startswith("@"):
        return _json_file(Path(text[1:]))
    return _parsed(text, "the JSON argument")


def _json_file(path: Path) -> object:
    try:
        return _parsed(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputInvalid(f"cannot read {path}: {error}") from error


def _parsed(text: str, what: str) -> object:
    try:
        return strict_json.parse(text)
    except ContractError as error:
        raise InputInvalid(f"{what} {error}") from error


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--label {text!r} is not KEY=VALUE")
    return key, value


def _print_jobs(answer: Answer) -> None:
    columns = ("jobId", "workflowName", "status", "attempt", "outstandingStep", "businessKey", "createdAt", "error")
    print_table(answer["jobs"], columns)
    _print_more(answer)


def _print_workflows(answer: Answer) -> None:
    print_table(answer["workflows"], ("name", "version", "createdAt", "createdBy", "definitionHash"))
    _print_more(answer)


def _print_more(answer: Answer) -> None:
    if cursor := answer.get("nextCursor"):
        click.echo(f"more: --cursor {cursor}")


def _print_refusal(answer: Answer) -> None:
    print_problem(str(answer.get("message") or answer.get("error")))
    for finding in answer.get("findings", ())[1:]:
        where = f"step {finding['step']}: " if finding["step"] else ""
        print_problem(f"{where}{finding['error']}")
    if step := answer.get("outstandingStep"):
        click.echo(f"the run waits for {step!r}", err=True)
