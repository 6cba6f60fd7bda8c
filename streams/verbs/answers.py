"""The shapes of what verbs answer: times, names and refusals alike in every one."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

Answer = dict[str, object]

UNKNOWN_JOB: Final = "unknown-job"
UNKNOWN_WORKFLOW: Final = "unknown-workflow"
WRONG_STATE: Final = "wrong-state"
REJECTED: Final = "rejected"


def refused(code: str, error: str, **more: object) -> Answer:
    """Return the answer for work that is refused; the call itself was fine. Fields that are None are left out."""
    return {"ok": False, "code": code, "error": error, **{k: v for k, v in more.items() if v is not None}}


def unknown_job(job_id: UUID) -> Answer:
    """Return the answer for an id that nobody knows, and for another tenant's: the two are told alike."""
    return refused(UNKNOWN_JOB, f"there is no job {job_id}")


def timestamp(moment: datetime) -> str:
    """Return ISO 8601 in UTC, to the microsecond."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def camel(name: str) -> str:
    """Return a column's name as JSON spells it: `created_at` is `createdAt`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def plain(value: object) -> object:
    """Return a column's value as JSON has it. JSON columns pass through untouched."""
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, UUID):
        return str(value)
    return value


def present(columns: Mapping[str, object]) -> Answer:
    """Return *columns* in JSON spelling, without those that are not set."""
    return {camel(name): plain(value) for name, value in columns.items() if value is not None}
