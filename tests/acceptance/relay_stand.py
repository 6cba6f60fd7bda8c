"""A store with events to publish, a broker, a registry, and relays as processes of their own between them."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from tests.acceptance.forked import Forked, fork_worker
from tests.acceptance.processes import count_of
from tests.acceptance.waiting import until
from tests.kafka.reading import Read
from tests.relay.bench import PARTITIONS, RelayBench, id_of


@dataclass
class RelayStand:
    """The bench, and relay processes on it, which are gone at the end."""

    bench: RelayBench
    folder: Path
    relays: list[Forked] = field(default_factory=list)

    def start(self, name: str, *, stop_at: str | None = None) -> Forked:
        """Start a relay process and do not wait for it; at the commit point *stop_at* it kills itself."""
        declared = {"events": PARTITIONS, "requests": 1, "answers": 1}
        topics = {f"{self.bench.name}.{role}": {"role": role, "partitions": count} for role, count in declared.items()}
        file = self.folder / "topics.yaml"
        file.write_text(json.dumps(topics))
        settings = {
            "database_url": self.bench.url,
            "kafka_bootstrap": self.bench.kafka.bootstrap,
            "schema_registry_url": self.bench.registry.url,
            "topics_file": file,
            "worker_id": name,
            "roles": "relay",
        }
        self.relays.append(fork_worker(settings, self.folder, stop_at=stop_at))
        return self.relays[-1]

    async def kill(self, relay: Forked) -> None:
        """End *relay* by SIGKILL, wherever it stands."""
        relay.process.kill()
        await relay.was_killed()

    async def until_in_flight(self, relay: Forked, count: int) -> None:
        """Wait until *relay* has handed that many records to its Kafka client, and none is acknowledged."""
        seen = 0.0

        async def so() -> bool:
            nonlocal seen
            seen = await count_of(relay.health_url, "relay_in_flight")
            return seen == count

        await until(so, lambda: f"{seen} of {count} in flight: {relay.log}")

    async def let_leases_end(self, name: str) -> None:
        """Let the time pass that the leases of a relay which is gone still hold."""
        owner = {"owner": f"{name}/%"}
        await self.bench.sql.execute(b"update shard set lease_until = now() where lease_owner like %(owner)s", owner)
        await self.bench.sql.execute(b"update relay_worker set live_until = now() where owner like %(owner)s", owner)

    async def until_published(self) -> None:
        """Wait until the queue is empty."""
        left = -1

        async def empty() -> bool:
            nonlocal left
            left = await self.bench.queued()
            return left == 0

        await until(empty, lambda: f"{left} rows are left: {self.relays[-1].log}")

    async def close(self) -> None:
        for relay in self.relays:
            relay.close()
        await self.bench.close()


async def none_is_gone_that_is_not_there(bench: RelayBench) -> None:
    """Wait until the topic has every event whose row has left the queue."""
    await bench.published_until_all_ids({str(row["event_id"]) for row in await bench.outbox() if is_published(row)})


async def all_are_there(bench: RelayBench) -> list[Read]:
    """Every record, once the topic has each event; each record must be an event's, under its job's key."""
    outbox = {str(row["event_id"]): row for row in await bench.outbox()}
    assert all(is_published(row) for row in outbox.values())
    records = await bench.published_until_all_ids(set(outbox))
    assert {id_of(record) for record in records} == set(outbox)
    assert all(record.key == outbox[id_of(record)]["kafka_key"].encode() for record in records)
    return records


def is_published(row: dict[str, object]) -> bool:
    return row["status"] == "PUBLISHED"


def copies(records: Sequence[Read]) -> dict[str, list[Read]]:
    """The records of each event id."""
    found: defaultdict[str, list[Read]] = defaultdict(list)
    for record in records:
        found[id_of(record)].append(record)
    return dict(found)


async def many_runs(bench: RelayBench, count: int) -> list[UUID]:
    """Submit that many runs at once, each with its first event; nobody is woken."""
    rows = await (
        await bench.sql.execute(
            b"""
            with made as (
              insert into run (job_id, tenant_id, workflow_name, fingerprint, definition_hash, engine_level,
                               steps_total, max_attempts, status, next_target, shard)
              select job_id, 'default', 'embed-text', '\\x01', '\\x01', 1, 3, 3, 'QUEUED', 'tokenizer',
                     get_byte(uuid_send(job_id), 15) %% 16
                from (select gen_random_uuid() as job_id from generate_series(1, %(count)s)) ids
              returning job_id, shard
            ), logged as (
              insert into event (job_id, seq, event_id, attempt, type, status)
              select job_id, 1, new_event_id(), 0, 1, 'QUEUED' from made
            ), queued as (
              insert into relay_queue (shard, job_id, seq) select shard, job_id, 1 from made
            )
            select job_id from made""",
            {"count": count},
        )
    ).fetchall()
    return [row["job_id"] for row in rows]
