"""Transactional handlers: their writes and the step's checkpoint are one commit, made under the newest claim alone."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from store.handler_sessions import LoopSession, ThreadSession
from tests.driver.python_steps import asking, calling
from tests.driver.world import World, until
from tests.handlers.transactional import GATE
from tests.store.samples import select

HANDLERS = ("tests.handlers.transactional",)
KINDS = ("Write", "AsyncWrite")

kinds = pytest.mark.parametrize("method", KINDS)


@pytest.fixture(autouse=True)
def _gate() -> Iterator[None]:
    GATE.reset()
    yield
    GATE.open.set()


@pytest.fixture
async def tables(world: World) -> World:
    """A world with tables of the handlers' own."""
    await world.sql.execute("create table public.written (job_id uuid, note text)")
    await world.sql.execute("create table public.deferred (id integer unique deferrable initially deferred)")
    return world


async def run(world: World, method: str, does: str, **changes: int) -> UUID:
    return await world.run(calling(method, **changes), input=asking(does))


async def written(world: World, job_id: UUID) -> int:
    rows = await select(world.sql, "select count(*) as n from public.written where job_id = %(id)s", {"id": job_id})
    return int(rows[0]["n"])


async def until_none(world: World, query: str) -> None:
    async with asyncio.timeout(5):
        while await select(world.sql, query):  # noqa: ASYNC110  # another process changes it
            await asyncio.sleep(0.01)


@kinds
async def test_what_a_handler_writes_is_committed_with_its_checkpoint(tables: World, method: str) -> None:
    jobs = [await run(tables, method, "writes") for _ in range(10)]

    async with tables.worker(handlers=HANDLERS):
        for job_id in jobs:
            row = await tables.until_status(job_id, "COMPLETED")
            assert await written(tables, job_id) == 1
            assert row["result"]["text"] == "workflow-runs-handlers"
            assert await tables.log(job_id) == ["ACCEPTED", "STEP_CHECKPOINT work", "COMPLETED"]


@kinds
async def test_a_handler_that_does_not_succeed_has_written_nothing(tables: World, method: str) -> None:
    failing = {does: await run(tables, method, does) for does in ("raises", "rejects", "nothing")}
    retrying = await run(tables, method, "retries")

    async with tables.worker(handlers=HANDLERS):
        for job_id in failing.values():
            await tables.until_status(job_id, "FAILED")
        await tables.until_status(retrying, "DEAD")

    for job_id in (*failing.values(), retrying):
        assert await written(tables, job_id) == 0
        assert "STEP_CHECKPOINT work" not in await tables.log(job_id)


@kinds
async def test_a_response_that_cannot_be_kept_takes_the_writes_back_and_frees_the_connection(
    tables: World, method: str
) -> None:
    """There are four connections."""
    failing = [await run(tables, method, "unkeepable") for _ in range(5)]

    async with tables.worker(handlers=HANDLERS):
        for job_id in failing:
            row = await tables.until_status(job_id, "FAILED")
            assert "the response of work cannot be kept as JSON: /text" in row["error"]
            assert await written(tables, job_id) == 0
        await tables.until_status(await run(tables, method, "writes"), "COMPLETED")


@kinds
async def test_a_handler_cannot_end_its_transaction_by_itself(tables: World, method: str) -> None:
    errors = {
        "commits": "raised ProgrammingError",
        "commits in SQL": "WORKFLOW: the handler's transaction is IDLE",
        "begins anew": "WORKFLOW: the handler has ended its transaction by itself",
        "breaks": "WORKFLOW: the handler's transaction is INERROR",
        "broken at commit": "WORKFLOW: what the handler wrote cannot be committed: duplicate key",
    }
    jobs = {does: await run(tables, method, does) for does in errors}

    async with tables.worker(handlers=HANDLERS):
        for does, error in errors.items():
            row = await tables.until_status(jobs[does], "FAILED")
            assert error in row["error"], does
            assert row["checkpoints"] == [], does


@kinds
async def test_a_connection_comes_back_clean_of_what_a_handler_has_set(tables: World, method: str) -> None:
    first = await run(tables, method, "leaves settings")

    async with tables.worker(handlers=HANDLERS, in_flight=1):
        await tables.until_status(first, "COMPLETED")
        later = await run(tables, method, "writes")
        row = await tables.until_status(later, "COMPLETED")

    assert row["result"]["text"] == "workflow-runs-handlers"


@kinds
async def test_a_lost_lease_takes_the_handlers_writes_back(tables: World, method: str) -> None:
    job_id = await run(tables, method, "waits")

    async with tables.worker(handlers=HANDLERS, listening=False) as worker:
        await until(GATE.arrived.is_set)
        # The claim is another's by the time that the checkpoint is written, and nobody has told this worker.
        await tables.sql.execute("update run set fence = fence + 1, lease_owner = 'other:1'")
        GATE.open.set()
        await tables.until_idle(worker)
        assert worker.count("leases_lost_total") == 1

    assert await written(tables, job_id) == 0
    assert await tables.log(job_id) == ["ACCEPTED"]


@kinds
async def test_a_claim_of_a_database_that_was_put_back_takes_the_handlers_writes_back(
    tables: World, method: str
) -> None:
    job_id = await run(tables, method, "waits")

    async with tables.worker(handlers=HANDLERS) as worker:
        await until(GATE.arrived.is_set)
        worker.database.history.changes += 1
        GATE.open.set()
        await tables.until_idle(worker)
        assert worker.count("leases_lost_total") == 1

    assert await written(tables, job_id) == 0
    assert await tables.log(job_id) == ["ACCEPTED"]


@kinds
async def test_a_transaction_holds_no_lock_of_ours_while_its_handler_runs(tables: World, method: str) -> None:
    job_id = await run(tables, method, "waits")

    async with tables.worker(handlers=HANDLERS) as worker:
        await until(GATE.arrived.is_set)
        async with asyncio.timeout(5):
            await tables.control().cancel(tenant_id="default", job_id=job_id, reason="enough")
        GATE.open.set()
        await tables.until_idle(worker)

    assert (await tables.row(job_id))["status"] == "CANCELLED"
    assert await written(tables, job_id) == 0


@kinds
async def test_a_transaction_left_idle_is_ended_and_the_step_is_tried_again(tables: World, method: str) -> None:
    job_id = await run(tables, method, "idles")

    async with tables.worker(handlers=HANDLERS, backoff_base_seconds=300, handler_idle_seconds=1):
        row = await tables.until_error(job_id)

    assert row["last_error"].startswith("DEADLINE: the transaction was idle for 1 s")
    assert await written(tables, job_id) == 0


@kinds
async def test_the_transaction_of_a_handler_that_overruns_ends_with_the_call(tables: World, method: str) -> None:
    job_id = await run(tables, method, "waits", step_deadline_ms=300)
    held = (
        "select pid from pg_stat_activity where application_name = 'workflow-runs-handlers' and state like 'idle in%'"
    )

    async with tables.worker(handlers=HANDLERS, backoff_base_seconds=300):
        row = await tables.until_error(job_id)
        await until_none(tables, held)
        GATE.open.set()

    assert row["last_error"].startswith("DEADLINE: ")
    assert await written(tables, job_id) == 0


@kinds
@pytest.mark.parametrize("side", ["before_commit", "after_commit"])
async def test_a_connection_lost_at_the_commit_is_looked_after(
    tables: World, method: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the connection right before COMMIT, or has committed when its answer is lost."""
    lost: list[str] = []
    session: Any = ThreadSession if method == "Write" else LoopSession
    really = session.commit

    async def losing(self: Any) -> None:
        first = not lost
        lost.append(side)
        if first and side == "before_commit":
            self.cut()
        await really(self)
        if first and side == "after_commit":
            self.cut()
            raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(session, "commit", losing)
    job_id = await run(tables, method, "writes")

    async with tables.worker(handlers=HANDLERS):
        row = await tables.until_status(job_id, "COMPLETED")

    assert lost
    assert await written(tables, job_id) == 1
    assert await tables.log(job_id) == ["ACCEPTED", "STEP_CHECKPOINT work", "COMPLETED"]
    assert row["fence"] == (2 if side == "before_commit" else 1), (
        "the handler runs again only where nothing was written"
    )


@kinds
async def test_no_more_connections_are_used_than_there_may_be(tables: World, method: str) -> None:
    jobs = [await run(tables, method, "waits") for _ in range(6)]
    used = "select count(*) as n from pg_stat_activity where application_name = 'workflow-runs-handlers'"

    async with tables.worker(handlers=HANDLERS):
        await until(GATE.arrived.is_set)
        await asyncio.sleep(0.3)
        [row] = await select(tables.sql, used)
        assert row["n"] <= 4
        GATE.open.set()
        for job_id in jobs:
            finished = await tables.until_status(job_id, "COMPLETED")
            assert finished["attempt"] == 0

    for job_id in jobs:
        assert await written(tables, job_id) == 1
