"""The intake agent: batches of what is waiting, each stored before its offsets go."""

from collections.abc import AsyncIterator
from typing import Any

import faust
import mode

from schemas.errors import PositionMoved
from store.database import CommitPoint, passes
from streams.agents.accept import Accept
from streams.kafka.assignment import Assignment, AssignmentEnded
from streams.kafka.offsets import Offsets
from streams.kafka.records import Record
from streams.kafka.transport import IntakeConsumer, IntakeMessage


def add_intake_agent(
    app: faust.App,
    topic: str,
    *,
    accept: Accept,
    offsets: Offsets,
    batch_records: int,
    batch_bytes: int,
    commit_point: CommitPoint = passes,
) -> None:
    """Turn every record of *topic* into a row or a dead letter, then let its offset go.

    The body never raises for a bad record or for an absent store: a bad record becomes a dead letter, and an outage is
    waited out while the partitions stand still. Whatever else it raises ends the App, and the next one reads again from
    the last stored position. *commit_point* is awaited at `intake.before_offset`.
    """
    # Without `acks` Faust itself can never commit an offset of this topic.
    requests = app.topic(
        topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw", acks=False
    )

    @app.agent(requests, name=f"intake-{topic}", concurrency=1, supervisor_strategy=mode.CrashingSupervisor)
    async def intake(stream: Any) -> None:
        consumer = app.consumer
        assert isinstance(consumer, IntakeConsumer)
        async for assignment, records in whatever_waits(stream, batch_records, batch_bytes):
            try:
                with assignment.work():
                    next_offsets = await accept.store(assignment, records)
                    await commit_point("intake.before_offset")
                    offsets.commit(assignment, next_offsets)
            except AssignmentEnded:
                continue  # whoever reads these partitions next reads these records again
            except PositionMoved as error:
                consumer.begin_again(assignment, str(error))
            finally:
                assignment.unbuffered(len(records), sum(record.size for record in records))


async def whatever_waits(
    stream: Any, most_records: int, most_bytes: int
) -> AsyncIterator[tuple[Assignment, list[Record]]]:
    """Hand out batches as soon as nothing more is waiting: no timer holds a lone record back.

    A batch holds records of one assignment, in the order they were read; those of one that has ended are dropped.
    """
    waiting = stream.channel.queue
    assignment: Assignment | None = None
    batch: list[Record] = []
    size = 0
    async for event in stream.events():
        message: IntakeMessage = event.message
        if message.assignment is not assignment:
            assignment, batch, size = message.assignment, [], 0
        batch.append(message.record)
        size += message.record.size
        if len(batch) < most_records and size < most_bytes and not waiting.empty():
            continue
        if not assignment.ended:
            yield assignment, batch
        batch, size = [], 0
