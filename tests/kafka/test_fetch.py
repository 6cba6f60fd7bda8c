"""A fetch that outlives its assignment takes nothing from the next one."""

import asyncio
from uuid import uuid4

from faust.types import TP

from tests.agents.bench import IntakeBench, request_value, until


async def test_a_fetch_that_waited_through_a_new_assignment_leaves_its_records_to_that_one(intake: IntakeBench) -> None:
    async with intake.worker() as worker:
        await worker.ready()
        consumer = worker.consumer()
        before = consumer.current
        assert before is not None
        thread = consumer._thread
        partitions = {TP(intake.topic, 0)}
        late = asyncio.create_task(consumer.in_thread(lambda: thread.fetched(before.number, partitions, 5.0, 500)))
        await asyncio.sleep(0.3)  # the fetch is under way
        consumer.begin_again(before, "for the test")
        await until(lambda: thread.number > before.number, worker.service.health)
        job_id = uuid4()
        intake.produce(request_value(job_id))
        assert await late == {}
        await intake.has_runs(1)
        assert await intake.has_run(job_id)
