"""Record headers: what stands beside each value.

On events the CloudEvents attributes in their Kafka binary form, the trace of the request and the content type. On dead
letters why the record was put there, under the names Kafka Connect uses, so that its tools read ours. Headers that we
write are UTF-8 text, never null, and no name stands twice: sinks fail on anything else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid5

from schemas import limits
from schemas.messages import WorkflowRunEvent
from schemas.text import cut_utf8

Headers = Sequence[tuple[str, bytes | None]]
"""As a Kafka client hands them out: in order, a name may stand twice, a value may be null."""

CE_ID: Final = "ce_id"
CE_SOURCE: Final = "ce_source"
CE_TYPE: Final = "ce_type"
CE_SPECVERSION: Final = "ce_specversion"
CE_TIME: Final = "ce_time"
CE_SUBJECT: Final = "ce_subject"
CONTENT_TYPE: Final = "content-type"
TRACEPARENT: Final = "traceparent"
JOB_ID: Final = "job-id"
STEP_NAME: Final = "step-name"
TENANT_ID: Final = "tenant-id"

EVENT_SOURCE: Final = "/workflow-runs"
PROTOBUF: Final = "application/protobuf"

ERRORS: Final = "__connect.errors."
"""What the name of every header about a failure begins with."""

CONNECTOR: Final = "workflow-runs"


def event_headers(event: WorkflowRunEvent, *, traceparent: str | None = None) -> list[tuple[str, bytes]]:
    """Return the headers of one event; equal events have equal headers.

    Args:
        event: A valid event.
        traceparent: The W3C trace context of the request; None leaves the header out.
    """
    kind = WorkflowRunEvent.Type.Name(event.type)
    named = {
        CE_SPECVERSION: "1.0",
        CE_ID: event.event_id,
        CE_SOURCE: EVENT_SOURCE,
        CE_TYPE: f"{WorkflowRunEvent.DESCRIPTOR.file.package}.{kind}",
        CE_SUBJECT: event.job_id,
        CE_TIME: event.occurred_at.ToJsonString(),
        CONTENT_TYPE: PROTOBUF,
    }
    if traceparent is not None:
        named[TRACEPARENT] = traceparent
    return [(name, cut_utf8(text, limits.HEADER_BYTES)) for name, text in named.items()]


def record_headers(
    *, job_id: UUID, tenant_id: str, step: str, message_type: str, traceparent: str | None = None
) -> list[tuple[str, str]]:
    """Return the headers of what a step sends to a topic of others: the same for each try of the step.

    Who answers finds the run and the step that wait for it here.
    """
    named = {
        CE_SPECVERSION: "1.0",
        CE_ID: str(uuid5(job_id, step)),
        CE_SOURCE: EVENT_SOURCE,
        CE_TYPE: message_type,
        CE_SUBJECT: str(job_id),
        CONTENT_TYPE: PROTOBUF,
        JOB_ID: str(job_id),
        STEP_NAME: step,
        TENANT_ID: tenant_id,
    }
    if traceparent is not None:
        named[TRACEPARENT] = traceparent
    return [(name, cut_utf8(text, limits.HEADER_BYTES).decode()) for name, text in named.items()]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why and where a record was refused: `stage` is the part that refused it, `code` its short stable reason."""

    topic: str
    partition: int
    offset: int
    stage: str
    code: str
    reason: str


def dead_letter_headers(original: Headers, failure: Failure) -> list[tuple[str, bytes]]:
    """Return the headers of a dead letter: those the record had, then why it failed.

    Reasons from an earlier failure are replaced. Of a name that stood twice the last value is kept, as Kafka's own
    `lastHeader` reads it, and a null value becomes an empty one. Each of our texts has at most 1 kB.
    """
    kept = {name: value or b"" for name, value in without_failure(original)}
    reasons = {
        "topic": failure.topic,
        "partition": str(failure.partition),
        "offset": str(failure.offset),
        "connector.name": CONNECTOR,
        "stage": failure.stage,
        "exception.class.name": failure.code,
        "exception.message": failure.reason,
    }
    written = {f"{ERRORS}{name}": cut_utf8(text, limits.HEADER_BYTES) for name, text in reasons.items()}
    return [*kept.items(), *written.items()]


def without_failure(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Return *headers* as the record had them before it failed: what a replay to its source topic carries."""
    return [(name, value) for name, value in headers if not name.startswith(ERRORS)]
