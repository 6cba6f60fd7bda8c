"""Offsets go after the rows, for partitions that are ours, until Kafka has them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import cast

import faust
import psycopg
import pytest
from faust.types import TP

from streams.kafka.assignment import AssignedPartition, Assignment
from streams.kafka.offsets import Offsets
from tests.agents.bench import IntakeBench, request_value, until

ONE = TP("t", 0)
TWO = TP("t", 1)


class Group:
    """A consumer group that answers as told: what a broker refuses at will no test can arrange."""

    def __init__(self) -> None:
        self.asked: list[Mapping[TP, int]] = []
        self.answers: list[bool] = []
        self.told: list[Mapping[TP, int]] = []
        self.monitor = SimpleNamespace(on_tp_commit=self.told.append)
        self.consumer = SimpleNamespace(_commit=self.commit)

    async def commit(self, offsets: Mapping[TP, int]) -> bool:
        self.asked.append(dict(offsets))
        await asyncio.sleep(0)
        return self.answers.pop(0) if self.answers else True


def assignment() -> Assignment:
    return Assignment(1, "cluster", {partition: AssignedPartition("id", 0, 0) for partition in (ONE, TWO)})


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
async def offsets(group: Group) -> AsyncIterator[Offsets]:
    offsets = Offsets(cast(faust.App, group), retry_seconds=0.01)
    running = asyncio.create_task(offsets.run())
    yield offsets
    running.cancel()


async def test_offsets_of_batches_go_together_and_the_monitor_learns_of_them(offsets: Offsets, group: Group) -> None:
    here = assignment()
    offsets.commit(here, {ONE: 3})
    offsets.commit(here, {ONE: 5, TWO: 9})
    await until(lambda: not offsets.pending, lambda: offsets.pending)
    assert group.asked == group.told == [{ONE: 5, TWO: 9}]


async def test_what_the_group_refuses_is_sent_again_with_what_came_meanwhile(offsets: Offsets, group: Group) -> None:
    group.answers = [False] * 1_000
    here = assignment()
    offsets.commit(here, {ONE: 3})
    await until(lambda: len(group.asked) > 1, lambda: group.asked)
    offsets.commit(here, {TWO: 7})
    group.answers.clear()
    await until(lambda: not offsets.pending, lambda: offsets.pending)
    assert group.asked[0] == {ONE: 3}
    assert group.asked[-1] == {ONE: 3, TWO: 7}
    assert group.told == [{ONE: 3, TWO: 7}]


async def test_an_offset_never_goes_backwards(offsets: Offsets, group: Group) -> None:
    here = assignment()
    offsets.commit(here, {ONE: 5})
    offsets.commit(here, {ONE: 3})
    await until(lambda: not offsets.pending, lambda: offsets.pending)
    assert group.asked == [{ONE: 5}]


async def test_an_assignment_that_ended_commits_once_more_at_its_end_and_then_never(
    offsets: Offsets, group: Group
) -> None:
    ended = assignment()
    ended.end()
    offsets.commit(ended, {ONE: 5})
    await asyncio.sleep(0.05)
    assert group.asked == []
    group.answers = [False]
    await offsets.flush(ended, 1)
    await asyncio.sleep(0.05)
    assert group.asked == [{ONE: 5}]
    assert not offsets.pending


async def test_offsets_of_another_assignment_are_not_mixed_in(offsets: Offsets, group: Group) -> None:
    before, now = assignment(), assignment()
    before.end()
    offsets.commit(before, {ONE: 50})
    offsets.commit(now, {TWO: 7})
    await until(lambda: not offsets.pending, lambda: offsets.pending)
    assert group.asked == [{TWO: 7}]


async def test_no_offset_goes_before_its_rows_are_committed(intake: IntakeBench, database_url: str) -> None:
    async with (
        intake.worker() as worker,
        await psycopg.AsyncConnection.connect(database_url) as other,
    ):
        await worker.ready()
        await other.execute("LOCK TABLE workflow_runs.run IN SHARE MODE")
        intake.produce(*[request_value() for _ in range(5)])
        await until(lambda: intake.waiting_for_locks(), lambda: "nobody waits for the lock")
        assert intake.committed() < 0
        await other.rollback()
        await intake.has_runs(5)
        await intake.has_committed(5)


async def test_a_commit_without_a_partition_is_refused_and_ends_nothing(intake: IntakeBench) -> None:
    async with intake.worker() as one, intake.worker() as other:
        await one.ready()
        await other.ready()
        await until(lambda: one.partitions() + other.partitions() == 1, lambda: "both read it")
        spare = one if not one.partitions() else other
        assert await spare.consumer()._commit({TP(intake.topic, 0): 1}) is False
        intake.produce(request_value())
        await intake.has_runs(1)
        assert spare.service.health().ready
        assert spare.count("intake_rebuilds_total") == 0
