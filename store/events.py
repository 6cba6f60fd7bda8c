"""Events as rows of the log: built here alone, and checked before they are written, so that each can be published."""

import json
from typing import Final

from schemas import text
from schemas.errors import ContractError, MoveRefused
from schemas.events import EventFields, EventType, Status, cut_error, validate_fields
from schemas.ids import uuid7
from schemas.limits import DETAIL_BYTES
from store.records import HeldRun, Submission

UNEXPLAINED: Final = "no reason was given"


def event_columns(
    held: HeldRun,
    event_type: EventType,
    status: Status,
    *,
    step: str | None,
    verdict: str | None = None,
    error: str | None = None,
    detail: str | None = None,
) -> dict[str, object]:
    """Return what a holder's move tells: the next number of the run's log, an id of its own, and the number of the try.

    Raises:
        MoveRefused: the event breaks its contract and could never be published; the message names each field.
    """
    fields = EventFields(
        event_id=uuid7(),
        job_id=held.job_id,
        tenant_id=held.claim.tenant_id,
        workflow_name=held.claim.workflow_name,
        type=event_type,
        status=status,
        step=step,
        attempt=held.try_of(step),
        verdict=verdict,
        error=cut_error(error) if error is not None else None,
        detail=detail,
        seq=held.seq + 1,
        business_key=held.claim.business_key,
        labels=None,  # checked when the run was submitted, and never changed
    )
    _refuse_unpublishable(fields)
    return {"event_id": str(fields.event_id), "seq": fields.seq, "attempt": fields.attempt}


def first_event_columns(submission: Submission) -> dict[str, object]:
    """Return what the first event of a new run tells: ACCEPTED, or FAILED with the reason for a run that is born so.

    `error` is the reason as the row keeps it, `event_error` as the event carries it.

    Raises:
        MoveRefused: the event breaks its contract and could never be published; the message names each field.
    """
    whole, cut = (None, None) if submission.error is None else error_texts(submission.error)
    detail = event_detail(submission.event_detail) if submission.event_detail is not None else None
    fields = EventFields(
        event_id=uuid7(),
        job_id=submission.job_id,
        tenant_id=submission.tenant_id,
        workflow_name=submission.workflow_name,
        type=EventType.ACCEPTED if whole is None else EventType.FAILED,
        status=Status.QUEUED if whole is None else Status.FAILED,
        step=None if whole is None else submission.failed_step or None,
        attempt=0,
        verdict=None,
        error=cut,
        detail=detail,
        seq=1,
        business_key=submission.business_key,
        labels=submission.labels,
    )
    _refuse_unpublishable(fields)
    texts = {"error": whole, "event_error": cut, "event_detail": detail}
    return {"event_id": str(fields.event_id), "failed_step": fields.step, **texts}


def error_texts(error: str) -> tuple[str, str]:
    """Return *error* as the row keeps it, whole and readable, and as its event carries it."""
    whole = text.readable(error) or UNEXPLAINED
    return whole, cut_error(whole)


def event_detail(detail: object) -> str:
    """Return what an event tells beside its columns, as JSON text. Raises MoveRefused: it is no JSON."""
    try:
        return json.dumps(detail, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise MoveRefused(f"the event's detail is no JSON: {error}") from error


def request_detail(request: object) -> str:
    """Return a WAITING event's detail: the composed request where it fits, else how large it is. The row has all of it.

    Raises:
        MoveRefused: the request is no JSON.
    """
    try:
        detail = json.dumps({"request": request}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise MoveRefused(f"the composed request is no JSON: {error}") from error
    size = len(detail.encode(errors="surrogatepass"))
    return detail if size <= DETAIL_BYTES else json.dumps({"request_bytes": size})


def _refuse_unpublishable(fields: EventFields) -> None:
    try:
        validate_fields(fields)
    except ContractError as error:
        raise MoveRefused(f"its event cannot be published: {error}") from error
