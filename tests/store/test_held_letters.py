"""Held letters become exactly one run, or final letters, and never both."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from schemas.errors import ContentRefused, InputInvalid
from schemas.events import Status
from store.database import Database
from store.dead_letters import DeadLetters, HeldLetter, LetterState, OpenLetters
from store.records import DeadLetter, SubmitOutcome, Submitted
from store.submit import IntakeBatch, Submits
from tests.store.samples import (
    GROUP,
    TOPIC,
    Sql,
    Woken,
    counts,
    letter,
    position,
    select,
    select_one,
    submission,
    until_blocked,
)


def held(offset: int = 0, seconds: float = 600.0, **changes: Any) -> DeadLetter:
    return letter(offset, code="unknown-schema", reason="never heard of it", held_seconds=seconds, **changes)


@pytest.fixture
def letters(database: Database, woken: Woken) -> DeadLetters:
    return DeadLetters(database, on_committed=woken)


async def the_held(letters: DeadLetters, **changes: Any) -> list[HeldLetter]:
    return list(await letters.held(TOPIC, limit=100, **changes))


async def test_a_held_letter_moves_its_position_and_does_not_go_to_the_relay(
    submits: Submits, letters: DeadLetters, sql: Sql
) -> None:
    batch = IntakeBatch(GROUP, (), [held(0), letter(1)], [position(2)])
    assert (await submits.batch(batch)).letters == 2
    assert (await submits.batch(batch)).letters == 0
    assert await counts(sql) == {"dead_letter": 2, "relay_queue": 1, "intake_position": 1}
    [found] = await the_held(letters)
    assert found.letter == letter(0, code="unknown-schema", reason="never heard of it")
    assert 590 < found.seconds_left <= 600
    assert await letters.open() == OpenLetters(held=1, ready=1)


async def test_a_held_letter_whose_record_becomes_a_run_is_gone(
    submits: Submits, letters: DeadLetters, sql: Sql, woken: Woken
) -> None:
    await submits.batch(IntakeBatch(GROUP, (), [held()]))
    [found] = await the_held(letters)
    request = submission()
    woken.payloads.clear()

    submitted = await submits.submit_held(found.letter_id, request)

    assert submitted == Submitted(request.job_id, SubmitOutcome.CREATED, Status.QUEUED)
    assert await counts(sql) == {"run": 1, "run_input": 1, "event": 1, "relay_queue": 1}
    assert woken.payloads == [["ready", "relay"]]
    assert await submits.submit_held(found.letter_id, request) is None
    assert await select_one(sql, "select count(*) from run") == 1


async def test_a_held_letter_whose_run_is_there_already_is_gone_too(
    submits: Submits, letters: DeadLetters, sql: Sql
) -> None:
    request = submission()
    await submits.submit(request)
    await submits.batch(IntakeBatch(GROUP, (), [held()]))
    [found] = await the_held(letters)
    submitted = await submits.submit_held(found.letter_id, request)
    assert submitted is not None
    assert submitted.outcome is SubmitOutcome.EXISTING
    assert await select_one(sql, "select count(*) from dead_letter") == 0
    assert await select_one(sql, "select count(*) from event") == 1


@pytest.mark.parametrize("code", ["conflict", "too-old"])
async def test_a_held_letter_that_cannot_be_a_run_is_final_with_the_reason(
    submits: Submits, letters: DeadLetters, sql: Sql, woken: Woken, code: str
) -> None:
    now = await select_one(sql, "select now()")
    request = submission(record_time=now - timedelta(days=40))
    if code == "conflict":
        await submits.submit(submission(request.job_id, input="{}"))
    else:
        await sql.execute(b"update upkeep set forgotten_before = now() - interval '30 d'")
    await submits.batch(IntakeBatch(GROUP, (), [held()]))
    [found] = await the_held(letters)
    before = await select_one(sql, "select count(*) from run")
    woken.payloads.clear()

    submitted = await submits.submit_held(found.letter_id, request)

    assert submitted is not None
    assert submitted.outcome in (SubmitOutcome.CONFLICT, SubmitOutcome.TOO_OLD)
    [row] = await select(sql, "select state, code, reason, held_until from dead_letter")
    assert (row["state"], row["code"], row["held_until"]) == ("READY", code, None)
    assert str(request.job_id) in row["reason"]
    assert await select_one(sql, "select count(*) from relay_queue where kind = 'letter'") == 1
    assert await select_one(sql, "select count(*) from run") == before
    assert woken.payloads == [["relay"]]


async def test_of_two_workers_with_one_held_letter_only_one_decides(
    submits: Submits, letters: DeadLetters, database: Database, sql: Sql
) -> None:
    await submits.batch(IntakeBatch(GROUP, (), [held()]))
    [found] = await the_held(letters)
    request = submission()
    looked, go_on = asyncio.Event(), asyncio.Event()

    async def stop_before_commit(point: str) -> None:
        if point == "held.before_commit":
            looked.set()
            await go_on.wait()

    slow = asyncio.create_task(
        Submits(database, on_committed=Woken(), commit_point=stop_before_commit).submit_held(found.letter_id, request)
    )
    await looked.wait()
    async with asyncio.timeout(2):  # without SKIP LOCKED this would hang
        assert await submits.submit_held(found.letter_id, request) is None
    refusing = asyncio.create_task(letters.refuse(found.letter_id, code="unknown-schema", reason="still"))
    await until_blocked(sql, refusing)
    go_on.set()
    assert (await slow) == Submitted(request.job_id, SubmitOutcome.CREATED, Status.QUEUED)
    assert await refusing is False
    assert await counts(sql) == {"run": 1, "run_input": 1, "event": 1, "relay_queue": 1}


async def test_a_letter_that_was_made_final_meanwhile_makes_no_run(
    submits: Submits, letters: DeadLetters, sql: Sql
) -> None:
    await submits.batch(IntakeBatch(GROUP, (), [held()]))
    [found] = await the_held(letters)
    refused = [await letters.refuse(found.letter_id, code="unknown-schema", reason="still") for _ in range(2)]
    assert refused == [True, False]
    assert await submits.submit_held(found.letter_id, submission()) is None
    assert await counts(sql) == {"dead_letter": 1, "relay_queue": 1}


async def test_what_postgres_cannot_hold_leaves_the_letter_held(
    submits: Submits, letters: DeadLetters, sql: Sql
) -> None:
    await submits.batch(IntakeBatch(GROUP, (), [held()]))
    [found] = await the_held(letters)
    with pytest.raises(ContentRefused):
        await submits.submit_held(found.letter_id, submission(input='{"text": "\\u0000"}'))
    assert await counts(sql) == {"dead_letter": 1}
    assert len(await the_held(letters)) == 1


async def test_held_letters_come_by_the_end_of_their_time_in_pages_of_one_topic(
    submits: Submits, letters: DeadLetters
) -> None:
    ends = [30.0, 10.0, 10.0, 20.0, 0.0]
    batch = [held(offset, seconds) for offset, seconds in enumerate(ends)]
    await submits.batch(IntakeBatch(GROUP, (), [*batch, held(9, topic="another"), letter(10)]))
    offsets: list[int] = []
    after: HeldLetter | None = None
    while page := await letters.held(TOPIC, after=after, limit=2):
        offsets += [each.letter.identity.offset for each in page]
        after = page[-1]
    assert offsets == [4, 1, 2, 3, 0]
    [over, *rest] = await the_held(letters)
    assert over.seconds_left <= 0 < min(each.seconds_left for each in rest)


async def test_letters_are_listed_newest_first_in_pages_and_by_filter(submits: Submits, letters: DeadLetters) -> None:
    many = [letter(n, code="bad-json" if n % 2 else "job-id") for n in range(5)]
    await submits.batch(IntakeBatch(GROUP, (), [*many, held(5), letter(6, topic="answers", code="other")]))

    first = await letters.list(limit=4)
    second = await letters.list(limit=4, cursor=first.next_cursor)
    assert [each.record_offset for each in (*first.letters, *second.letters)] == [6, 5, 4, 3, 2, 1, 0]
    assert second.next_cursor is None

    async def offsets(**changes: Any) -> list[int]:
        return [each.record_offset for each in (await letters.list(**changes)).letters]

    assert await offsets(code="bad-json") == [3, 1]
    assert await offsets(topic="answers") == [6]
    assert await offsets(state=LetterState.HELD) == [5]
    assert await offsets(state=LetterState.SENT) == []
    for cursor in ("", "x", "-1", "1" * 5_000):
        with pytest.raises(InputInvalid):
            await letters.list(cursor=cursor)


async def test_one_letter_is_shown_whole_and_an_unknown_one_is_none(submits: Submits, letters: DeadLetters) -> None:
    odd = letter(3, key=None, value=b"\xff\0", headers=(("a", b"\1"), ("a", None)))
    await submits.batch(IntakeBatch(GROUP, (), [odd]))
    stored = await letters.get(await letters.newest_id())
    assert stored is not None
    assert (stored.letter, stored.state, stored.replayed_at) == (odd, LetterState.READY, None)
    for unknown in (-1, 0, 10**6, 2**70):
        assert await letters.get(unknown) is None
