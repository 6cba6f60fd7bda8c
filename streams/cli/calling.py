"""Calling a verb from a command: on the store of the settings, or with --url on a worker's web server."""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import click

from schemas import strict_json
from schemas.errors import ContractError, InputInvalid, StoreUnavailable
from streams.cli.definitions import Definition, load_definition
from streams.cli.exits import Exit, exit_of_answer
from streams.cli.output import print_json, print_problem
from streams.parts.store import open_verbs
from streams.settings import load_settings

Answer = dict[str, Any]

URL_SECONDS: Final = 60.0
"""Longest wait for a worker's answer, where a command does not say otherwise."""

# What a refused call of a worker's web server means here.
_STATUS_EXITS: Final = {404: Exit.UNKNOWN_ID, 409: Exit.CONFLICT, 503: Exit.UNAVAILABLE}

definition_file = click.Path(exists=True, dir_okay=False, path_type=Path)


def verb_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that every verb takes."""
    command = click.option("--json", "as_json", is_flag=True, help="Print the verb's JSON as it is.")(command)
    command = click.option("--tenant", default="default", show_default=True, help="Whose runs.")(command)
    return click.option("--url", help="Address of a worker's web server, instead of the store of the settings.")(
        command
    )


def run_verb(
    name: str,
    call: Answer,
    show: Callable[[Answer], None],
    *,
    url: str | None,
    tenant: str,
    as_json: bool,
    file: Path | None = None,
    url_seconds: float = URL_SECONDS,
) -> None:
    """Call the verb, print what it answers, and exit with the code that says how it went.

    *file* holds a definition: it goes along as `workflow`, and findings are told with the line they are in.
    """
    call = {field: value for field, value in call.items() if value is not None}
    answer, code = asyncio.run(_called(name, call, file, url, tenant, url_seconds))
    if as_json:
        print_json(answer)
    elif code is Exit.DONE:
        show(answer)
    else:
        _print_refusal(answer)
    if code is not Exit.DONE:
        sys.exit(int(code))


async def _called(
    name: str, call: Answer, file: Path | None, url: str | None, tenant: str, url_seconds: float
) -> tuple[Answer, Exit]:
    definition = await load_definition(file, load_settings()) if file is not None else None
    if definition is not None:
        call["workflow"] = definition.document
    answer, code = await _remote(url, name, call, url_seconds) if url else await _local(name, call, tenant)
    return (_with_lines(answer, definition) if definition is not None else answer), code


async def _local(name: str, call: Answer, tenant: str) -> tuple[Answer, Exit]:
    async with open_verbs(load_settings(), calls=name == "run-workflow") as verbs:
        answer = await verbs.call(name, call, tenant_id=tenant)
        return answer, exit_of_answer(answer)


async def _remote(url: str, name: str, call: Answer, seconds: float) -> tuple[Answer, Exit]:
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds)) as session,
            session.post(f"{url.rstrip('/')}/verbs/{name}", json=call) as response,
        ):
            answer = json.loads(await response.read())
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise StoreUnavailable(f"{url} does not answer as a worker does: {error or type(error).__name__}") from error
    if response.status == 200:
        return answer, exit_of_answer(answer)
    return answer, _STATUS_EXITS.get(response.status, Exit.USAGE if response.status == 400 else Exit.REFUSED)


def json_argument(text: str) -> object:
    """Read the JSON of an argument: the text itself, or what is in the file behind `@`. Raises InputInvalid."""
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


def print_more(answer: Answer) -> None:
    """Say how a list that goes on is continued."""
    if cursor := answer.get("nextCursor"):
        click.echo(f"more: --cursor {cursor}")


def _with_lines(answer: Answer, definition: Definition) -> Answer:
    findings = answer.get("findings")
    if not findings:
        return answer
    placed = [
        {**finding, "line": line} if (line := definition.line_of(finding.get("pointer", ""))) is not None else finding
        for finding in findings
    ]
    return {**answer, "file": str(definition.path), "findings": placed}


def _print_refusal(answer: Answer) -> None:
    findings = answer.get("findings", ())
    for finding in findings:
        print_problem(_sentence(finding, answer.get("file")))
    if not findings:
        print_problem(str(answer.get("message") or answer.get("error")))
    if step := answer.get("outstandingStep"):
        click.echo(f"the run waits for {step!r}", err=True)


def _sentence(finding: Mapping[str, Any], file: str | None) -> str:
    line = finding.get("line")
    place = f"{file}:{line}: " if file is not None and line is not None else ""
    step = f"step {finding['step']}: " if finding["step"] else ""
    pointer = f" ({finding['pointer']})" if finding.get("pointer") else ""
    return f"{place}{step}{finding['error']}{pointer}"
