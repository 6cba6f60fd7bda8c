"""The network takes the answer to a commit: whoever asks again finds what was written, and nothing is written twice."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from schemas.errors import StoreUnavailable
from store.database import Database
from store.leases import Leases
from store.records import SubmitOutcome
from store.submit import IntakeBatch, Submits
from streams.dev.faultproxy import Direction, FaultProxy
from streams.dev.postgres import EmbeddedPostgres
from tests.store.samples import GROUP, Sql, Woken, counts, letter, position, record, select, select_one, submission

both_ways = pytest.mark.parametrize("landed", [True, False], ids=["after it landed", "before it landed"])


@pytest.fixture
def proxy(postgres_server: EmbeddedPostgres) -> Iterator[FaultProxy]:
    with FaultProxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
async def far(database_url: str, postgres_server: EmbeddedPostgres, proxy: FaultProxy) -> AsyncIterator[Database]:
    """The database behind a network that breaks; a connection is open already."""
    database = Database(database_url.replace(f":{postgres_server.port}/", f":{proxy.port}/"), pool_size=1)
    await database.open()
    await database.ping()
    yield database
    await database.close()


class CutAt:
    """A commit point where the network breaks, once: at once, or when what was sent is committed."""

    def __init__(self, point: str, proxy: FaultProxy, sql: Sql, has_landed: str, *, landed: bool) -> None:
        self._point = point
        self._proxy = proxy
        self._sql = sql
        self._has_landed = has_landed
        self._landed = landed
        self.armed = True
        self._cutting: asyncio.Task[None] | None = None

    async def __call__(self, point: str) -> None:
        if point != self._point or not self.armed:
            return
        self.armed = False
        self._cutting = asyncio.create_task(self._cut())
        if self._landed:
            self._proxy.silence(Direction.TO_CLIENT)
        else:
            await self._cutting

    async def _cut(self) -> None:
        while self._landed and not await select_one(self._sql, self._has_landed):
            assert self._proxy.open_connections, "nothing is on its way"
            await asyncio.sleep(0.005)
        self._proxy.reset_all()
        self._proxy.heal()


@both_ways
async def test_a_submit_is_one_run(far: Database, proxy: FaultProxy, sql: Sql, landed: bool) -> None:
    cut = CutAt("submit.before_commit", proxy, sql, "select count(*) from run", landed=landed)
    submits = Submits(far, on_committed=Woken(), commit_point=cut)
    request = submission()
    with pytest.raises(StoreUnavailable):
        await submits.submit(request)
    assert bool(await counts(sql)) is landed

    again = await submits.submit(request)
    assert again.outcome is (SubmitOutcome.EXISTING if landed else SubmitOutcome.CREATED)
    assert await counts(sql) == {"run": 1, "run_input": 1, "event": 1, "relay_queue": 1}


@both_ways
async def test_a_batch_is_written_once(far: Database, proxy: FaultProxy, sql: Sql, landed: bool) -> None:
    cut = CutAt("intake.before_commit", proxy, sql, "select count(*) from intake_position", landed=landed)
    submits = Submits(far, on_committed=Woken(), commit_point=cut)
    first = submission()
    other = submission(first.job_id, input='{"text": "other"}')
    batch = IntakeBatch(GROUP, [record(first), record(other, 1)], [letter(2)], [position(3)])
    with pytest.raises(StoreUnavailable):
        await submits.batch(batch)
    assert bool(await counts(sql)) is landed

    result = await submits.batch(batch)
    outcomes = [submitted.outcome for submitted in result.submitted]
    assert outcomes == [SubmitOutcome.EXISTING if landed else SubmitOutcome.CREATED, SubmitOutcome.CONFLICT]
    assert result.letters == (0 if landed else 2)
    rows = {"run": 1, "run_input": 1, "event": 1, "relay_queue": 3, "dead_letter": 2, "intake_position": 1}
    assert await counts(sql) == rows
    assert await select_one(sql, "select next_offset from intake_position") == 3


async def test_a_claim_that_nobody_knows_of_is_handed_back(
    far: Database, proxy: FaultProxy, sql: Sql, submits: Submits
) -> None:
    cut = CutAt("claim.before_commit", proxy, sql, "select count(*) from run where status = 'RUNNING'", landed=True)
    leases = Leases(far, owner="worker-a:1", lease_seconds=30, engine_level=1, commit_point=cut)
    cut.armed = False
    assert await leases.claim({"x": 1}) == []  # the statement is prepared now: the next claim is one round trip
    cut.armed = True
    await submits.submit(submission(target="x"))
    with pytest.raises(StoreUnavailable):
        await leases.claim({"x": 1})
    assert await leases.release_unheld(()) == 1

    [held] = await leases.claim({"x": 1})
    assert held.fence == 2
    assert await select(sql, "select attempt, lost_leases from run") == [{"attempt": 0, "lost_leases": 0}]
