"""State and event are one: when the event cannot be written, nothing is."""

from collections.abc import Awaitable, Callable

import psycopg
import pytest

from schemas.errors import StoreUnavailable
from tests.store.given import HOLDER_MOVES, Given
from tests.store.samples import Sql, counts, submission

ANNOUNCED = [move for move in HOLDER_MOVES if move not in ("item", "retry", "release")]


class Refusal:
    """Has every insert into one table refused, from `begin` to `end`."""

    def __init__(self, sql: Sql, table: str) -> None:
        self._sql = sql
        self._table = table

    async def begin(self) -> None:
        await self._sql.execute(
            b"create function refuse() returns trigger language plpgsql as"
            b" $$ begin raise exception 'refused' using errcode = 'insufficient_privilege'; end $$"
        )
        trigger = f"create trigger refuse before insert on {self._table} for each row execute function refuse()"
        await self._sql.execute(trigger.encode())

    async def end(self) -> None:
        await self._sql.execute(b"drop function refuse() cascade")


@pytest.fixture(params=["event", "relay_queue"])
def refusal(sql: Sql, request: pytest.FixtureRequest) -> Refusal:
    return Refusal(sql, request.param)


@pytest.mark.spec(82)
@pytest.mark.parametrize("move", ANNOUNCED)
async def test_a_holders_move_rolls_back_with_its_event(given: Given, refusal: Refusal, move: str) -> None:
    run = await given.held()
    before = await given.everything(run.job_id)
    await refusal.begin()
    with pytest.raises(StoreUnavailable, match="refused"):
        await HOLDER_MOVES[move](given.moves, run)
    assert await given.everything(run.job_id) == before
    await refusal.end()
    await HOLDER_MOVES[move](given.moves, run)
    assert len(await given.log(run.job_id)) == 2


@pytest.mark.spec(82)
@pytest.mark.parametrize("move", ["answer", "reject_answer", "cancel"])
async def test_a_move_from_outside_rolls_back_with_its_event(given: Given, refusal: Refusal, move: str) -> None:
    run = await given.parked()
    before = await given.everything(run.job_id)
    await refusal.begin()
    moves: dict[str, Callable[[], Awaitable[object]]] = {
        "answer": lambda: given.answer(run, {}),
        "reject_answer": lambda: given.reject_answer(run),
        "cancel": lambda: given.cancel(run),
    }
    with pytest.raises(StoreUnavailable, match="refused"):
        await moves[move]()
    assert await given.everything(run.job_id) == before


@pytest.mark.spec(82)
async def test_an_expiry_at_the_ceiling_rolls_back_with_its_event(given: Given, sql: Sql, refusal: Refusal) -> None:
    run = await given.held()
    await sql.execute(b"update run set lost_leases = 2")
    await given.expire(run.job_id)
    before = await given.everything(run.job_id)
    await refusal.begin()
    with pytest.raises(StoreUnavailable, match="refused"):
        await given.upkeep.sweep()
    assert await given.everything(run.job_id) == before


@pytest.mark.spec(82)
@pytest.mark.parametrize("error", [None, "WORKFLOW: unknown"])
async def test_a_submit_rolls_back_with_its_event(given: Given, sql: Sql, refusal: Refusal, error: str | None) -> None:
    await refusal.begin()
    with pytest.raises((StoreUnavailable, psycopg.Error), match="refused"):
        await given.submits.submit(submission(error=error, target=None if error else "x"))
    assert await counts(sql) == {}
