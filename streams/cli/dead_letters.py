"""`workflow-runs dead-letters`: the records that no run was made of, and the way back to their topic."""

import asyncio
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import click

from schemas.errors import NotFound
from store.dead_letters import DeadLetters, LetterPage, LetterState, LetterSummary, StoredLetter
from streams.cli.exits import Exit
from streams.cli.output import print_fields, print_json, print_problem, print_table
from streams.kafka.producer import EventProducer
from streams.kafka.replay import Replay, ReplayOutcome, ReplayResult
from streams.kafka.security import KafkaSecurity
from streams.parts.store import build_store
from streams.settings import Settings, load_settings

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS: Final = ("letterId", "state", "code", "topic", "partition", "offset", "receivedAt", "replayedAt", "reason")
_REASON_WIDTH: Final = 80
_PAGE: Final = 100

_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_topic_option = click.option("--topic", help="Only letters of this source topic.")
_code_option = click.option("--code", help="Only letters with this code, such as bad-json.")


@click.group("dead-letters")
def dead_letters() -> None:
    """Look at records that no run was made of, and put them back on their topic.

    A letter is HELD while the registry may still learn its schema, READY until the relay has published it to the
    dead-letter topic, then SENT.
    """


@dead_letters.command("list")
@_topic_option
@_code_option
@click.option("--state", type=click.Choice([*LetterState]), help="Only letters in this state.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Most letters to list.")
@click.option("--cursor", help="Go on where an earlier list ended.")
@_json_option
def list_(
    topic: str | None, code: str | None, state: str | None, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List letters, newest first, without their contents."""

    async def work(letters: DeadLetters) -> LetterPage:
        wanted = LetterState(state) if state is not None else None
        return await letters.list(topic=topic, code=code, state=wanted, limit=limit, cursor=cursor)

    page = asyncio.run(_on_store(load_settings(), work))
    lines = [_line(letter) for letter in page.letters]
    if as_json:
        print_json({"letters": lines, "nextCursor": page.next_cursor})
        return
    print_table([{**line, "reason": _shortened(str(line["reason"]))} for line in lines], _COLUMNS)
    if page.next_cursor is not None:
        click.echo(f"more: --cursor {page.next_cursor}")


@dead_letters.command()
@click.argument("letter_id", type=click.IntRange(1))
@_json_option
def show(letter_id: int, as_json: bool) -> None:
    """Show one letter: why it is one, where its record stood, and key, value and headers as they were.

    Bytes are shown as text where they are printable, else as base64.
    """
    stored = asyncio.run(_on_store(load_settings(), lambda letters: letters.get(letter_id)))
    if stored is None:
        raise NotFound(f"there is no dead letter {letter_id}")
    fields = _fields(stored)
    if as_json:
        print_json(fields)
    else:
        print_fields({**fields, "reason": _printable(stored.letter.reason)})


@dead_letters.command()
@click.argument("letter_ids", type=click.IntRange(1), nargs=-1, metavar="[LETTER_ID]...")
@_topic_option
@_code_option
@click.option("--yes", is_flag=True, help="Needed with --topic or --code: put all of them back.")
@click.option("--again", is_flag=True, help="Also letters that were put back before; with ids only.")
@click.option("--reason", help="Why; it is kept in the audit.")
@_json_option
def replay(
    letter_ids: tuple[int, ...],
    topic: str | None,
    code: str | None,
    yes: bool,
    again: bool,
    reason: str | None,
    as_json: bool,
) -> None:
    """Put letters back on their source topic: the ids given, or all of --topic and --code that never were.

    The record is as it was in key, value and headers, and its time is now. Its job id makes sure that it becomes one
    run at most.
    """
    by_filter = topic is not None or code is not None
    if bool(letter_ids) == by_filter:
        raise click.UsageError("give either letter ids or --topic and --code")
    if by_filter and again:
        raise click.UsageError("--again goes with letter ids")
    if by_filter and not yes:
        raise click.UsageError("this may put back many records: look with `list` first, then add --yes")
    settings = load_settings()
    settings.require("database_url", "kafka_bootstrap")
    results = asyncio.run(_replayed(settings, _Wanted(letter_ids, topic, code, again), reason))
    if as_json:
        print_json({"letters": [_result(result) for result in results]})
    else:
        _print_results(results)
    sys.exit(int(_exit_of(results)))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which letters to put back: those with the ids, else those of the filter."""

    letter_ids: Sequence[int]
    topic: str | None
    code: str | None
    again: bool


async def _replayed(settings: Settings, wanted: _Wanted, reason: str | None) -> list[ReplayResult]:
    async with _producer(settings) as producer:

        async def work(letters: DeadLetters) -> list[ReplayResult]:
            replay = Replay(letters, producer, actor=f"cli:{settings.worker_id}", reason=reason)
            if wanted.letter_ids:
                return await replay.put_back(wanted.letter_ids, again=wanted.again)
            return await _replay_all(letters, replay, wanted)

        return await _on_store(settings, work)


async def _replay_all(letters: DeadLetters, replay: Replay, wanted: _Wanted) -> list[ReplayResult]:
    """Put back what the filter finds up to now: a letter that fails again is a new one, and not of this call's."""
    results: list[ReplayResult] = []
    upto_id, after_id = await letters.newest_id(), 0
    while True:
        page = await letters.replayable(
            topic=wanted.topic, code=wanted.code, after_id=after_id, upto_id=upto_id, limit=_PAGE
        )
        results += await replay.put_back(page)
        if len(page) < _PAGE:
            return results
        after_id = page[-1]


@asynccontextmanager
async def _producer(settings: Settings) -> AsyncIterator[EventProducer]:
    producer = EventProducer(
        settings.kafka_bootstrap or "", KafkaSecurity.from_settings(settings), client_id="workflow-runs-replay"
    )
    await producer.start()
    try:
        yield producer
    finally:
        producer.purge()
        await producer.close()


async def _on_store(settings: Settings, work: Callable[[DeadLetters], Awaitable[T]]) -> T:
    store = build_store(settings)
    await store.database.open()
    try:
        return await work(store.dead_letters)
    finally:
        await store.database.close()


def _line(letter: LetterSummary) -> dict[str, object]:
    return {
        "letterId": letter.letter_id,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.record_offset,
        "recordTime": _record_time(letter.record_time),
        "state": letter.state,
        "code": letter.code,
        "reason": letter.reason,
        "size": letter.size,
        "receivedAt": letter.received_at.isoformat(),
        "heldUntil": letter.held_until and letter.held_until.isoformat(),
        "replayedAt": letter.replayed_at and letter.replayed_at.isoformat(),
    }


def _fields(stored: StoredLetter) -> dict[str, object]:
    letter, identity = stored.letter, stored.letter.identity
    return {
        "letterId": stored.letter_id,
        "state": stored.state,
        "code": letter.code,
        "reason": letter.reason,
        "topic": identity.topic,
        "partition": identity.partition,
        "offset": identity.offset,
        "recordTime": _record_time(identity.timestamp_ms),
        "topicId": identity.topic_id,
        "clusterId": identity.cluster_id,
        "receivedAt": stored.received_at.isoformat(),
        "heldUntil": stored.held_until and stored.held_until.isoformat(),
        "replayedAt": stored.replayed_at and stored.replayed_at.isoformat(),
        "key": _shown(letter.key),
        "value": _shown(letter.value),
        "headers": [{"name": _printable(name), "value": _shown(value)} for name, value in letter.headers],
    }


def _shown(data: bytes | None) -> dict[str, str] | None:
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode("ascii")}
    if all(character.isprintable() or character in "\n\r\t" for character in text):
        return {"text": text}
    return {"base64": b64encode(data).decode("ascii")}


def _printable(text: str) -> str:
    """Return *text* with nothing in it that a terminal would obey: whoever wrote the record chose it."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def _shortened(reason: str) -> str:
    text = _printable(reason)
    return text if len(text) <= _REASON_WIDTH else text[: _REASON_WIDTH - 1] + "…"


def _record_time(milliseconds: int) -> str | int | None:
    """Return a record's time; the number itself where it is no date, None where the record has none."""
    if milliseconds < 0:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat()
    except OverflowError:
        return milliseconds


def _result(result: ReplayResult) -> dict[str, object]:
    return {"letterId": result.letter_id, "outcome": result.outcome, "detail": result.detail}


def _print_results(results: Sequence[ReplayResult]) -> None:
    for result in results:
        if result.outcome is not ReplayOutcome.REPLAYED:
            detail = f": {_printable(result.detail)}" if result.detail else ""
            print_problem(f"letter {result.letter_id} is {result.outcome}{detail}")
    count = sum(result.outcome is ReplayOutcome.REPLAYED for result in results)
    click.echo(f"{count} of {len(results)} letters put back")


def _exit_of(results: Sequence[ReplayResult]) -> Exit:
    outcomes = {result.outcome for result in results}
    if ReplayOutcome.UNKNOWN in outcomes:
        return Exit.UNKNOWN_ID
    return Exit.REFUSED if outcomes & {ReplayOutcome.REFUSED, ReplayOutcome.HELD} else Exit.DONE
