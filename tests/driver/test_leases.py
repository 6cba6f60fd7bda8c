"""Leases: a run is worked on by whoever holds the newest claim, and by nobody else."""

import time

import grpc
import pytest

from streams.dev.postgres import EmbeddedPostgres
from tests.driver.stories import TOKENIZE, TOKENS
from tests.driver.world import World, until
from tests.fixtures.grpc_server import Answer

FULL_LOG = ["ACCEPTED", "STEP_CHECKPOINT tokenize", "STEP_CHECKPOINT embed", "COMPLETED"]


@pytest.mark.spec(80)
async def test_a_segment_longer_than_its_lease_is_renewed_and_runs_once(world: World) -> None:
    world.server.script(TOKENIZE, Answer(TOKENS.payload, delay_seconds=2.5))
    job_id = await world.run()

    async with world.worker("a:1", lease_seconds=1), world.worker("b:1", lease_seconds=1):
        row = await world.until_status(job_id, "COMPLETED")

    assert (row["fence"], row["lost_leases"]) == (1, 0)
    assert len(world.server.calls(TOKENIZE)) == 1


@pytest.mark.spec(79)
@pytest.mark.parametrize(
    "late",
    [TOKENS, Answer(b"\xff"), Answer(status=grpc.StatusCode.INTERNAL), Answer(status=grpc.StatusCode.UNAVAILABLE)],
)
async def test_a_worker_that_lost_its_lease_changes_nothing_whatever_its_call_brings(
    world: World, late: Answer
) -> None:
    world.server.script(TOKENIZE, late, TOKENS)
    job_id = await world.run()

    # The leases of both are long: the late one learns of its loss by its own write, not by a renewal.
    async with world.worker("a:1", lease_seconds=60, in_flight=1) as stale:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            await world.lose_lease(job_id)
            async with world.worker("b:1", lease_seconds=60):
                await held.arrived()
                assert (await world.row(job_id))["lease_owner"] == "b:1"
                stale_call, live_call = world.server.calls(TOKENIZE)
                held.release()
                await world.until_status(job_id, "COMPLETED")
                await world.until_idle(stale)

    assert stale_call.answered
    assert live_call.answered
    assert await world.log(job_id) == FULL_LOG
    assert stale.count("leases_lost_total") == 1
    assert (await world.row(job_id))["attempt"] == 0


async def test_a_call_under_a_lost_lease_is_cancelled_by_the_next_renewal(world: World) -> None:
    job_id = await world.run()

    async with world.worker("a:1", lease_seconds=3, in_flight=1) as stale:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            await world.lose_lease(job_id)
            async with world.worker("b:1", lease_seconds=60):
                await held.arrived()
                assert await world.server.calls(TOKENIZE)[0].was_cut()
                await world.until_idle(stale)
                assert not world.server.calls(TOKENIZE)[1].cut.is_set()
                held.release()
                await world.until_status(job_id, "COMPLETED")

    assert await world.log(job_id) == FULL_LOG
    assert stale.count("leases_lost_total") == 1


async def test_the_same_worker_may_claim_its_lost_run_again_without_mixing_the_claims(world: World) -> None:
    job_id = await world.run()

    async with world.worker("a:1", lease_seconds=60) as worker:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            await world.lose_lease(job_id)
            await held.arrived()
            held.release()
            await world.until_status(job_id, "COMPLETED")
            await world.until_idle(worker)

    assert await world.log(job_id) == FULL_LOG
    assert worker.count("leases_lost_total") == 1


@pytest.mark.parametrize("listening", [True, False])
async def test_a_cancelled_run_has_its_call_cancelled_within_a_second(world: World, listening: bool) -> None:
    job_id = await world.run()

    async with world.worker(listening=listening) as worker:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            await world.control().cancel(tenant_id="default", job_id=job_id, reason="not wanted")
            asked_at = time.monotonic()
            assert await world.server.calls(TOKENIZE)[0].was_cut()
            assert time.monotonic() - asked_at < 1.5  # seconds; the server itself looks every now and then
            await world.until_idle(worker)

    assert await world.log(job_id) == ["ACCEPTED", "CANCELLED"]
    assert (await world.row(job_id))["status"] == "CANCELLED"


@pytest.mark.spec(81)
async def test_leases_run_out_also_while_every_place_of_a_worker_is_taken(world: World) -> None:
    busy = await world.run()
    async with world.worker("a:1", lease_seconds=1, in_flight=1):
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            orphan = await world.run()
            await world.sql.execute(
                "update run set status = 'RUNNING', next_target = null, resume_target = 'tokenizer', fence = 1,"
                " lease_owner = 'gone:1', lease_until = now() where job_id = %s",
                [orphan],
            )
            row = await world.until_status(orphan, "QUEUED")
            assert (row["lost_leases"], row["attempt"]) == (1, 0)
            assert (await world.row(busy))["status"] == "RUNNING"
            held.release()
            await world.until_status(orphan, "COMPLETED")


async def test_a_run_whose_claims_all_ran_out_is_dead_and_says_so(world: World) -> None:
    job_id = await world.run()
    await world.sql.execute("update run set lost_leases = 2 where job_id = %s", [job_id])

    async with world.worker(lease_seconds=60) as worker:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            await world.lose_lease(job_id)
            row = await world.until_status(job_id, "DEAD")
        await world.until_idle(worker)

    assert row["lost_leases"] == 3
    assert "lease expired 3 times in a row" in row["error"]
    assert await world.log(job_id) == ["ACCEPTED", "DEAD"]


async def test_a_database_that_is_away_past_the_lease_stops_the_call_and_blames_nobody(
    outage_world: World, own_postgres: EmbeddedPostgres
) -> None:
    world = outage_world
    job_id = await world.run()

    async with world.worker(lease_seconds=2) as worker:
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            own_postgres.stop()
            assert await world.server.calls(TOKENIZE)[0].was_cut()
            assert worker.driver.health().alive
            held.release()
        own_postgres.start()
        async with world.reconnected():
            row = await world.until_status(job_id, "COMPLETED")
            log = await world.log(job_id)

    assert (row["lost_leases"], row["attempt"]) == (0, 0)
    assert log == FULL_LOG
    assert len(world.server.calls(TOKENIZE)) == 2


async def test_a_call_outlasts_an_outage_that_is_shorter_than_its_lease(
    outage_world: World, own_postgres: EmbeddedPostgres
) -> None:
    world = outage_world
    job_id = await world.run()

    async with world.worker(lease_seconds=30):
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            own_postgres.kill()
            held.release()
            await until(lambda: world.server.calls(TOKENIZE)[0].answered)
        own_postgres.start()
        async with world.reconnected():
            row = await world.until_status(job_id, "COMPLETED")
            log = await world.log(job_id)

    assert (row["lost_leases"], row["fence"]) == (0, 1)
    assert log == FULL_LOG
    assert len(world.server.calls(TOKENIZE)) == 1
