"""Claims: as many runs as there is room for, of the targets that are served, and none lost in between."""

import asyncio
import json
from collections.abc import Mapping
from uuid import UUID

import pytest

from schemas.errors import StoreUnavailable
from store.control import Control
from store.records import HeldRun
from streams.driver import claims
from streams.driver.claims import share
from tests.driver.stories import EMBED, TOKENIZE, embed_only
from tests.driver.world import Worker, World, until
from tests.store.samples import select, select_one


class CountedLooks:
    """Counts how often a worker looks for due runs."""

    def __init__(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        targets = worker.leases.targets

        async def counted() -> dict[str, float]:
            self.count += 1
            return await targets()

        monkeypatch.setattr(worker.leases, "targets", counted)

    async def more(self, looks: int) -> None:
        """Wait for so many further looks."""
        enough = self.count + looks
        await until(lambda: self.count >= enough)


async def test_no_more_runs_are_held_than_the_worker_has_places(world: World) -> None:
    world.targets["tokenizer"]["permits"] = 50
    job_ids = [await world.run() for _ in range(9)]

    async with world.worker(in_flight=4) as worker:
        with world.server.holding(TOKENIZE) as held:
            for _ in range(4):
                await held.arrived()
            assert worker.count("held_runs") == 4
            running = "select count(*) from run where status = 'RUNNING'"
            assert await select_one(world.sql, running) == 4
            held.release()
        for job_id in job_ids:
            await world.until_status(job_id, "COMPLETED")


async def test_a_target_gets_no_more_calls_than_its_permits_and_starves_no_other(world: World) -> None:
    world.targets["tokenizer"]["permits"] = 2
    slow = [await world.run() for _ in range(6)]

    async with world.worker():
        with world.server.holding(TOKENIZE) as held:
            for _ in range(2):
                await held.arrived()
            other = await world.run(embed_only())
            await world.until_status(other, "COMPLETED")
            assert len(world.server.calls(TOKENIZE)) == 2
            assert await select_one(world.sql, "select count(*) from run where status = 'RUNNING'") == 2
            held.release()
        for job_id in slow:
            await world.until_status(job_id, "COMPLETED")


async def test_a_permit_is_not_held_while_a_move_waits_for_the_store(world: World) -> None:
    world.targets["tokenizer"]["permits"] = 1
    done = await world.run()
    await world.finish_steps(done, [("tokenize", {"tokens": ["b"]}), ("embed", {"vector": [2.0]})])
    # A wrong guess of the target: the run needs no call at all.
    await world.sql.execute("update run set next_target = 'tokenizer'")

    async with world.slow_outcomes() as outcome, world.worker() as worker:
        await until(lambda: worker.count("held_runs") == 1)
        other = await world.run()
        await until(lambda: len(world.calls_of(other, TOKENIZE)) == 1)
        assert (await world.row(done))["status"] == "RUNNING"
        outcome.set()
        for job_id in (done, other):
            await world.until_status(job_id, "COMPLETED")


async def test_a_later_call_that_gets_no_permit_hands_the_run_back_for_that_target(world: World) -> None:
    world.targets["embedder"]["permits"] = 1
    first, second = await world.run(), await world.run()

    async with world.worker() as worker:
        with world.server.holding(EMBED) as held:
            await held.arrived()
            await until(lambda: worker.count("moves_total", move="release", result="applied") == 1)
            rows = [await world.row(job_id) for job_id in (first, second)]
            waiting = next(row for row in rows if row["status"] == "QUEUED")
            assert (waiting["next_target"], waiting["attempt"], waiting["lost_leases"]) == ("embedder", 0, 0)
            held.release()
        for job_id in (first, second):
            await world.until_status(job_id, "COMPLETED")

    assert len(world.server.calls(TOKENIZE)) == 2
    assert len(world.server.calls(EMBED)) == 2


async def test_a_run_for_a_target_that_nobody_serves_waits_until_it_is_served(world: World) -> None:
    job_id = await world.run(target="nowhere")
    served = await world.run()

    async with world.worker():
        await world.until_status(served, "COMPLETED")
        assert (await world.row(job_id))["fence"] == 0
        world.targets["nowhere"] = world.targets["tokenizer"]
        (world.folder / "targets.yaml").write_text(json.dumps(world.targets))
        await world.until_status(job_id, "COMPLETED")


async def test_a_run_whose_next_target_is_not_served_here_is_handed_back_for_it(world: World) -> None:
    embedder = world.targets.pop("embedder")
    job_id = await world.run()

    async with world.worker("a:1"):
        await until(lambda: bool(world.server.calls(TOKENIZE)))
        row = await world.until_status(job_id, "QUEUED")
    assert (row["next_target"], row["attempt"]) == ("embedder", 0)

    world.targets["embedder"] = embedder
    async with world.worker("b:1"):
        await world.until_status(job_id, "COMPLETED")
    assert len(world.server.calls(TOKENIZE)) == 1


@pytest.mark.spec(76)
async def test_many_workers_take_each_run_once(world: World) -> None:
    job_ids = [await world.run() for _ in range(40)]

    async with world.worker("a:1"), world.worker("b:1"), world.worker("c:1"):
        for job_id in job_ids:
            await world.until_status(job_id, "COMPLETED")

    rows = await select(world.sql, "select fence, lost_leases from run")
    assert {(row["fence"], row["lost_leases"]) for row in rows} == {(1, 0)}
    assert len(world.server.calls(TOKENIZE)) == 40


async def test_a_claim_whose_answer_was_lost_leaves_no_run_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.worker(lease_seconds=300) as worker:
        await until(lambda: worker.driver.health().ready)
        claim = worker.leases.claim
        lost: list[HeldRun] = []

        async def claim_and_lose_the_answer(free: Mapping[str, int], *, suspects: bool = False) -> list[HeldRun]:
            runs = await claim(free, suspects=suspects)
            if runs and not lost:
                lost.extend(runs)
                raise StoreUnavailable("the connection is gone")
            return runs

        monkeypatch.setattr(worker.leases, "claim", claim_and_lose_the_answer)
        job_id = await world.run()
        row = await world.until_status(job_id, "COMPLETED")

    assert [run.job_id for run in lost] == [job_id]
    assert (row["fence"], row["lost_leases"]) == (2, 0)


async def runs_that_lost_two_leases(world: World, count: int) -> list[UUID]:
    runs = [await world.run() for _ in range(count)]
    await world.sql.execute("update run set lost_leases = 2")
    return runs


async def test_suspects_are_taken_one_at_a_time_while_others_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "POLL_SECONDS", 0.02)
    suspects = await runs_that_lost_two_leases(world, 3)

    async with world.worker() as worker:
        looks = CountedLooks(worker, monkeypatch)
        with world.server.holding(TOKENIZE) as held:
            await held.arrived()
            healthy = await world.run()
            await held.arrived()
            await looks.more(10)
            assert worker.count("held_runs") == 2
            running = "select count(*) from run where status = 'RUNNING' and lost_leases >= 2"
            assert await select_one(world.sql, running) == 1
            held.release()
        for job_id in [*suspects, healthy]:
            await world.until_status(job_id, "COMPLETED")


async def test_a_suspect_is_followed_by_the_next_as_soon_as_it_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most are only what was held beside the run that ends its workers."""
    monkeypatch.setattr(claims, "POLL_SECONDS", 3_600.0)
    suspects = await runs_that_lost_two_leases(world, 5)
    async with world.worker(lease_seconds=300):
        for job_id in suspects:
            await world.until_status(job_id, "COMPLETED")


async def test_a_cancel_that_overtakes_the_answer_of_a_claim_still_stops_the_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.worker(lease_seconds=300) as worker:
        await until(lambda: worker.driver.health().ready)
        claim = worker.leases.claim
        control = Control(world.database, on_committed=lambda payloads: None)

        async def claim_and_be_overtaken(free: Mapping[str, int], *, suspects: bool = False) -> list[HeldRun]:
            runs = await claim(free, suspects=suspects)
            for run in runs:
                await control.cancel(tenant_id="default", job_id=run.job_id, reason="not wanted")
                worker.listener.wake(f"cancelled:{run.job_id}")
            return runs

        monkeypatch.setattr(worker.leases, "claim", claim_and_be_overtaken)
        job_id = await world.run()
        await world.until_status(job_id, "CANCELLED")
        await until(lambda: worker.count("claims_total") == 1)
        await world.until_idle(worker)

    assert world.server.calls() == []
    assert await world.log(job_id) == ["ACCEPTED", "CANCELLED"]


async def test_due_runs_that_nobody_here_can_take_are_not_asked_for_over_and_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for target in ("tokenizer", "embedder"):
        await world.run(target=target, engine_level=99)

    async with world.worker(in_flight=1) as worker:
        looks = CountedLooks(worker, monkeypatch)
        await asyncio.sleep(0.5)
        assert looks.count <= 3


@pytest.mark.parametrize(
    ("room", "free", "expected"),
    [
        (10, {"a": 3, "b": 8}, {"a": 3, "b": 7}),
        (4, {"a": 8, "b": 8}, {"a": 2, "b": 2}),
        (5, {"a": 0, "b": 2}, {"b": 2}),
        (3, {"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}),
        (0, {"a": 1}, {}),
        (5, {}, {}),
    ],
)
def test_room_is_shared_evenly_and_within_the_permits(
    room: int, free: dict[str, int], expected: dict[str, int]
) -> None:
    assert dict(share(room, free)) == expected


def test_the_last_place_goes_to_every_target_in_turn() -> None:
    assert {next(iter(share(1, {"a": 1, "b": 8, "c": 8}))) for _ in range(200)} == {"a", "b", "c"}
