"""Looks at topics and tables all along, and tells every moment at which a promise did not hold."""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import psycopg
from confluent_kafka import KafkaException

from tests.acceptance.fleet import Fleet
from tests.store.samples import connected, select

_LOOK_SECONDS = 0.5

_OF_STATUS: Mapping[str, frozenset[int]] = {
    "QUEUED": frozenset({1, 2}),
    "RUNNING": frozenset({1, 2}),
    "COMPLETED": frozenset({4}),
    "FAILED": frozenset({5}),
    "DEAD": frozenset({6}),
}
"""The types of event that may be the last of a run in each status (P5)."""

# One statement and so one snapshot: a run, its log and its checkpoints as they stood at the same moment.
_RUNS = """
select r.job_id, r.status, r.fence, r.lease_owner, e.events, e.last_seq, e.last_type, e.ids, e.told, c.fences
  from run r
  join lateral (select count(*) as events, max(seq) as last_seq, (array_agg(type order by seq desc))[1] as last_type,
                       array_agg(event_id::text order by seq) as ids, count(*) filter (where type = 2) as told
                  from event where job_id = r.job_id) e on true
  join lateral (select coalesce(array_agg(fence order by step_index), '{}') as fences
                  from checkpoint where job_id = r.job_id) c on true
 where r.job_id = any (%(jobs)s)
"""


class Observer:
    """Samples until cancelled; `violations` says what it found, each once."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.samples = 0
        self.missed = 0
        self.violations: dict[str, None] = {}
        self._checked: set[tuple[int, int]] = set()
        self._owners: dict[tuple[UUID, int], str] = {}
        self._seen: dict[UUID, tuple[list[str], list[int]]] = {}
        self._settled: dict[UUID, str] = {}

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            try:
                await self.sample()
            except (psycopg.Error, KafkaException):  # what is to be looked at is away itself
                self.missed += 1
            await asyncio.sleep(_LOOK_SECONDS)

    async def sample(self) -> None:
        """Look once at everything that is not settled."""
        committed = await asyncio.to_thread(self._fleet.committed)
        jobs = [job for job in set(self._fleet.produced.values()) if job is not None and job not in self._settled]
        async with connected(self._fleet.database_url) as sql:
            await self._offsets(sql, committed)
            for row in await select(sql, _RUNS, {"jobs": jobs}):
                self._run(row)
        self._topic()
        self.samples += 1

    def _violated(self, promise: str, what: str) -> None:
        self.violations[f"{promise}: {what}"] = None

    async def _offsets(self, sql: Any, committed: Mapping[int, int]) -> None:
        """P1: below the committed offset every record has its row, or its dead letter."""
        produced = dict(self._fleet.produced)
        below = [at for at in produced if at not in self._checked and at[1] < committed.get(at[0], 0)]
        jobs = [produced[at] for at in below if produced[at] is not None]
        rows = {
            row["job_id"] for row in await select(sql, "select job_id from run where job_id = any (%(j)s)", {"j": jobs})
        }
        found = await select(
            sql,
            "select partition, record_offset from dead_letter where topic = %(topic)s",
            {"topic": self._fleet.topics.requests.name},
        )
        letters = {(row["partition"], row["record_offset"]) for row in found}
        for at in below:
            if produced[at] not in rows and at not in letters:
                self._violated("P1", f"offset {at} is committed and has neither row nor letter: {produced[at]}")
        self._checked.update(below)

    def _run(self, row: Mapping[str, Any]) -> None:
        job, fence, owner = row["job_id"], row["fence"], row["lease_owner"]
        if owner is not None and self._owners.setdefault((job, fence), owner) != owner:
            self._violated("P4", f"{job}: two workers under fence {fence}")
        fences = list(row["fences"])
        if fences != sorted(fences) or (fences and fences[-1] > fence):
            self._violated("P4", f"{job}: checkpoints under fences {fences}, run under {fence}")
        if row["last_type"] not in _OF_STATUS.get(row["status"], ()):
            self._violated("P5", f"{job}: {row['status']}, and the last event has type {row['last_type']}")
        if row["told"] != len(fences):
            self._violated("P5", f"{job}: {len(fences)} checkpoints, {row['told']} of them told")
        if row["events"] != row["last_seq"]:
            self._violated("P6", f"{job}: {row['events']} events, the last is number {row['last_seq']}")
        ids, before = list(row["ids"]), self._seen.get(job, ([], []))
        if ids[: len(before[0])] != before[0] or fences[: len(before[1])] != before[1]:
            self._violated("P4", f"{job}: what was written before has changed")
        self._seen[job] = (ids, fences)
        if row["status"] in ("COMPLETED", "FAILED", "DEAD"):
            self._settled[job] = row["status"]

    def _topic(self) -> None:
        """P6: of each job in order and without a gap, and the same bytes whenever an event comes again."""
        last: dict[str, int] = {}
        contents: dict[str, tuple[object, ...]] = {}
        for record in self._fleet.reader.told():
            event = record.event
            if contents.setdefault(event.event_id, record.content) != record.content:
                self._violated("P6", f"event {event.event_id} came again with other bytes")
            if event.seq > last.get(event.job_id, 0) + 1:
                self._violated("P6", f"{event.job_id}: event {event.seq} after {last.get(event.job_id, 0)}")
            last[event.job_id] = max(event.seq, last.get(event.job_id, 0))
