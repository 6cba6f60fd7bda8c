"""What the store hands out and takes: plain values, no connection behind them."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from schemas.events import Status

JsonText = str
"""JSON as text, so that integers keep all their digits on the way through."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """One finished step of a run. `response` is the parsed JSON, None exactly when the step was skipped."""

    step_index: int
    step: str
    skipped: bool
    response: object | None


class ItemStatus(StrEnum):
    """Where one item of a step stands. QUEUED: its last try failed and another one follows; the others are final."""

    QUEUED = "QUEUED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class StoredItem:
    """One item of a step that fans out, once it has been tried.

    `attempt` counts its failed tries. `input_hash` is the SHA-256 of what it was called with, in hexadecimal digits.
    `response` is the parsed JSON, None unless it is COMPLETED; `error` is that of its last failed try. `input` is kept
    where somebody will want to read it, beside an error; it is not read back.
    """

    item_index: int
    status: ItemStatus
    attempt: int
    input_hash: str
    response: object | None = None
    error: str | None = None
    input: object | None = None


@dataclass(frozen=True, slots=True)
class FailedItem:
    """What is told of an item whose last try failed."""

    step: str
    item_index: int
    status: ItemStatus
    attempt: int
    error: str | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """What a claim hands out: everything a worker needs to go on from the first missing checkpoint."""

    job_id: UUID
    tenant_id: str
    workflow_name: str
    fence: int
    lease_owner: str
    seq: int
    attempt: int
    attempt_step: str | None
    max_attempts: int
    lost_leases: int
    steps_total: int
    definition_hash: bytes
    target: str
    run_after: datetime
    deadline_at: datetime | None
    business_key: str | None
    input: JsonText
    trace_context: str | None
    checkpoints: tuple[StoredCheckpoint, ...]
    claimed_at: datetime


@dataclass(slots=True)
class HeldRun:
    """A claimed run while this process works on it: the claim, and the number of the last event under it.

    `seq` grows with each announced move. `held_until` is the holder's own limit on the monotonic clock: the time the
    claim or renewal was sent plus the lease less a tenth. Past it nothing may be called or written. `leaving` is set
    once a move that ends the claim is under way, and `last_move` is what became of the latest move, or will. `history`
    is `History.changes` at the claim: once the database has another history, the claim is void. `kept_items` says
    whether items were kept under the claim: that is progress, although no event tells of it.
    """

    claim: ClaimedRun
    seq: int
    held_until: float
    history: int = 0
    leaving: bool = False
    kept_items: bool = False
    last_move: "asyncio.Future[MoveResult] | None" = field(default=None, repr=False, compare=False)
    taken_at: float = field(default_factory=time.monotonic, compare=False)

    @property
    def job_id(self) -> UUID:
        return self.claim.job_id

    @property
    def fence(self) -> int:
        return self.claim.fence

    def database_time(self) -> datetime:
        """About what the database's clock shows now: never later than it does."""
        return self.claim.claimed_at + timedelta(seconds=time.monotonic() - self.taken_at)

    def try_of(self, step: str | None) -> int:
        """Number of the try that runs *step* now, None for the workflow itself: its failed tries so far, and one."""
        return 1 + (self.claim.attempt if step == self.claim.attempt_step else 0)


class MoveResult(StrEnum):
    """What became of one move."""

    APPLIED = "APPLIED"
    ALREADY_APPLIED = "ALREADY_APPLIED"
    LEASE_LOST = "LEASE_LOST"
    REFUSED = "REFUSED"


@dataclass(frozen=True, slots=True)
class Submission:
    """A request that may become a run, resolved against its definition. `error` set means: born FAILED.

    `event_detail`, plain JSON, is told in the event of a run that is born so.
    `run_deadline_ms` is how long the run may take from its submission on; None: as long as it likes.
    """

    job_id: UUID
    tenant_id: str
    workflow_name: str
    fingerprint: bytes
    definition_hash: bytes | None
    engine_level: int
    steps_total: int
    max_attempts: int
    target: str | None
    input: JsonText
    labels: Mapping[str, str] | None = None
    business_key: str | None = None
    trace_context: str | None = None
    record_time: datetime | None = None
    error: str | None = None
    failed_step: str | None = None
    event_detail: object | None = None
    run_deadline_ms: int | None = None


class SubmitOutcome(StrEnum):
    """What became of one submission."""

    CREATED = "CREATED"
    EXISTING = "EXISTING"  # the same request under the same id: nothing was written
    CONFLICT = "CONFLICT"  # the id stands for other content, or for another tenant's run
    PRUNED = "PRUNED"  # the same request, whose run was settled and pruned
    TOO_OLD = "TOO_OLD"  # an unknown id, in a record so old that its run may have been forgotten: nothing was written


@dataclass(frozen=True, slots=True)
class Submitted:
    """`status` is the run's status now; None where the caller may not know it (a conflict) or nobody does (too old)."""

    job_id: UUID
    outcome: SubmitOutcome
    status: Status | None


@dataclass(frozen=True, slots=True)
class RecordIdentity:
    """Where a Kafka record stood and what it was: an offset alone names nothing, since topics are made again."""

    cluster_id: str
    topic_id: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    content_hash: bytes


Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that no run was made of, byte for byte, and why. `code` is short and stable, `reason` is a sentence.

    `held_seconds` is how long the record may still become a run; None means never.
    """

    identity: RecordIdentity
    key: bytes | None
    value: bytes | None
    headers: Headers
    code: str
    reason: str
    held_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """How far one partition is read: rows of every record below `next_offset` are stored."""

    topic: str
    partition: int
    topic_id: str
    next_offset: int
    floor_offset: int = 0


@dataclass(frozen=True, slots=True)
class PositionMove:
    """A compare-and-set of one partition's position and floor. `expected` None means: no row yet."""

    topic: str
    partition: int
    topic_id: str
    expected: int | None
    next_offset: int
    expected_floor: int = 0
    floor_offset: int = 0


@dataclass(frozen=True, slots=True)
class QueuedEvent:
    """One event to publish: its place in the queue, its columns, and the run's columns that never change.

    `wait_seconds` is how long it was to wait for its next try when it was read, 0 or less and None: not at all.
    `skip_reason` is set when an operator gave it up: it is told in its reduced form then.
    """

    shard: int
    id: int
    job_id: UUID
    seq: int
    event_id: UUID
    type: int
    step: str | None
    attempt: int
    verdict: str | None
    error: str | None
    detail: JsonText | None
    status: str
    occurred_at: datetime
    contract_version: int
    format: int
    tenant_id: str
    workflow_name: str
    business_key: str | None
    labels: Mapping[str, str] | None
    trace_context: str | None
    attempts: int
    wait_seconds: float | None
    skip_reason: str | None = None


@dataclass(frozen=True, slots=True)
class QueuedLetter:
    """One dead letter to publish: byte for byte, or in its reduced form when `skip_reason` says why it was given up.

    `wait_seconds` is that of `QueuedEvent`.
    """

    shard: int
    id: int
    letter_id: int
    letter: DeadLetter
    received_at: datetime
    attempts: int
    wait_seconds: float | None
    skip_reason: str | None = None


@dataclass(frozen=True, slots=True)
class StoredWorkflow:
    """A stored workflow's newest version."""

    tenant_id: str
    name: str
    version: int
    definition_hash: bytes
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True)
class StoredDefinition:
    """A definition as pinned: the document, and the descriptor set it was checked against."""

    definition_hash: bytes
    name: str
    document: Mapping[str, object]
    descriptor_set: bytes
    engine_level: int


@dataclass(frozen=True, slots=True)
class RunRow:
    """The view `workflow_run`: one run with everything about it. JSON columns are parsed; None means not set."""

    job_id: UUID
    tenant_id: str
    workflow_name: str
    status: Status
    columns: Mapping[str, object] = field(repr=False)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of a list."""

    job_id: UUID
    workflow_name: str
    status: Status
    attempt: int
    business_key: str | None
    outstanding_step: str | None
    run_after: datetime
    error: str | None
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None
