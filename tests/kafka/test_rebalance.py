"""Workers come and go: nothing is read twice without need, and nothing is left out."""

import asyncio
from contextlib import AsyncExitStack
from uuid import uuid4

from tests.agents.bench import IntakeBench, IntakeWorker, request_value, until

PARTITIONS = 4


async def keep_producing(intake: IntakeBench, enough: asyncio.Event) -> int:
    """Put a few requests on every partition, again and again, until *enough* is set. Returns how many."""
    made = 0
    while not enough.is_set():
        jobs = [uuid4() for _ in range(5 * PARTITIONS)]
        for partition in range(PARTITIONS):
            values = [request_value(job_id) for job_id in jobs[partition::PARTITIONS]]
            await asyncio.to_thread(intake.produce, *values, partition=partition)
        made += len(jobs)
        await asyncio.sleep(0.02)
    return made


def outcome(workers: list[IntakeWorker], name: str) -> float:
    return sum(worker.count("requests_total", outcome=name) for worker in workers)


async def reads(worker: IntakeWorker) -> None:
    """Wait until *worker* has stored something."""
    await until(lambda: outcome([worker], "born_failed") > 0, worker.service.health)


async def test_a_normal_rebalance_rewinds_nothing(intake: IntakeBench) -> None:
    intake = intake.on_partitions(PARTITIONS)
    enough = asyncio.Event()
    producing = asyncio.create_task(keep_producing(intake, enough))
    async with AsyncExitStack() as second_stack:
        async with AsyncExitStack() as first_stack:
            first = await first_stack.enter_async_context(intake.worker())
            await reads(first)
            second = await second_stack.enter_async_context(intake.worker())
            await reads(second)
        third = await second_stack.enter_async_context(intake.worker())
        await reads(third)
        enough.set()
        made = await producing
        await intake.has_runs(made)
        for partition in range(PARTITIONS):
            position = await intake.position(partition)
            await intake.has_committed(position["next_offset"], partition)
    workers = [first, second, third]
    assert outcome(workers, "born_failed") == made
    assert outcome(workers, "existing") == 0
    assert {worker.count("intake_rebuilds_total") for worker in workers} == {0}
