"""Submitting: one run per id, whatever races and comes again."""

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from schemas.errors import ContentRefused, StoreUnavailable
from schemas.events import Status
from store.database import Database
from store.records import Submission, SubmitOutcome, Submitted
from store.submit import IntakeBatch, Submits
from tests.store.samples import (
    GROUP,
    Sql,
    Woken,
    connected,
    counts,
    letter,
    position,
    record,
    select,
    select_one,
    submission,
    until_blocked,
)


async def insert_run(sql: Sql, request: Submission) -> None:
    """What another worker's submit of the same request writes to `run`."""
    await sql.execute(
        b"""insert into run (job_id, status, next_target, shard, engine_level, max_attempts, steps_total, fingerprint,
                             tenant_id, workflow_name)
            values (%(job_id)s, 'QUEUED', 'tokenizer', 0, 1, 3, 3, %(fingerprint)s, %(tenant_id)s, 'embed-text')""",
        {"job_id": request.job_id, "fingerprint": request.fingerprint, "tenant_id": request.tenant_id},
    )


async def remember_pruned(sql: Sql, request: Submission) -> None:
    """What a prune writes before it deletes the run."""
    await sql.execute(
        b"""insert into pruned_run (job_id, tenant_id, fingerprint, status, settled_at)
            values (%(job_id)s, %(tenant_id)s, %(fingerprint)s, 'COMPLETED', now())""",
        {"job_id": request.job_id, "tenant_id": request.tenant_id, "fingerprint": request.fingerprint},
    )


@pytest.mark.spec(55)
async def test_a_submit_is_a_queued_row_with_its_accepted_event_in_one_transaction(submits: Submits, sql: Sql) -> None:
    request = submission(
        input='{"n": 12345678901234567890}',
        labels={"team": "search"},
        business_key="order-7",
        trace_context="00-trace",
        record_time=datetime(2026, 11, 30, tzinfo=UTC),
    )

    submitted = await submits.submit(request)

    assert submitted == Submitted(request.job_id, SubmitOutcome.CREATED, Status.QUEUED)
    [row] = await select(
        sql,
        """select status, attempt, attempt_step, max_attempts, steps_total, fence, seq, next_target, tenant_id,
                  workflow_name, business_key, definition_hash, fingerprint, run_after = created_at as is_due,
                  updated_at = created_at as is_new, shard = get_byte(uuid_send(job_id), 15) %% 16 as is_in_its_shard,
                  run.xmin::text as written_by
             from run where job_id = %(job_id)s""",
        {"job_id": request.job_id},
    )
    written_by = row.pop("written_by")
    assert row == {
        "status": "QUEUED",
        "attempt": 0,
        "attempt_step": None,
        "max_attempts": 3,
        "steps_total": 3,
        "fence": 0,
        "seq": 1,
        "next_target": "tokenizer",
        "tenant_id": "default",
        "workflow_name": "embed-text",
        "business_key": "order-7",
        "definition_hash": request.definition_hash,
        "fingerprint": request.fingerprint,
        "is_due": True,
        "is_new": True,
        "is_in_its_shard": True,
    }
    assert await select(
        sql, "select input::text, labels, trace_context, record_time, xmin::text as by from run_input"
    ) == [
        {
            "input": '{"n": 12345678901234567890}',
            "labels": {"team": "search"},
            "trace_context": "00-trace",
            "record_time": request.record_time,
            "by": written_by,
        }
    ]
    assert await select(
        sql,
        """select job_id, seq, type, event.attempt, event.status, step, error, occurred_at = created_at as at_once,
                  event.xmin::text as by
             from event join run using (job_id, seq)""",
    ) == [
        {
            "job_id": request.job_id,
            "seq": 1,
            "type": 1,
            "attempt": 0,
            "status": "QUEUED",
            "step": None,
            "error": None,
            "at_once": True,
            "by": written_by,
        }
    ]
    assert await select(
        sql,
        """select kind, seq, relay_queue.shard = run.shard as beside_it, relay_queue.xmin::text as by
             from relay_queue join run using (job_id, seq)""",
    ) == [{"kind": "event", "seq": 1, "beside_it": True, "by": written_by}]


@pytest.mark.spec(56)
async def test_the_same_id_again_finds_the_run_and_other_content_is_refused(submits: Submits, sql: Sql) -> None:
    request = submission()
    await submits.submit(request)
    await sql.execute(b"update run set status = 'CANCELLED', next_target = null, completed_at = now()")

    again = await submits.submit(request)
    other = await submits.submit(submission(request.job_id, input='{"text": "b"}'))

    assert again == Submitted(request.job_id, SubmitOutcome.EXISTING, Status.CANCELLED)
    assert other == Submitted(request.job_id, SubmitOutcome.CONFLICT, None)
    assert await counts(sql) == {"run": 1, "run_input": 1, "event": 1, "relay_queue": 1}
    assert await select(sql, "select fingerprint, input from run join run_input using (job_id)") == [
        {"fingerprint": request.fingerprint, "input": {"text": "a"}}
    ]


async def test_another_tenants_id_answers_like_other_content_and_tells_nothing(submits: Submits) -> None:
    request = submission()
    await submits.submit(request)

    foreign = await submits.submit(submission(request.job_id, tenant_id="stranger"))

    assert foreign == Submitted(request.job_id, SubmitOutcome.CONFLICT, None)


async def test_a_refused_request_is_a_failed_run_with_its_reason(submits: Submits, sql: Sql) -> None:
    error = "WORKFLOW: " + "x" * 10_000
    request = submission(definition_hash=None, target=None, error=error, failed_step="embed")

    first, again = await submits.submit(request), await submits.submit(request)

    assert first == Submitted(request.job_id, SubmitOutcome.CREATED, Status.FAILED)
    assert again == Submitted(request.job_id, SubmitOutcome.EXISTING, Status.FAILED)
    assert await counts(sql) == {"run": 1, "run_input": 1, "run_outcome": 1, "event": 1, "relay_queue": 1}
    [row] = await select(sql, "select status, completed_at = created_at as at_once, input, error from workflow_run")
    assert row == {"status": "FAILED", "at_once": True, "input": {"text": "a"}, "error": error}
    [event] = await select(sql, "select type, seq, attempt, status, step, verdict, error from event")
    cut = event.pop("error")
    assert event == {"type": 5, "seq": 1, "attempt": 0, "status": "FAILED", "step": "embed", "verdict": None}
    assert len(cut) == 4000
    assert cut.startswith("WORKFLOW: xxx")


async def test_an_error_that_postgres_cannot_hold_is_made_readable(submits: Submits, sql: Sql) -> None:
    await submits.submit(submission(target=None, error="WORKFLOW: a\0b\ud800", failed_step=""))

    assert await select(sql, "select error from run_outcome") == [{"error": "WORKFLOW: a�b�"}]


@pytest.mark.parametrize("text", ['{"text": "a\\u0000"}', '{"text": ', '{"text": "\\ud800"}', '{"a": 1}, {"b": 2}'])
async def test_content_that_postgres_cannot_hold_is_refused_and_nothing_is_written(
    submits: Submits, sql: Sql, text: str
) -> None:
    with pytest.raises(ContentRefused):
        await submits.batch(
            IntakeBatch(GROUP, [record(submission()), record(submission(input=text))], (), [position(2)])
        )

    assert await counts(sql) == {}


async def test_an_event_that_could_not_be_published_is_refused_before_it_is_written(submits: Submits, sql: Sql) -> None:
    with pytest.raises(ContentRefused, match="workflow_name has 201 characters"):
        await submits.submit(submission(workflow_name="w" * 201))

    assert await counts(sql) == {}


async def test_a_lost_insert_race_finds_the_winner(submits: Submits, sql: Sql, database_url: str) -> None:
    request = submission()
    async with connected(database_url) as other:
        async with other.transaction():
            await insert_run(other, request)
            losing = asyncio.create_task(submits.submit(request))
            await until_blocked(sql, losing)

        assert await losing == Submitted(request.job_id, SubmitOutcome.EXISTING, Status.QUEUED)
    assert await counts(sql) == {"run": 1}


async def test_an_insert_race_against_a_transaction_that_rolls_back_is_won(
    submits: Submits, sql: Sql, database_url: str
) -> None:
    request = submission()
    async with connected(database_url) as other:
        async with other.transaction(force_rollback=True):
            await insert_run(other, request)
            winning = asyncio.create_task(submits.submit(request))
            await until_blocked(sql, winning)

        assert (await winning).outcome is SubmitOutcome.CREATED
    assert await counts(sql) == {"run": 1, "run_input": 1, "event": 1, "relay_queue": 1}


async def test_many_submits_of_one_id_at_once_make_one_run(submits: Submits, sql: Sql) -> None:
    request = submission()

    answers = await asyncio.gather(*(submits.submit(request) for _ in range(20)))

    assert sorted(answer.outcome for answer in answers) == [SubmitOutcome.CREATED] + [SubmitOutcome.EXISTING] * 19
    assert await counts(sql) == {"run": 1, "run_input": 1, "event": 1, "relay_queue": 1}


async def test_batches_lock_the_ids_they_share_in_one_order_whatever_each_refuses(
    database: Database, submits: Submits, sql: Sql, database_url: str
) -> None:
    """All of them wait for the smallest id, and none of them has locked another one meanwhile."""
    ids = sorted(uuid4() for _ in range(20))
    held, go = asyncio.Event(), asyncio.Event()

    async def hold(point: str) -> None:
        if point == "submit.before_commit":
            held.set()
            await go.wait()

    def batch(number: int) -> IntakeBatch:
        fails = [index % 2 == number % 2 for index in range(len(ids))]
        requests = [
            submission(job_id, error="WORKFLOW: no", target=None) if failed else submission(job_id)
            for job_id, failed in zip(ids, fails, strict=True)
        ]
        return IntakeBatch(GROUP, [record(request) for request in requests])

    holder = Submits(database, on_committed=Woken(), commit_point=hold)
    first = asyncio.create_task(holder.submit(submission(ids[0])))
    await held.wait()
    batches = [asyncio.create_task(submits.batch(batch(number))) for number in range(4)]
    await until_blocked(sql, *batches)
    for job_id in ids[1:]:
        assert (await submits.submit(submission(job_id))).outcome is SubmitOutcome.CREATED
    go.set()
    await asyncio.gather(first, *batches)

    assert await select_one(sql, "select count(*) from run") == 20
    assert await select_one(sql, "select count(*) from event") == 20


async def test_a_pruned_runs_id_stays_taken(submits: Submits, sql: Sql) -> None:
    request = submission()
    await remember_pruned(sql, request)

    same = await submits.submit(request)
    other = await submits.submit(submission(request.job_id, input="{}"))
    foreign = await submits.submit(submission(request.job_id, tenant_id="stranger"))

    assert same == Submitted(request.job_id, SubmitOutcome.PRUNED, Status.COMPLETED)
    assert other == foreign == Submitted(request.job_id, SubmitOutcome.CONFLICT, None)
    assert await counts(sql) == {}


@pytest.mark.parametrize("error", [None, "WORKFLOW: unknown workflow"])
async def test_a_prune_that_commits_while_the_insert_waits_is_seen(
    submits: Submits, sql: Sql, database_url: str, error: str | None
) -> None:
    """The insert finds neither the run, which is gone when it gets its turn, nor the memory of it, committed later."""
    request = submission(error=error, target=None if error else "tokenizer")
    async with connected(database_url) as other:
        async with other.transaction():
            await insert_run(other, request)
            await remember_pruned(other, request)
            waiting = asyncio.create_task(submits.submit(request))
            await until_blocked(sql, waiting)
            await other.execute(b"delete from run")

        assert await waiting == Submitted(request.job_id, SubmitOutcome.PRUNED, Status.COMPLETED)
    assert await counts(sql) == {}


async def test_a_run_that_is_being_pruned_is_still_found(submits: Submits, sql: Sql) -> None:
    request = submission()
    await submits.submit(request)
    await remember_pruned(sql, request)

    assert await submits.submit(request) == Submitted(request.job_id, SubmitOutcome.EXISTING, Status.QUEUED)


async def test_what_is_known_of_an_id_is_told_without_writing(submits: Submits, sql: Sql) -> None:
    live, gone, new = submission(), submission(), submission()
    await submits.submit(live)
    await remember_pruned(sql, gone)
    before = await counts(sql)

    async def known(request: Submission, tenant_id: str = "default", fingerprint: bytes | None = None) -> object:
        return await submits.known(request.job_id, tenant_id, fingerprint or request.fingerprint)

    assert await known(new) is None
    assert await known(live) == Submitted(live.job_id, SubmitOutcome.EXISTING, Status.QUEUED)
    assert await known(live, fingerprint=b"other") == Submitted(live.job_id, SubmitOutcome.CONFLICT, None)
    assert await known(live, "stranger") == Submitted(live.job_id, SubmitOutcome.CONFLICT, None)
    assert await known(gone) == Submitted(gone.job_id, SubmitOutcome.PRUNED, Status.COMPLETED)
    assert await known(gone, "stranger") == Submitted(gone.job_id, SubmitOutcome.CONFLICT, None)
    assert await counts(sql) == before


async def test_commits_wake_who_can_go_on(submits: Submits, woken: Woken) -> None:
    request = submission()
    await submits.submit(request)
    await submits.submit(request)
    await submits.submit(submission(error="WORKFLOW: no", target=None))
    await submits.batch(IntakeBatch(GROUP, (), [letter(1)]))
    await submits.batch(IntakeBatch(GROUP, (), [letter(1)]))

    assert woken.payloads == [["ready", "relay"], ["relay"], ["relay"]]


async def test_a_store_that_is_away_says_so(database_url: str, woken: Woken) -> None:
    closed = Submits(Database(database_url), on_committed=woken)

    with pytest.raises(StoreUnavailable):
        await closed.submit(submission())
    assert woken.payloads == []


async def test_a_constraint_that_stands_against_us_is_the_stores_fault_and_not_the_records(
    submits: Submits, sql: Sql
) -> None:
    await sql.execute(b"alter table run add constraint drifted check (workflow_name <> 'embed-text')")

    with pytest.raises(StoreUnavailable, match="drifted"):
        await submits.submit(submission())


async def test_the_points_around_a_commit_are_told(database: Database, sql: Sql) -> None:
    told: list[tuple[str, int]] = []

    async def commit_point(point: str) -> None:
        told.append((point, await select_one(sql, "select count(*) from run")))

    submits = Submits(database, on_committed=Woken(), commit_point=commit_point)
    await submits.submit(submission())
    await submits.batch(IntakeBatch(GROUP, [record(submission())]))

    assert told == [
        ("submit.before_commit", 0),
        ("submit.after_commit", 1),
        ("intake.before_commit", 1),
        ("intake.after_commit", 2),
    ]
