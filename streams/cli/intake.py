"""`workflow-runs intake`: how far the request topic is read, back to an earlier record, and past a bad one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import click

from schemas.topics import load_topics
from store.positions import PositionChange
from streams.cli.output import print_json, print_table
from streams.kafka.intake_operations import IntakeOperations, PartitionStatus
from streams.kafka.positions import StartReason
from streams.kafka.security import KafkaSecurity
from streams.parts.store import build_store
from streams.settings import Settings, load_settings

T = TypeVar("T")

_COLUMNS: Final = ("partition", "position", "floor", "committed", "logStart", "logEnd", "lag", "timeLeft", "note")
_QUIET: Final = (StartReason.AGREED, StartReason.FIRST, StartReason.ONLY_STORED)

_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group()
def intake() -> None:
    """Look at how far the request topic is read, and move it. Workers may run meanwhile."""


@intake.command()
@_json_option
def status(as_json: bool) -> None:
    """Show each partition: positions, what the log holds, and how long until retention removes what is not read."""
    partitions = asyncio.run(_operate(load_settings(), lambda operations: operations.status()))
    lines = [_line(partition) for partition in partitions]
    if as_json:
        print_json({"partitions": lines})
        return
    topic = partitions[0].topic if partitions else ""
    click.echo(f"topic {topic}, id {partitions[0].topic_id if partitions else '-'}")
    print_table([{**line, "timeLeft": _time(line["secondsLeft"])} for line in lines], _COLUMNS)


@intake.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.argument("offset", metavar="OFFSET|beginning")
@click.option("--undo-skip", is_flag=True, help="Also below what was skipped: those records are read after all.")
@click.option("--reason", help="Why; it is kept in the audit.")
@_json_option
def seek(topic: str, partition: int, offset: str, undo_skip: bool, reason: str | None, as_json: bool) -> None:
    """Read PARTITION of TOPIC again from OFFSET on. What became a run before stays one run."""
    wanted = _offset(offset)

    async def work(operations: IntakeOperations) -> PositionChange:
        return await operations.seek(topic, partition, wanted, below_floor=undo_skip, reason=reason)

    _print_change(topic, partition, asyncio.run(_operate(load_settings(), work)), as_json)


@intake.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.option("--to", "to_offset", type=click.IntRange(0), required=True, help="The first record to read again.")
@click.option("--reason", required=True, help="Why; it is kept in the audit.")
@_json_option
def skip(topic: str, partition: int, to_offset: int, reason: str, as_json: bool) -> None:
    """Never read the records of PARTITION of TOPIC below --to that are not read yet. They become no runs."""

    async def work(operations: IntakeOperations) -> PositionChange:
        return await operations.skip(topic, partition, to_offset, reason=reason)

    _print_change(topic, partition, asyncio.run(_operate(load_settings(), work)), as_json)


async def _operate(settings: Settings, work: Callable[[IntakeOperations], Awaitable[T]]) -> T:
    settings.require("database_url", "kafka_bootstrap")
    requests = load_topics(settings.topics_file).requests
    store = build_store(settings)
    await store.database.open()
    try:
        return await work(
            IntakeOperations(
                bootstrap=settings.kafka_bootstrap or "",
                security=KafkaSecurity.from_settings(settings),
                group_id=settings.group,
                topic=requests.name,
                positions=store.positions,
                actor=f"cli:{settings.worker_id}",
            )
        )
    finally:
        await store.notifier.close()
        await store.database.close()


def _offset(text: str) -> int | None:
    if text == "beginning":
        return None
    if not text.isascii() or not text.isdigit():
        raise click.UsageError(f"{text} is no offset: give a whole number, or `beginning`")
    return int(text)


def _line(status: PartitionStatus) -> dict[str, object]:
    stored = status.stored
    note = "" if status.start.why in _QUIET else str(status.start.why)
    if status.start.lost:
        note += f": {status.start.lost} offsets are lost"
    return {
        "topic": status.topic,
        "partition": status.partition,
        "topicId": status.topic_id,
        "position": None if stored is None else stored.next_offset,
        "positionTopicId": None if stored is None else stored.topic_id,
        "floor": None if stored is None else stored.floor_offset,
        "committed": status.committed,
        "logStart": status.bounds.start,
        "logEnd": status.bounds.end,
        "readsFrom": status.start.offset,
        "lag": status.lag,
        "lost": status.start.lost,
        "oldestUnread": status.oldest_unread and status.oldest_unread.isoformat(),
        "secondsLeft": status.seconds_left,
        "note": note or None,
    }


def _time(seconds: object) -> str | None:
    if not isinstance(seconds, float):
        return None
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _print_change(topic: str, partition: int, change: PositionChange, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "topic": topic,
                "partition": partition,
                "before": change.before,
                "after": change.after,
                "floor": change.floor_offset,
            }
        )
        return
    before = "never read" if change.before is None else f"stood at {change.before}"
    click.echo(f"{topic}[{partition}] {before} and is read from {change.after} on; workers notice within ten seconds")
