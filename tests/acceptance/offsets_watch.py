"""Looks at offsets and rows all along: what is committed has its row or its dead letter, at every moment."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from tests.acceptance.fleet import Fleet
from tests.acceptance.producer import Offset
from tests.store.samples import connected, select

_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Sample:
    """Committed offsets by partition, then what the store had: jobs, records that are dead letters, and positions."""

    committed: Mapping[int, int]
    jobs: frozenset[UUID]
    letters: frozenset[Offset]
    positions: Mapping[int, int]


class OffsetsWatch:
    """Every sample that was taken; the offsets of each are older than its rows, which never go away."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def ahead_of_rows(self, produced: Mapping[Offset, UUID | None]) -> set[Offset]:
        """The records that stood below a committed offset at a moment when they had neither row nor dead letter."""
        return {
            (partition, offset)
            for sample in self.samples
            for (partition, offset), job_id in produced.items()
            if offset < sample.committed.get(partition, 0)
            if job_id not in sample.jobs and (partition, offset) not in sample.letters
        }

    def rewound(self) -> list[tuple[Sample, Sample]]:
        """Neighbouring samples of which the later one has a lower committed offset or position somewhere."""
        return [pair for pair in pairwise(self.samples) if any(_went_back(*pair))]


def _went_back(before: Sample, after: Sample) -> Iterator[bool]:
    for partition, offset in before.committed.items():
        yield after.committed.get(partition, -1) < offset
    for partition, offset in before.positions.items():
        yield after.positions.get(partition, -1) < offset


@asynccontextmanager
async def watched_offsets(fleet: Fleet) -> AsyncIterator[OffsetsWatch]:
    """Sample as long as the block lasts."""
    watch = OffsetsWatch()
    watching = asyncio.create_task(_watch(fleet, watch))
    try:
        yield watch
        assert not watching.done(), watching.exception()
    finally:
        watching.cancel()
        await asyncio.wait({watching})
    assert len(watch.samples) > 1


async def _watch(fleet: Fleet, watch: OffsetsWatch) -> None:
    topic = fleet.topics.requests.name
    async with connected(fleet.database_url) as sql:
        while True:
            committed = await asyncio.to_thread(fleet.committed)
            jobs = await select(sql, "select job_id from run")
            letters = await select(
                sql, "select partition, record_offset from dead_letter where topic = %(topic)s", {"topic": topic}
            )
            positions = await select(sql, "select partition, next_offset from intake_position")
            watch.samples.append(
                Sample(
                    committed,
                    frozenset(row["job_id"] for row in jobs),
                    frozenset((row["partition"], row["record_offset"]) for row in letters),
                    {row["partition"]: row["next_offset"] for row in positions},
                )
            )
            await asyncio.sleep(_PAUSE_SECONDS)
