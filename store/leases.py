"""Leases: how runs come to a worker, stay with it and go back."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final, cast
from uuid import UUID

from schemas.errors import StoreUnavailable
from store.database import CommitPoint, Connection, Database, Row, passes, run_statement
from store.low_water import LowWater
from store.records import ClaimedRun, HeldRun, StoredCheckpoint

_SAFETY: Final = 0.9  # of a lease: what its holder trusts


class Leases:
    """Claims for one worker process.

    Runs whose last two claims expired, one after the other, are suspects: they may be what kills their workers. They
    are claimed one by one and only when asked for, so that they take no others down.
    """

    def __init__(
        self,
        database: Database,
        *,
        owner: str,
        lease_seconds: float,
        engine_level: int,
        commit_point: CommitPoint = passes,
    ) -> None:
        """Hold nothing yet.

        Args:
            owner: Names this process in the leases; no other process, and no earlier start of this one, may have it.
            lease_seconds: How long a claim holds without a renewal.
            engine_level: What this program understands; runs of newer definitions are left to newer workers.
            commit_point: Awaited at `claim.before_commit` and `claim.after_commit`.
        """
        self._database = database
        self._owner = owner
        self._lease = timedelta(seconds=lease_seconds)
        self._engine_level = engine_level
        self._commit_point = commit_point
        self._low_water = LowWater()
        self._claiming = asyncio.Lock()
        self._renewing = asyncio.Lock()
        self._renewals: Connection | None = None
        database.history.on_changed(self._look_at_everything)

    @property
    def owner(self) -> str:
        """Whose name stands in the leases."""
        return self._owner

    async def targets(self) -> dict[str, float]:
        """Return what queued runs wait for, and in how many seconds the first of each target is due: 0 or less is now.

        Costs one look-up per target, however many runs wait. Runs of newer definitions count too.

        Raises:
            StoreUnavailable: ask again.
        """
        rows = await self._database.rows("leases/targets", {"now": None})
        return {cast(str, row["target"]): cast(float, row["due_in"]) for row in rows}

    async def claim(self, free: Mapping[str, int], *, suspects: bool = False) -> list[HeldRun]:
        """Claim due runs, longest due first.

        Args:
            free: How many runs of each target to take, at most. Targets that are missing are left alone.
            suspects: Take one run, of any of the targets, whose last two claims expired; without it, none of those.

        Returns:
            The runs, held from now on. Empty means that nothing is due for these targets.

        Raises:
            StoreUnavailable: whether runs were claimed is unknown. Call `release_unheld` before the next claim.
        """
        wanted = {target: count for target, count in free.items() if count > 0}
        if not wanted:
            return []
        history = self._database.history
        async with self._claiming:
            sent_at, changes = time.monotonic(), history.changes
            await self._commit_point("claim.before_commit")
            rows = await (self._claim_suspect(wanted) if suspects else self._claim_due(wanted))
            await self._commit_point("claim.after_commit")
            checkpoints = await self._checkpoints(rows)
            if history.changes != changes:
                raise StoreUnavailable("the database was put back or failed over while runs were claimed")
        held_until = self._held_until(sent_at)
        return [
            HeldRun(_claimed(row, checkpoints), seq=cast(int, row["seq"]), held_until=held_until, history=changes)
            for row in rows
        ]

    async def renew(self, held: Sequence[HeldRun]) -> list[HeldRun]:
        """Renew these claims, on a connection of their own, and return those that are lost.

        A claim that one of our own moves has ended, or is about to, is not lost.

        Raises:
            StoreUnavailable: nothing is known; each claim stands until its `held_until`. Try again.
        """
        if not held:
            return []
        async with self._renewing:
            sent_at = time.monotonic()
            params = {"claims": _claims(self._valid(held)), "owner": self._owner, "lease": self._lease, "now": None}
            rows = await self._run_renewal(params)
        renewed = {(row["job_id"], row["fence"]) for row in rows}
        lost = []
        for run in held:
            if (run.job_id, run.fence) in renewed:
                run.held_until = self._held_until(sent_at)
            elif not run.leaving:
                lost.append(run)
        return lost

    async def release_unheld(self, held: Sequence[HeldRun]) -> int:
        """Hand back what stands under this owner's name beside *held*: runs of a claim whose answer was lost.

        Waits for such a claim to end. Returns how many runs went back; they count no lost lease. Claims from before a
        change of the database's history are not held, whatever *held* says.

        Raises:
            StoreUnavailable: call again; what was handed back stays so.
        """
        async with self._claiming, self._database.transaction() as transaction:
            await transaction.rows("leases/hold_claims", {"owner": self._owner})
            params = {"owner": self._owner, "claims": _claims(self._valid(held))}
            owned = await transaction.rows("leases/pick_owned", params)
            if not owned:
                return 0
            released = {"owner": self._owner, "job_ids": [row["job_id"] for row in owned], "now": None}
            return len(await transaction.rows("leases/release_owned", released))

    async def release_all(self) -> int:
        """Hand back everything that stands under this owner's name, as every way out of the process must.

        Raises:
            StoreUnavailable: call again, or leave it to the leases to expire.
        """
        return await self.release_unheld(())

    async def close(self) -> None:
        """Close the connection for renewals."""
        connection, self._renewals = self._renewals, None
        if connection is not None:
            await connection.close()

    def _look_at_everything(self) -> None:
        self._low_water = LowWater()

    async def _claim_due(self, wanted: Mapping[str, int]) -> list[Row]:
        low = self._low_water.begin(wanted)
        targets = [{"target": target, "free": count, "low": low[target]} for target, count in wanted.items()]
        rows = await self._database.rows("leases/claim", {"targets": json.dumps(targets), **self._claim_params()})
        self._low_water.end(wanted, rows)
        return rows

    async def _claim_suspect(self, wanted: Iterable[str]) -> list[Row]:
        return await self._database.rows("leases/claim_suspect", {"targets": list(wanted), **self._claim_params()})

    def _claim_params(self) -> dict[str, object]:
        return {"owner": self._owner, "lease": self._lease, "engine_level": self._engine_level, "now": None}

    async def _checkpoints(self, rows: Sequence[Row]) -> dict[UUID, list[StoredCheckpoint]]:
        """Read what is finished. Runs that have only been submitted, by far the most, have nothing to read."""
        started = [row["job_id"] for row in rows if cast(int, row["seq"]) > 1]
        found: dict[UUID, list[StoredCheckpoint]] = defaultdict(list)
        if started:
            for row in await self._database.rows("leases/checkpoints", {"job_ids": started}):
                found[cast(UUID, row.pop("job_id"))].append(StoredCheckpoint(**row))  # type: ignore[arg-type]
        return found

    async def _run_renewal(self, params: Mapping[str, object]) -> list[Row]:
        if self._renewals is None:
            self._renewals = await self._database.connect()
        try:
            return await run_statement(self._renewals, "leases/renew", params, self._database.answer_seconds)
        except StoreUnavailable:
            await self.close()
            raise

    def _valid(self, held: Sequence[HeldRun]) -> list[HeldRun]:
        """The claims among *held* that the database can know, if its history has not changed since."""
        return [run for run in held if run.history == self._database.history.changes]

    def _held_until(self, sent_at: float) -> float:
        return sent_at + self._lease.total_seconds() * _SAFETY


def _claims(held: Sequence[HeldRun]) -> str:
    return json.dumps([{"job_id": str(run.job_id), "fence": run.fence} for run in held])


def _claimed(row: Row, checkpoints: Mapping[UUID, Sequence[StoredCheckpoint]]) -> ClaimedRun:
    known = dict(row)
    known["definition_hash"] = row["definition_hash"] or b""
    known["input"] = row["input"] if row["input"] is not None else "null"
    done = checkpoints.get(cast(UUID, row["job_id"]), ())
    return ClaimedRun(**known, checkpoints=tuple(done))  # type: ignore[arg-type]
