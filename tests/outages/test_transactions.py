"""No transaction stays open while something outside is waited for, and what is settled slows no claim."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median

import psycopg
import pytest
from psycopg.rows import dict_row

from store.database import Database
from store.leases import Leases
from tests.acceptance.fleet import EMBED_TEXT_LOG, WORKFLOW
from tests.driver.stories import EMBED
from tests.outages.stand import KAFKA_SECONDS, STORE_SECONDS, Stand, submit

pytestmark = pytest.mark.asyncio(loop_scope="package")

WAIT_SECONDS = 10.0
SETTLED = 200_000
CLAIMED = 8
CLAIMS = 5

_IDLE = """
select application_name, query, now() - state_change as since from pg_stat_activity
 where state like 'idle in transaction%' and now() - state_change > interval '1 s'
"""

_FILL = f"""
insert into run (job_id, status, shard, engine_level, max_attempts, steps_total, fingerprint, tenant_id, workflow_name,
                 completed_at)
select gen_random_uuid(), 'COMPLETED', n % 16, 1, 3, 2, '\\x00', 'bulk', 'embed-text', now()
  from generate_series(1, {SETTLED}) n;
insert into run (job_id, status, shard, engine_level, max_attempts, steps_total, fingerprint, tenant_id, workflow_name,
                 definition_hash, next_target)
select gen_random_uuid(), 'QUEUED', n % 16, 1, 3, 2, '\\x00', 'bulk', 'embed-text', '\\x00', 'nobody'
  from generate_series(1, {CLAIMED * CLAIMS}) n
"""

# Whoever sits in an open transaction for two seconds is thrown out by the server, which ends its work visibly.
_TIME_OUT = """
do $$ begin execute format('alter role %I in database %I set idle_in_transaction_session_timeout = %L',
                           current_user, current_database(), '2s'); end $$
"""
_NO_TIME_OUT = """
do $$ begin execute format('alter role %I in database %I reset idle_in_transaction_session_timeout',
                           current_user, current_database()); end $$
"""
_RECONNECT = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'workflow-runs%'"


class Sampler:
    """Looks five times a second for sessions that sit in an open transaction."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.samples = 0
        self.found: list[dict[str, object]] = []

    async def run(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True, row_factory=dict_row) as sql:
            while True:
                self.found += await (await sql.execute(_IDLE)).fetchall()
                self.samples += 1
                await asyncio.sleep(0.2)


@asynccontextmanager
async def two_seconds_at_most(url: str) -> AsyncIterator[None]:
    """Let every session of the role, that of a worker at work too, be one that the server ends when it idles so."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as sql:
        await sql.execute(_TIME_OUT)
        try:
            await sql.execute(_RECONNECT)
            yield
        finally:
            await sql.execute(_NO_TIME_OUT)


@pytest.mark.case("D11")
async def test_d11_no_transaction_is_open_while_a_call_and_a_broker_are_waited_for(stand: Stand) -> None:
    worker = await stand.worker()
    sampler = Sampler(stand.postgres.url())
    async with two_seconds_at_most(stand.postgres.url()):
        await worker.ready()
        sampling = asyncio.create_task(sampler.run())
        async with stand.watching(worker):
            with stand.fleet.server.holding(EMBED) as held:
                jobs = await stand.fleet.produce(20)
                await held.arrived()
                with stand.black_hole(stand.to_kafka):
                    # Their events are a batch that the broker does not answer.
                    jobs += [await submit(worker, WORKFLOW, {"text": "silence"}) for _ in range(20)]
                    await asyncio.sleep(WAIT_SECONDS)  # seconds without an answer of anybody
                held.release()
            await stand.until_finished(jobs, runs=STORE_SECONDS, events=KAFKA_SECONDS)
        sampling.cancel()
    assert sampler.samples > WAIT_SECONDS
    assert sampler.found == []


@pytest.mark.case("D11")
async def test_d11_a_claim_among_200_000_settled_runs_takes_less_than_ten_milliseconds(stand: Stand) -> None:
    await stand.worker()
    fleet = stand.fleet
    async with await psycopg.AsyncConnection.connect(
        stand.postgres.url(), autocommit=True, options="-c search_path=workflow_runs"
    ) as sql:
        await sql.execute(_FILL.encode())
        try:
            await sql.execute("analyze run")
            seconds = await claimed(stand)
        finally:
            await sql.execute("delete from run where tenant_id = 'bulk'")
            await sql.execute("vacuum analyze run")
    assert median(seconds) < 0.01
    await fleet.until_told(await fleet.produce(2), EMBED_TEXT_LOG)


async def claimed(stand: Stand) -> list[float]:
    """How long each look for what is due takes, with the claim of what it finds."""
    database = Database(stand.postgres.url(), pool_size=1)
    await database.open()
    leases = Leases(database, owner="timed:1", lease_seconds=60, engine_level=1)
    seconds = []
    try:
        for _ in range(CLAIMS):
            began = time.monotonic()
            await leases.targets()
            found = await leases.claim({"nobody": CLAIMED})
            seconds.append(time.monotonic() - began)
            assert len(found) == CLAIMED
    finally:
        await leases.close()
        await database.close()
    return seconds
