"""`workflow-runs relay`: events that do not arrive, why, and what to do about them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final, TypeVar
from uuid import UUID

import click

from store.relay_operations import FailingPage, RelayOperations, ShardState
from store.republish import Progress, Republish
from streams.cli.exits import Exit
from streams.cli.output import print_fields, print_json, print_problem, print_table
from streams.cli.relay_fields import Json, events_fields, failing_fields, run_fields, shard_fields, shortened
from streams.parts.store import Store, build_store
from streams.settings import load_settings

T = TypeVar("T")

_FAILING_COLUMNS: Final = ("status", "key", "seq", "attempts", "nextTryAt", "lastError")
_SHARD_COLUMNS: Final = ("shard", "holder", "leaseUntil", "backlog", "oldestAt")
_EVENT_COLUMNS: Final = ("seq", "event", "step", "status", "occurredAt", "attempts", "nextTryAt", "lastError")

_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_reason_option = click.option("--reason", help="Why; it is kept in the audit.")
_letter_option = click.option("--letter", "letter_id", type=click.IntRange(1), help="A dead letter instead of a run.")
_job_argument = click.argument("job_id", type=click.UUID, required=False)


@click.group()
def relay() -> None:
    """Look at events and dead letters on their way to Kafka, and free what is stuck.

    A record that Kafka or our own checks refuse is tried ten times; then its key is blocked: all later events of its
    run wait behind it, while everything else goes on. `resend` tries it again, once what was wrong is mended; `skip`
    sends a reduced event in its place.
    """


@relay.command("list")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Most failing rows to list.")
@click.option("--cursor", help="Go on where an earlier list ended.")
@_json_option
def list_(limit: int, cursor: str | None, as_json: bool) -> None:
    """List what fails or is blocked, and per shard who relays it and how much waits."""

    async def work(operations: RelayOperations) -> tuple[FailingPage, list[ShardState]]:
        return await operations.failing(limit=limit, cursor=cursor), list(await operations.shards())

    page, shards = _operate(work)
    failing, states = [failing_fields(row) for row in page.rows], [shard_fields(state) for state in shards]
    if as_json:
        print_json({"failing": failing, "nextCursor": page.next_cursor, "shards": states})
        return
    print_table(states, _SHARD_COLUMNS)
    if not all(state.live for state in shards):
        print_problem("nobody relays some of the shards: is a worker with the role relay running?")
    click.echo()
    if not failing:
        click.echo("nothing fails")
        return
    print_table([shortened(row) for row in failing], _FAILING_COLUMNS)
    if page.next_cursor is not None:
        click.echo(f"more: --cursor {page.next_cursor}")


@relay.command()
@click.argument("job_id", type=click.UUID)
@click.option("--from", "from_seq", type=click.IntRange(1), default=1, show_default=True, help="First seq to show.")
@_json_option
def show(job_id: UUID, from_seq: int, as_json: bool) -> None:
    """Show the events of one run: PENDING, FAILED (blocked) or PUBLISHED."""
    outbox = _operate(lambda operations: operations.outbox(job_id, from_seq=from_seq))
    fields, events = run_fields(outbox), events_fields(outbox)
    if as_json:
        print_json({**fields, "events": events, "nextSeq": outbox.next_seq})
        return
    print_fields(fields)
    click.echo()
    print_table([shortened(event) for event in events], _EVENT_COLUMNS)
    if outbox.next_seq is not None:
        click.echo(f"more: --from {outbox.next_seq}")


@relay.command()
@_job_argument
@click.option("--seq", type=click.IntRange(1), help="Only this event of the run.")
@_letter_option
@click.option("--all", "everything", is_flag=True, help="Everything that failed.")
@_reason_option
@_json_option
def resend(
    job_id: UUID | None, seq: int | None, letter_id: int | None, everything: bool, reason: str | None, as_json: bool
) -> None:
    """Try at once what failed, as if it never had: of a run, a dead letter, or everything."""
    _require_one(job_id is not None, letter_id is not None, everything)
    if seq is not None and job_id is None:
        raise click.UsageError("--seq goes with a run")

    async def work(operations: RelayOperations) -> Json:
        if job_id is not None:
            return {"jobId": str(job_id), "seqs": list(await operations.resend(job_id, seq=seq, reason=reason))}
        if letter_id is not None:
            found = await operations.resend_letter(letter_id, reason=reason)
            return {"letterIds": [letter_id] if found else []}
        return {"rows": await operations.resend_all(reason=reason)}

    answer = _operate(work)
    freed = any(answer[name] for name in ("seqs", "letterIds", "rows") if name in answer)
    if as_json:
        print_json({"ok": freed or everything, **answer})
    elif freed:
        click.echo("tried again at once")
    if not freed and not everything:
        print_problem("nothing of it failed: `relay show` tells where each event is, `relay republish` sends it again")
        sys.exit(int(Exit.REFUSED))
    if not freed and not as_json:
        click.echo("nothing fails")


@relay.command()
@_job_argument
@click.option("--seq", type=click.IntRange(1), help="Which event of the run.")
@_letter_option
@click.option("--reason", required=True, help="Why; it is told with the event and kept in the audit.")
@_json_option
def skip(job_id: UUID | None, seq: int | None, letter_id: int | None, reason: str, as_json: bool) -> None:
    """Give a blocked event or dead letter up: a reduced one goes out in its place.

    A reduced event has the same id and number, its verdict and error cut, and neither labels nor detail. A reduced
    dead letter has no value; `dead-letters show` still has all of it.
    """
    _require_one(job_id is not None, letter_id is not None)
    if (job_id is None) != (seq is None):
        raise click.UsageError("JOB_ID and --seq go together")

    async def work(operations: RelayOperations) -> Json:
        if job_id is not None and seq is not None:
            await operations.skip(job_id, seq, reason=reason)
            return {"jobId": str(job_id), "seq": seq}
        await operations.skip_letter(letter_id or 0, reason=reason)
        return {"letterId": letter_id}

    answer = _operate(work)
    if as_json:
        print_json({"ok": True, **answer})
    else:
        click.echo("its reduced form goes out in its place")


@relay.command()
@click.option("--since", required=True, metavar="TIME|SEQ", help="ISO 8601 with a zone; with --job-id a seq as well.")
@click.option("--job-id", type=click.UUID, help="Only the events of this run.")
@_reason_option
@_json_option
def republish(since: str, job_id: UUID | None, reason: str | None, as_json: bool) -> None:
    """Send events again from the log, with the same ids and bytes, in order per run.

    Consumers drop what they have seen by its id. Events of pruned runs are gone.
    """
    since_seq, since_time = _since(since)
    if job_id is None and since_time is None:
        raise click.UsageError("a seq counts the events of one run: add --job-id, or give a time")
    telling = sys.stderr.isatty()

    async def work(republish: Republish) -> Progress:
        if job_id is not None:
            return await republish.of_run(job_id, since_time=since_time, since_seq=since_seq, reason=reason)
        progress, waited = Progress(0, 0, 0), False
        async for progress in republish.all_since(since_time or datetime.now(UTC), reason=reason):
            if telling:
                _tell(progress)
            elif progress.waiting and not waited:
                click.echo("waiting for the relays: what is queued must go out first", err=True)
            waited |= progress.waiting
        return progress

    async def on_store() -> Progress:
        async with _opened() as (store, actor):
            return await work(Republish(store.database, actor=actor, on_committed=store.notifier.notify))

    done = asyncio.run(on_store())
    if telling and job_id is None:
        click.echo(err=True)
    if as_json:
        print_json({"ok": True, "runs": done.runs, "events": done.events})
    else:
        click.echo(f"{done.events} events of {done.runs} runs are on their way again")


def _operate(work: Callable[[RelayOperations], Awaitable[T]]) -> T:
    async def on_store() -> T:
        async with _opened() as (store, actor):
            return await work(RelayOperations(store.database, actor=actor, on_committed=store.notifier.notify))

    return asyncio.run(on_store())


@asynccontextmanager
async def _opened() -> AsyncIterator[tuple[Store, str]]:
    settings = load_settings()
    store = build_store(settings)
    await store.database.open()
    try:
        yield store, f"cli:{settings.worker_id}"
        await store.notifier.close()
    finally:
        await store.database.close()


def _require_one(*given: bool) -> None:
    if sum(given) != 1:
        raise click.UsageError("say what: JOB_ID or one of the options that stand for it")


def _since(text: str) -> tuple[int, datetime | None]:
    """Return what --since says: a seq, or a time and the seq 1."""
    if text.isascii() and text.isdigit() and 0 < len(text) < 19:
        return int(text), None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise click.UsageError("--since is a time such as 2026-01-31T08:00:00Z, or a seq")
    return 1, time


def _tell(progress: Progress) -> None:
    text = f"{progress.looked_at} runs looked at, {progress.events} events of {progress.runs} runs queued"
    wait = ", waiting for the relays" if progress.waiting else ""
    click.echo(f"\r\033[K{text}{wait}", nl=False, err=True)
