"""Events: what a run announces, and the one way from its columns to its bytes.

Each commit point of a run writes one row of the event log in its own transaction; the relay renders it later. Both
ends stand here: `validate_fields` before the insert, so that no row is ever written that cannot be published, and
`build_message` with `serialize`, which give the same bytes for the same row whenever and wherever they run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from google.protobuf.timestamp_pb2 import Timestamp

from schemas import limits, strict_json, text
from schemas.errors import ContractError
from schemas.ids import is_uuid_text
from schemas.labels import label_problems, labels_of
from schemas.messages import WorkflowRunEvent


class EventType(IntEnum):
    """What happened; the numbers are those of the Protobuf enum."""

    ACCEPTED = 1
    STEP_CHECKPOINT = 2
    WAITING = 3
    COMPLETED = 4
    FAILED = 5
    DEAD = 6
    CANCELLED = 7
    REOPENED = 8


class Status(StrEnum):
    """Where a run stands. COMPLETED and CANCELLED are final; FAILED and DEAD may be reopened."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    DEAD = "DEAD"
    CANCELLED = "CANCELLED"


ANNOUNCES: Final[Mapping[str, EventType | None]] = MappingProxyType(
    {
        "submit": EventType.ACCEPTED,
        "refuse": EventType.FAILED,
        "claim": None,
        "renew": None,
        "item": None,
        "checkpoint": EventType.STEP_CHECKPOINT,
        "park": EventType.WAITING,
        "retry": None,
        "release": None,
        "complete": EventType.COMPLETED,
        "fail": EventType.FAILED,
        "give_up": EventType.DEAD,
        "expire": None,
        "expire_at_ceiling": EventType.DEAD,
        "answer": EventType.STEP_CHECKPOINT,
        "reject_answer": EventType.FAILED,
        "wake": EventType.STEP_CHECKPOINT,
        "remind": EventType.WAITING,
        "overdue": EventType.FAILED,
        "cancel": EventType.CANCELLED,
        "reopen": EventType.REOPENED,
        "prune": None,
    }
)
"""Which move announces what; None means that it announces nothing. `expire` has two outcomes, hence two lines."""

STATUS_AFTER: Final[Mapping[EventType, frozenset[Status]]] = MappingProxyType(
    {
        EventType.ACCEPTED: frozenset({Status.QUEUED}),
        EventType.STEP_CHECKPOINT: frozenset({Status.RUNNING, Status.QUEUED}),
        EventType.WAITING: frozenset({Status.WAITING}),
        EventType.COMPLETED: frozenset({Status.COMPLETED}),
        EventType.FAILED: frozenset({Status.FAILED}),
        EventType.DEAD: frozenset({Status.DEAD}),
        EventType.CANCELLED: frozenset({Status.CANCELLED}),
        EventType.REOPENED: frozenset({Status.QUEUED}),
    }
)
"""The statuses a run can have after each event: a checkpoint leaves a worker's run RUNNING, an answered one QUEUED."""


@dataclass(frozen=True, slots=True)
class EventFields:
    """One event as typed columns. None means absent. `detail` is JSON text and goes out as it is."""

    event_id: UUID
    job_id: UUID
    tenant_id: str
    workflow_name: str
    type: EventType
    status: Status
    step: str | None
    attempt: int
    verdict: str | None
    error: str | None
    detail: str | None
    seq: int
    business_key: str | None
    labels: Mapping[str, str] | None


def cut_error(error: str) -> str:
    """Return *error* as an event carries it: readable, at most 4000 code points, with a mark where it was cut."""
    return text.cut(error, limits.ERROR)


def build_message(fields: EventFields, occurred_at: datetime) -> WorkflowRunEvent:
    """Render one event. Equal arguments give equal messages; nothing is checked here, `serialize` does that.

    Raises:
        ContractError: code `event`; *occurred_at* has no time zone, so that it names no instant.
    """
    if occurred_at.tzinfo is None:
        raise ContractError("occurred_at has no time zone", code="event")
    happened = Timestamp()
    happened.FromDatetime(occurred_at)
    return WorkflowRunEvent(
        event_id=str(fields.event_id),
        job_id=str(fields.job_id),
        workflow_name=fields.workflow_name,
        type=fields.type.name,
        step=fields.step,
        attempt=fields.attempt,
        verdict=fields.verdict,
        error=fields.error,
        detail=fields.detail,
        occurred_at=happened,
        seq=fields.seq,
        tenant_id=fields.tenant_id,
        status=fields.status,
        business_key=fields.business_key,
        labels=strict_json.canonical(fields.labels) if fields.labels else None,
    )


def validate_fields(fields: EventFields) -> None:
    """Check one event before its row is written.

    Raises:
        ContractError: code `event`; the message names every field at fault with its limit. The caller's move is wrong
            and must not be repeated as it is.
    """
    _refuse([*_text_problems(fields), *_number_problems(fields), *_meaning_problems(fields)])


def validate_event(event: WorkflowRunEvent) -> None:
    """Check one rendered event by the rules of `validate_fields`, and that its ids, type, status and time are there.

    Raises:
        ContractError: code `event`; the message names every field at fault with its limit.
    """
    problems = list(_form_problems(event))
    labels = _labels_of(event, problems)
    _refuse(problems)
    validate_fields(
        EventFields(
            event_id=UUID(event.event_id),
            job_id=UUID(event.job_id),
            tenant_id=event.tenant_id,
            workflow_name=event.workflow_name,
            type=EventType(event.type),
            status=Status(event.status),
            step=event.step if event.HasField("step") else None,
            attempt=event.attempt,
            verdict=event.verdict if event.HasField("verdict") else None,
            error=event.error if event.HasField("error") else None,
            detail=event.detail if event.HasField("detail") else None,
            seq=event.seq,
            business_key=event.business_key if event.HasField("business_key") else None,
            labels=labels,
        )
    )


def serialize(event: WorkflowRunEvent) -> bytes:
    """Check *event* and return its bytes, unframed; an equal event gives equal bytes.

    Raises:
        ContractError: code `event`; no byte of a broken event leaves.
    """
    validate_event(event)
    return event.SerializeToString(deterministic=True)


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ContractError("; ".join(problems), code="event")


def _text_problems(fields: EventFields) -> Iterator[str]:
    for name, value, limit in (
        ("tenant_id", fields.tenant_id, limits.NAME),
        ("workflow_name", fields.workflow_name, limits.NAME),
        ("step", fields.step, limits.NAME),
        ("business_key", fields.business_key, limits.NAME),
        ("verdict", fields.verdict, limits.VERDICT),
        ("error", fields.error, limits.ERROR),
    ):
        if value is None:
            continue
        if not value:
            yield f"{name} is empty"
        if len(value) > limit:
            yield f"{name} has {len(value)} characters, at most {limit} are allowed"
        if bad := text.unstorable(value):
            yield f"{name} holds {bad}, which cannot be stored"
    if fields.detail is not None:
        yield from _detail_problems(fields.detail)
    yield from label_problems(fields.labels or {})


def _detail_problems(detail: str) -> Iterator[str]:
    size = len(detail.encode(errors="surrogatepass"))
    if size > limits.DETAIL_BYTES:
        yield f"detail has {size} bytes, at most {limits.DETAIL_BYTES} are allowed"
        return
    try:
        strict_json.parse(detail)
    except ContractError as error:
        yield f"detail: {error}"


def _number_problems(fields: EventFields) -> Iterator[str]:
    if not 0 <= fields.attempt <= limits.INT32_MAX:
        yield f"attempt is {fields.attempt}, 0 to {limits.INT32_MAX} are allowed"
    if not 1 <= fields.seq <= limits.INT64_MAX:
        yield f"seq is {fields.seq}, 1 to {limits.INT64_MAX} are allowed"


def _meaning_problems(fields: EventFields) -> Iterator[str]:
    name = fields.type.name
    if fields.status not in STATUS_AFTER[fields.type]:
        allowed = " or ".join(sorted(STATUS_AFTER[fields.type]))
        yield f"status is {fields.status}, after {name} it is {allowed}"
    if fields.type in (EventType.STEP_CHECKPOINT, EventType.WAITING) and fields.step is None:
        yield f"step is missing, {name} needs one"
    if fields.type is EventType.COMPLETED and fields.verdict is None:
        yield "verdict is missing, COMPLETED needs one"
    if fields.type in (EventType.FAILED, EventType.DEAD) and fields.error is None:
        yield f"error is missing, {name} needs one"


def _form_problems(event: WorkflowRunEvent) -> Iterator[str]:
    for name, value in (("event_id", event.event_id), ("job_id", event.job_id)):
        if not is_uuid_text(value):
            yield f"{name} is not a UUID of 36 characters"
    if int(event.type) not in STATUS_AFTER:
        yield f"type is {event.type}, 1 to 8 are defined"
    if event.status not in Status.__members__:
        yield f"status is {event.status!r}, which is not one of the seven"
    if not event.HasField("occurred_at"):
        yield "occurred_at is missing"


def _labels_of(event: WorkflowRunEvent, problems: list[str]) -> Mapping[str, str] | None:
    if not event.HasField("labels"):
        return None
    try:
        return labels_of(event.labels)
    except ContractError as error:
        problems.append(str(error))
        return None
