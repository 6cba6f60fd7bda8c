"""What uses up the tries of a step: failed calls of that step, and nothing else."""

import asyncio
from uuid import UUID

import pytest
from grpc import StatusCode

from tests.driver.stories import EMBED, VECTOR, embed_reviewed_text
from tests.driver.world import World
from tests.fixtures.grpc_server import Answer

_AWAY = Answer(status=StatusCode.UNAVAILABLE)


@pytest.mark.spec(65)
async def test_three_parks_leave_a_later_call_its_full_allowance_of_tries(world: World) -> None:
    document = embed_reviewed_text()
    _, review, embed = document["steps"]
    parks = [{**review, "name": f"review{number}"} for number in range(3)]
    document["steps"] = [*parks, {**embed, "rules": ["tokens += input.text"]}]
    world.server.script(EMBED, _AWAY, _AWAY, VECTOR)
    async with world.worker():
        job_id = await world.run(document, max_attempts=3)
        for step in (str(park["name"]) for park in parks):
            await until_parked(world, job_id, step)
            await world.answers().answer(tenant_id="default", job_id=job_id, step=step, response={"approved": True})
        row = await world.until_status(job_id, "COMPLETED")
    assert len(world.calls_of(job_id, EMBED)) == 3
    assert (row["fence"], row["lost_leases"]) == (6, 0)


async def until_parked(world: World, job_id: UUID, step: str) -> None:
    """Wait until the run waits for an answer to *step*."""
    async with asyncio.timeout(15):
        while True:
            if (await world.until_status(job_id, "WAITING"))["outstanding_step"] == step:
                return
            await asyncio.sleep(0.01)
