"""A worker is killed between a batch and its offsets, and between acknowledgement and mark: no record is lost."""

import json
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from streams.dev.registry.server import RegistryServer
from tests.acceptance.forked import fork_worker
from tests.acceptance.waiting import until
from tests.agents.bench import SESSION_SECONDS, IntakeBench, request_value
from tests.fixtures.kafka import Kafka
from tests.relay.bench import PARTITIONS, RelayBench, first_arrivals, id_of
from tests.store.samples import connected

pytestmark = pytest.mark.embedded


@pytest.fixture
async def relay_bench(kafka: Kafka, registry: RegistryServer, database_url: str) -> AsyncIterator[RelayBench]:
    async with connected(database_url) as sql:
        bench = RelayBench(kafka, registry, database_url, sql)
        await bench.prepare()
        yield bench
        await bench.close()


@pytest.mark.parametrize("point", ["intake.before_commit", "intake.after_commit", "intake.before_offset"])
async def test_records_of_an_intake_that_is_killed_become_a_run_or_a_letter_once(
    intake: IntakeBench, registry: RegistryServer, tmp_path: Path, point: str
) -> None:
    jobs = [uuid4() for _ in range(20)]
    intake.produce(*[request_value(job_id) for job_id in jobs[:10]], b"no request")
    intake.produce(*[request_value(job_id) for job_id in jobs[10:]])
    topics = {intake.topic: {"role": "requests", "partitions": 1}}
    for role in ("events", "answers"):
        topics[f"{intake.topic}.{role}"] = {"role": role, "partitions": 1}
    (tmp_path / "topics.yaml").write_text(json.dumps(topics))
    settings = {
        "database_url": intake.database_url,
        "kafka_bootstrap": intake.kafka.bootstrap,
        "schema_registry_url": registry.url,
        "topics_file": tmp_path / "topics.yaml",
        "group": intake.group,
        "kafka_session_timeout_seconds": SESSION_SECONDS[intake.kafka.kind],
        "worker_id": "worker",
        "roles": "intake",
    }
    with closing(fork_worker(settings, tmp_path, stop_at=point)) as victim:
        await victim.was_killed()
    assert bool(await intake.runs()) is (point != "intake.before_commit")
    assert intake.committed() < 0

    with closing(fork_worker(settings, tmp_path)):
        await intake.has_runs(len(jobs))
        await intake.has_committed(len(jobs) + 1)
    rows = await intake.rows("select run.job_id, count(*) from run join event using (job_id) group by run.job_id")
    assert {row["job_id"]: row["count"] for row in rows} == dict.fromkeys(jobs, 1)
    assert [letter["record_offset"] for letter in await intake.letters()] == [10]
    [queued] = await intake.rows("select count(*), count(letter_id) as letters from relay_queue")
    assert queued == {"count": len(jobs) + 1, "letters": 1}


@pytest.mark.parametrize("point", ["relay.acknowledged", "relay.before_mark", "relay.after_mark"])
async def test_events_of_a_relay_that_is_killed_arrive_in_order_and_are_repeated_to_the_byte(
    relay_bench: RelayBench, tmp_path: Path, point: str
) -> None:
    bench = relay_bench
    jobs = await bench.runs(6)
    await bench.more_events(jobs, [2, 3])
    declared = {"events": PARTITIONS, "requests": 1, "answers": 1}
    topics = {f"{bench.name}.{role}": {"role": role, "partitions": count} for role, count in declared.items()}
    (tmp_path / "topics.yaml").write_text(json.dumps(topics))
    settings = {
        "database_url": bench.url,
        "kafka_bootstrap": bench.kafka.bootstrap,
        "schema_registry_url": bench.registry.url,
        "topics_file": tmp_path / "topics.yaml",
        "worker_id": "worker",
        "roles": "relay",
    }
    with closing(fork_worker(settings, tmp_path, stop_at=point)) as victim:
        await victim.was_killed()
    left = await bench.queued()
    assert left < 18 if point == "relay.after_mark" else left == 18

    await bench.sql.execute("update shard set lease_until = now() where lease_owner is not null")
    with closing(fork_worker(settings, tmp_path)) as heir:

        async def nothing_is_left() -> bool:
            return await bench.queued() == 0

        await until(nothing_is_left, lambda: heir.log)
    outbox = await bench.outbox()
    records = await bench.published_until_all_ids({str(row["event_id"]) for row in outbox})
    arrived = first_arrivals(records)
    assert len(arrived) == len(outbox) == 18
    by_id = {id_of(record): record for record in arrived}
    assert all(
        (record.key, record.value) == (by_id[id_of(record)].key, by_id[id_of(record)].value) for record in records
    )
    assert len(records) <= len(outbox) + left
    for job_id in jobs:
        of_job = [event for event in bench.decoded(arrived) if event.job_id == str(job_id)]
        assert [event.seq for event in of_job] == [1, 2, 3]
