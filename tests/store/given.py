"""Runs in the state a test begins with, and what became of them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from schemas.errors import LeaseLost
from schemas.events import EventType, Status
from store.answers import AnswerResult, Answers
from store.control import CancelResult, Control
from store.database import Database
from store.due import Due
from store.leases import Leases
from store.moves import Moves
from store.records import HeldRun, ItemStatus, StoredCheckpoint, StoredItem
from store.submit import Submits
from store.upkeep import Upkeep
from tests.store.samples import Sql, Woken, select, submission

TARGET = "tokenizer"
LEASE_SECONDS = 300.0


@dataclass
class Given:
    """The store's parts on one database, and shortcuts to states."""

    database: Database
    submits: Submits
    moves: Moves
    answers: Answers
    control: Control
    upkeep: Upkeep
    woken: Woken
    sql: Sql
    opened: list[Leases] = field(default_factory=list)

    def leases(self, owner: str, *, lease_seconds: float = LEASE_SECONDS, engine_level: int = 1) -> Leases:
        leases = Leases(self.database, owner=owner, lease_seconds=lease_seconds, engine_level=engine_level)
        self.opened.append(leases)
        return leases

    @property
    def due(self) -> Due:
        return Due(self.database, on_committed=self.woken)

    async def close(self) -> None:
        for leases in self.opened:
            await leases.close()

    async def run(self, **changes: Any) -> UUID:
        """A queued run."""
        changes.setdefault("target", TARGET)
        return (await self.submits.submit(submission(**changes))).job_id

    async def held(self, *, owner: str = "worker-a:1", **changes: Any) -> HeldRun:
        """A run of a target of its own, claimed."""
        [run] = await self.many_held(1, owner=owner, **changes)
        return run

    async def many_held(self, count: int, *, owner: str = "worker-a:1", **changes: Any) -> list[HeldRun]:
        target = changes.pop("target", None) or f"target-{uuid4().hex}"
        for _ in range(count):
            await self.run(target=target, **changes)
        held = await self.leases(owner).claim({target: count})
        assert len(held) == count
        return held

    async def parked(self, step: str = "review", **changes: Any) -> HeldRun:
        """A run that waits for an answer to *step*; its claim is over."""
        run = await self.held(**changes)
        await self.moves.park(run, step=step, step_index=0, request={"text": "a"}, resume_target="after")
        return run

    async def pass_time(self, *job_ids: UUID, hours: int = 1) -> None:
        """Let the times at which something happens to these runs by itself have come that much earlier."""
        query = b"""
            update run
               set due_at = due_at - %(by)s::interval, answer_by = answer_by - %(by)s::interval,
                   deadline_at = deadline_at - %(by)s::interval
             where job_id = any (%(ids)s)"""
        await self.sql.execute(query, {"ids": list(job_ids), "by": f"{hours} hours"})

    async def asleep(self, step: str = "pause", *, after_ms: int = 60_000, **changes: Any) -> HeldRun:
        """A run that waits for a time; its claim is over."""
        run = await self.held(**changes)
        await self.moves.park_until(run, step=step, resume_target="after", after_ms=after_ms)
        return run

    async def expire(self, *job_ids: UUID) -> None:
        """Let the leases of these runs have run out a second ago."""
        query = b"update run set lease_until = now() - interval '1 s' where job_id = any (%(ids)s)"
        await self.sql.execute(query, {"ids": list(job_ids)})

    async def reclaimed(self, run: HeldRun, *, owner: str = "worker-b:1") -> HeldRun:
        """The same run, swept from its holder and claimed by another."""
        await self.expire(run.job_id)
        swept = await self.upkeep.sweep()
        assert swept.expired == 1
        [taken] = await self.leases(owner).claim({run.claim.target: 1})
        assert taken.job_id == run.job_id
        return taken

    async def answer(
        self, run: HeldRun, response: object, *, step: str = "review", tenant_id: str = "default"
    ) -> AnswerResult:
        return await self.answers.answer(tenant_id=tenant_id, job_id=run.job_id, step=step, response=response)

    async def reject_answer(self, run: HeldRun, *, step: str = "review", tenant_id: str = "default") -> AnswerResult:
        error = "VALIDATION: broken"
        return await self.answers.reject_answer(tenant_id=tenant_id, job_id=run.job_id, step=step, error=error)

    async def cancel(self, run: HeldRun, *, tenant_id: str = "default") -> CancelResult:
        return await self.control.cancel(tenant_id=tenant_id, job_id=run.job_id, reason="no longer needed")

    async def row(self, job_id: UUID) -> dict[str, Any]:
        [row] = await select(self.sql, "select * from workflow_run where job_id = %(id)s", {"id": job_id})
        return row

    async def log(self, job_id: UUID) -> list[str]:
        """The run's events, by seq, having made sure that the log and the relay's queue have no gap and agree."""
        query = "select seq, type, step from event where job_id = %(id)s order by seq"
        events = await select(self.sql, query, {"id": job_id})
        seqs = [event["seq"] for event in events]
        assert seqs == list(range(1, len(seqs) + 1))
        queued = "select seq from relay_queue where job_id = %(id)s order by id"
        assert [row["seq"] for row in await select(self.sql, queued, {"id": job_id})] == seqs
        row = await self.row(job_id)
        assert row["seq"] == len(seqs)
        return [" ".join(filter(None, (EventType(event["type"]).name, event["step"]))) for event in events]

    async def ignoring_a_lost_lease(self, move: Awaitable[None]) -> bool:
        """Whether the move was made."""
        try:
            await move
        except LeaseLost:
            return False
        return True

    async def everything(self, job_id: UUID) -> list[object]:
        """All that the tables hold of a run, to show that nothing changed."""
        found: list[object] = []
        for table in ("run", "run_outcome", "checkpoint", "item", "event", "record", "relay_queue"):
            query = f"select * from {table} where job_id = %(id)s order by 1, 2"
            found.append(await select(self.sql, query, {"id": job_id}))
        return found


def worker(run: HeldRun) -> str:
    return run.claim.lease_owner


def finished(step_index: int = 0, step: str = "tokenize", response: object = None) -> StoredCheckpoint:
    return StoredCheckpoint(
        step_index, step, skipped=False, response={"n": step_index} if response is None else response
    )


def done_item(item_index: int = 0, response: object = None) -> StoredItem:
    told = {"n": item_index} if response is None else response
    return StoredItem(item_index, ItemStatus.COMPLETED, attempt=0, input_hash="00ff", response=told)


HOLDER_MOVES: dict[str, Callable[[Moves, HeldRun], Awaitable[None]]] = {
    "item": lambda moves, run: moves.items(run, step="tokenize", items=[done_item()], new_items=2),
    "checkpoint": lambda moves, run: moves.checkpoint(run, finished()),
    "park": lambda moves, run: moves.park(run, step="review", step_index=0, request={}, resume_target="x"),
    "retry": lambda moves, run: moves.retry(run, step="tokenize", target="x", error="UNAVAILABLE", delay_seconds=5),
    "release": lambda moves, run: moves.release(run, target="x"),
    "complete": lambda moves, run: moves.complete(run, result={"ok": True}, verdict="1 steps, output x"),
    "fail": lambda moves, run: moves.fail(run, step="tokenize", error="VALIDATION: no"),
    "give_up": lambda moves, run: moves.give_up(run, step="tokenize", error="GRPC: UNAVAILABLE"),
}
"""Every move of a holder, as a worker makes it."""

STATUS_AFTER: dict[str, Status] = {
    "item": Status.RUNNING,
    "checkpoint": Status.RUNNING,
    "park": Status.WAITING,
    "retry": Status.QUEUED,
    "release": Status.QUEUED,
    "complete": Status.COMPLETED,
    "fail": Status.FAILED,
    "give_up": Status.DEAD,
}
