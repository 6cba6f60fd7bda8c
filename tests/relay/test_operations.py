"""What an operator does to a relay at work: what failed is sent again, given up, or sent anew from the log."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import pytest

from schemas.errors import Conflict
from store.control import Control
from store.notify import Notifier
from store.relay_operations import RelayOperations
from store.republish import Republish
from tests.fixtures.eventually import eventually
from tests.kafka.reading import Read
from tests.relay.bench import RelayBench, id_of
from tests.store.samples import letter, select, select_one

LARGE = b"update event set detail = to_jsonb(repeat('x', 4000))::text where job_id = %(job)s and seq = %(seq)s"
NARROW = 2_000
AT_ONCE_SECONDS = 5.0
"""Well below what a blocked or failing row waits by itself."""


@pytest.fixture
def operations(bench: RelayBench) -> RelayOperations:
    """An operator in another process: the wake-up goes through the database."""
    return RelayOperations(bench.database, actor="cli:me", on_committed=Notifier(bench.database).notify)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten tries within a second, instead of two minutes."""
    monkeypatch.setattr("streams.relay.publish.FIRST_RETRY_SECONDS", 0.02)
    monkeypatch.setattr("streams.relay.publish.LONGEST_RETRY_SECONDS", 0.05)


async def a_large_event(bench: RelayBench, *, attempts: int = 10, events: int = 2) -> UUID:
    """A run whose first event is larger than a narrow topic takes, and has failed that often."""
    [job] = await bench.runs(1)
    await bench.more_events([job], range(2, events + 1))
    await bench.sql.execute(LARGE, {"job": job, "seq": 1})
    await bench.sql.execute(
        b"update relay_queue set attempts = %(n)s, last_error = 'too-large', next_try_at = now() + interval '1 hour'"
        b" where job_id = %(job)s and seq = 1",
        {"job": job, "n": attempts},
    )
    return job


def contents(records: list[Read]) -> set[tuple[object, ...]]:
    return {(record.key, record.value, tuple(record.headers), record.timestamp_ms) for record in records}


@pytest.mark.parametrize("attempts", [4, 10], ids=["failing", "blocked"])
async def test_what_is_sent_again_goes_out_at_once(
    bench: RelayBench, operations: RelayOperations, attempts: int
) -> None:
    job = await a_large_event(bench, attempts=attempts)
    async with bench.relay(lease_seconds=60) as running:
        [other] = await bench.runs(1)
        await bench.published_until_all_ids({str(row["event_id"]) for row in await bench.outbox_of(other)})
        assert await bench.queued() == 2

        assert await operations.resend(job) == [1]
        await bench.until_published(seconds=AT_ONCE_SECONDS)
        await eventually(lambda: running.relay.health().ready)

    events = [event for event in bench.decoded(await bench.published(3)) if event.job_id == str(job)]
    assert [event.seq for event in events] == [1, 2]


@pytest.mark.spec(95)
async def test_ten_poison_failures_are_failed_and_out_of_the_drain_and_an_outage_never_is(
    pausable: RelayBench, impatient: None
) -> None:
    narrow = pausable.topics_with(max_message_bytes=NARROW)
    job = await a_large_event(pausable, attempts=0)
    await pausable.sql.execute(b"update relay_queue set next_try_at = null")
    async with pausable.relay(topics=narrow, lease_seconds=30) as running:
        await eventually(lambda: running.failures() == 10)
        await eventually(lambda: "1 blocked keys" in running.relay.health().detail)
        poison, behind = await pausable.outbox_of(job)
        assert (poison["status"], poison["attempts"]) == ("FAILED", 10)
        assert "too-large" in poison["last_error"]
        assert (behind["status"], behind["attempts"]) == ("PENDING", 0)

        with pausable.kafka.outage():
            others = await pausable.runs(3)
            await asyncio.sleep(2)  # seconds of outage: of poison, more than ten tries
            statuses = [(await pausable.outbox_of(other))[0] for other in others]
            assert [(row["status"], row["attempts"]) for row in statuses] == [("PENDING", 0)] * 3
        await asyncio.wait_for(pausable.until_queued_at_most(2), 20)
        assert running.failures() == 10


@pytest.mark.spec(93)
@pytest.mark.parametrize("ended", ["born-failed", "cancelled"])
async def test_a_long_error_is_whole_in_the_row_and_cut_in_the_event_on_the_topic(
    bench: RelayBench, operations: RelayOperations, ended: str
) -> None:
    error = "WORKFLOW: " + "ä" * 9_990
    [job] = await bench.runs(1, **({"error": error, "target": None} if ended == "born-failed" else {}))
    if ended == "cancelled":
        control = Control(bench.database, on_committed=Notifier(bench.database).notify)
        await control.cancel(tenant_id="default", job_id=job, reason=error)

    async with bench.relay():
        await bench.until_published()

    event = bench.decoded(await bench.published(1 if ended == "born-failed" else 2))[-1]
    assert event.error.startswith("WORKFLOW: ä")
    assert event.error.endswith("[cut, 10000 characters]")
    assert len(event.error) <= 4_000
    assert await select_one(bench.sql, "select error from workflow_run") == error
    assert (await operations.outbox(job)).error == error


async def test_a_skipped_event_is_told_reduced_in_its_place_and_frees_its_run(
    bench: RelayBench, operations: RelayOperations, impatient: None
) -> None:
    """Refused until it is blocked while other runs go on, then given up, then sent anew from the log: one content."""
    narrow = bench.topics_with(max_message_bytes=NARROW)
    job = await a_large_event(bench, attempts=0, events=3)
    await bench.sql.execute(b"update relay_queue set next_try_at = null")
    async with bench.relay("a:1", topics=narrow) as one, bench.relay("b:1", topics=narrow) as two:
        others = await bench.runs(8)
        await asyncio.wait_for(bench.until_queued_at_most(3), 20)
        assert {(await bench.outbox_of(other))[0]["status"] for other in others} == {"PUBLISHED"}
        await eventually(lambda: one.failures() + two.failures() == 10)

        await operations.skip(job, 1, reason="no topic takes it")
        await bench.until_published(seconds=AT_ONCE_SECONDS)
        with pytest.raises(Conflict):
            await operations.skip(job, 1, reason="twice")
        republish = Republish(bench.database, actor="me", on_committed=Notifier(bench.database).notify)
        await republish.of_run(job)
        await bench.until_published()

    records = [record for record in await bench.published(14) if record.key == str(job).encode()]
    events = bench.decoded(records)
    assert [event.seq for event in events] == [1, 2, 3, 1, 2, 3]
    assert len(contents(records)) == 3
    assert events[0].detail == '{"skipped":"no topic takes it"}'
    assert events[0].event_id == str((await bench.outbox_of(job))[0]["event_id"])


async def test_a_dead_letter_is_sent_again_or_given_up(bench: RelayBench, operations: RelayOperations) -> None:
    source = bench.topics.requests.name
    await bench.letters(letter(1, topic=source), letter(2, topic=source, value=b"large"))
    first, second = [
        row["letter_id"] for row in await select(bench.sql, "select letter_id from dead_letter order by 1")
    ]
    await bench.sql.execute(b"update relay_queue set attempts = 10")
    async with bench.relay(lease_seconds=60) as running:
        await eventually(lambda: "2 blocked keys" in running.relay.health().detail)
        assert await operations.resend_letter(first)
        await operations.skip_letter(second, reason="nobody wants it")
        await bench.until_published(seconds=AT_ONCE_SECONDS)

    records = {dict(r.headers)["__connect.errors.offset"]: r for r in await bench.published(2, f"{source}.dlq")}
    assert records[b"1"].value == b"\0\1\2"
    assert records[b"2"].value is None
    assert b"nobody wants it" in (dict(records[b"2"].headers)["__connect.errors.exception.message"] or b"")
    kept = await select(bench.sql, "select value, state from dead_letter order by letter_id")
    assert kept == [{"value": b"\0\1\2", "state": "SENT"}, {"value": b"large", "state": "SENT"}]


async def test_events_sent_anew_from_the_log_are_the_same_in_every_byte_and_in_order(bench: RelayBench) -> None:
    jobs = await bench.runs(5, labels={"a": "b"}, trace_context="00-4bf9-00f0-01")
    await bench.more_events(jobs, range(2, 6))
    republish = Republish(
        bench.database, actor="me", on_committed=Notifier(bench.database).notify, runs_per_page=2, most_queued=8
    )
    async with bench.relay("a:1"), bench.relay("b:1"):
        await bench.until_published()
        async for _ in republish.all_since(datetime(2020, 1, 1, tzinfo=UTC)):
            pass
        await bench.until_published()

    records = await bench.published(50)
    assert len(records) == 50
    assert len(contents(records)) == len({id_of(record) for record in records}) == 25
    for job in jobs:
        of_job = [record for record in records if record.key == str(job).encode()]
        assert [event.seq for event in bench.decoded(of_job)] == [1, 2, 3, 4, 5] * 2
