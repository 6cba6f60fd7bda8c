"""D25: one event the broker will never take."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from schemas.errors import MoveRefused
from schemas.limits import ERROR
from store.committer import Committer
from store.leases import Leases
from store.moves import Moves
from store.records import HeldRun
from streams.dev.registry.server import RegistryServer
from tests.acceptance.commands import relay_command
from tests.acceptance.relay_stand import all_are_there, many_runs
from tests.fixtures.kafka import Kafka
from tests.relay.bench import RelayBench
from tests.store.samples import connected, select_one

LIMIT_BYTES = 100_000
LARGE = 300_000
OUT_SECONDS = 5.0


@pytest.fixture
async def bench(kafka: Kafka, registry: RegistryServer, database_url: str) -> AsyncIterator[RelayBench]:
    """A bench whose events topic takes 100 kB, on the broker and by its declaration."""
    async with connected(database_url) as sql:
        bench = RelayBench(kafka, registry, database_url, sql)
        bench.topics = bench.topics_with(max_message_bytes=LIMIT_BYTES)
        await bench.prepare()
        yield bench
        await bench.close()


@asynccontextmanager
async def holding(bench: RelayBench, count: int) -> AsyncIterator[tuple[Moves, list[HeldRun]]]:
    """That many claimed runs, and the moves of who holds them."""
    await bench.runs(count, target="large")
    committer = Committer(bench.database, on_committed=lambda _: None)
    committing = asyncio.create_task(committer.run())
    leases = Leases(bench.database, owner="worker/1-a", lease_seconds=300, engine_level=1)
    yield Moves(committer), await leases.claim({"large": count})
    await leases.close()
    await committer.close()
    await committing


async def large_ones(bench: RelayBench) -> tuple[UUID, UUID]:
    """A run with an error, and one with a verdict of 300 kB; the latter's event is one refusal from its last."""
    async with holding(bench, 2) as (moves, [failing, completing]):
        await moves.fail(failing, step=None, error="x" * LARGE)
        with pytest.raises(MoveRefused, match=f"verdict has {LARGE} characters"):
            await moves.complete(completing, result={}, verdict="v" * LARGE)
        await moves.complete(completing, result={}, verdict="completed")
    # No move can write it: what an older release, or a hand on the database, may have left behind.
    large = {"job": completing.job_id, "verdict": "v" * LARGE}
    await bench.sql.execute(b"update event set verdict = %(verdict)s where job_id = %(job)s and seq = 2", large)
    await bench.sql.execute(b"update relay_queue set attempts = 9 where job_id = %(job)s and seq = 2", large)
    await bench.more_events([completing.job_id], [3])
    return failing.job_id, completing.job_id


@pytest.mark.case("D25")
@pytest.mark.embedded
async def test_d25_events_over_the_brokers_limit_are_cut_to_fit_or_given_up_after_ten_tries_and_hold_up_nobody(
    bench: RelayBench,
) -> None:
    ordinary = await many_runs(bench, 25)
    cut, refused = await large_ones(bench)
    ordinary += await many_runs(bench, 25)

    async with bench.relay() as running:
        async with asyncio.timeout(OUT_SECONDS):
            await bench.until_queued_at_most(2)
        rows = {(row["job_id"], row["seq"]): row for row in await bench.outbox()}
        assert {rows[job_id, 1]["status"] for job_id in ordinary} == {"PUBLISHED"}
        assert rows[cut, 2]["status"] == "PUBLISHED"
        # The later events of the same run wait behind it, and have failed nothing themselves.
        waiting = [(rows[refused, seq]["status"], rows[refused, seq]["attempts"]) for seq in (1, 2, 3)]
        assert waiting == [("PUBLISHED", 0), ("FAILED", 10), ("PENDING", 0)]
        health = running.relay.health()
        assert (health.ready, health.degraded) == (True, True)

        [listed] = (await relay_command(bench.url, "list"))["failing"]
        assert (listed["status"], listed["jobId"], listed["seq"]) == ("FAILED", str(refused), 2)
        assert f"verdict has {LARGE} characters" in listed["lastError"]
        await bench.sql.execute(b"update event set verdict = 'mended' where job_id = %(job)s", {"job": refused})
        await relay_command(bench.url, "resend", str(refused))
        await bench.until_published()
        assert running.failures() == 1

    records = await all_are_there(bench)
    assert len(records) == 50 + 2 + 3
    assert all(len(record.value or b"") < LIMIT_BYTES for record in records)
    events = bench.decoded(records)
    assert [event.seq for event in events if event.job_id == str(refused)] == [1, 2, 3]
    [told] = [event.error for event in events if event.job_id == str(cut) and event.seq == 2]
    assert len(told) == ERROR
    assert told.endswith(f"[cut, {LARGE} characters]")
    whole = await select_one(bench.sql, "select error from workflow_run where job_id = %(job)s", {"job": cut})
    assert whole == "x" * LARGE
