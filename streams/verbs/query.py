"""get-job and list-jobs: what a run is, and which there are."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Final

from schemas.errors import InputInvalid
from schemas.events import Status
from store.queries import Queries
from store.records import RunSummary
from streams.verbs.answers import Answer, present, timestamp, unknown_job
from streams.verbs.arguments import Arguments

_MOST_FAILED_ITEMS: Final = 100


async def get_job(queries: Queries, tenant_id: str, given: object) -> Answer:
    """Answer everything about one run: the whole row, with its definition, checkpoints and what it waits for.

    A run with items has `failedItems` beside their numbers: the first hundred whose last try failed, by step and place.
    """
    job_id = Arguments(given, ("jobId",)).job_id()
    row = await queries.run(tenant_id, job_id)
    if row is None:
        return unknown_job(job_id)
    job = {**present(row.columns), "checkpoints": _checkpoints(row.columns)}
    if row.columns["items_total"]:
        failed = await queries.failed_items(job_id, limit=_MOST_FAILED_ITEMS)
        job["failedItems"] = [present(asdict(item)) for item in failed]
    return {"ok": True, "job": job}


async def list_jobs(queries: Queries, tenant_id: str, given: object) -> Answer:
    """Answer runs, newest first, one summary each. `nextCursor` is there when more follow: pass it as `cursor`."""
    arguments = Arguments(given, ("status", "workflowName", "businessKey", "limit", "offset", "cursor"))
    page = await queries.runs(
        tenant_id,
        status=_status(arguments),
        workflow_name=arguments.text("workflowName"),
        business_key=arguments.text("businessKey"),
        limit=arguments.limit(),
        offset=arguments.whole_number("offset") or 0,
        cursor=arguments.text("cursor", most=1000),
    )
    answer: Answer = {"ok": True, "jobs": [_summary(run) for run in page.runs]}
    if page.next_cursor is not None:
        answer["nextCursor"] = page.next_cursor
    return answer


def _status(arguments: Arguments) -> Status | None:
    text = arguments.text("status")
    if text is None:
        return None
    try:
        return Status(text)
    except ValueError:
        raise InputInvalid(f"status must be one of {', '.join(Status)}", pointer="/status") from None


def _summary(run: RunSummary) -> Answer:
    columns = {name: getattr(run, name) for name in RunSummary.__dataclass_fields__}
    return present(columns)


def _checkpoints(columns: Mapping[str, object]) -> list[Answer]:
    entries = columns["checkpoints"]
    if not isinstance(entries, list):
        return []
    return [
        {**present(entry), "createdAt": timestamp(datetime.fromisoformat(entry["created_at"]))} for entry in entries
    ]
