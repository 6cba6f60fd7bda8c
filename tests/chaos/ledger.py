"""What must add up when the chaos is over: requests, rows, events, letters and calls."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.acceptance.fleet import Fleet
from tests.acceptance.reader import first_arrivals
from tests.acceptance.waiting import until
from tests.chaos.load import Load
from tests.driver.stories import EMBED, TOKENIZE

_DRAIN_SECONDS = 90.0


async def until_settled(fleet: Fleet, load: Load) -> None:
    """Wait until every run has ended as its kind must, and every event and dead letter is out."""
    wanted = Counter(kind.status for kind in load.wanted.values())
    seen: dict[str, int] = {}

    async def settled() -> bool:
        nonlocal seen
        seen = await fleet.statuses(load.wanted)
        return seen == wanted

    await until(settled, lambda: f"runs: wanted {wanted}, found {seen}", seconds=_DRAIN_SECONDS)
    queued = 0

    async def published() -> bool:
        nonlocal queued
        queued = int(await fleet.one("select count(*) from relay_queue"))
        return queued == 0

    await until(published, lambda: f"{queued} records are not published", seconds=_DRAIN_SECONDS)
    await fleet.until_read_up(seconds=_DRAIN_SECONDS)


async def discrepancies(fleet: Fleet, load: Load) -> list[str]:
    """Compare what was asked for with what is there; empty when all adds up."""
    found: list[str] = []
    rows = await fleet.rows("select job_id, status, error from workflow_run")
    if {row["job_id"] for row in rows} != set(load.wanted):
        found.append(f"{len(rows)} rows for {len(load.wanted)} jobs")
    for row in rows:
        kind = load.wanted.get(row["job_id"])
        if kind is None or row["status"] != kind.status:
            found.append(f"{row['job_id']}: {kind} ended {row['status']}: {row['error']}")
    letters = await fleet.one("select count(*) from dead_letter")
    if letters != load.poison:
        found.append(f"{letters} dead letters for {load.poison} records that are no request")
    found += await _untold(fleet)
    found += await _unexplained_calls(fleet)
    return found


async def _untold(fleet: Fleet) -> list[str]:
    stored = {str(row["event_id"]) for row in await fleet.rows("select event_id from event")}

    def missing() -> set[str]:
        return stored - {record.event.event_id for record in first_arrivals(fleet.reader.told())}

    await until(lambda: not missing(), lambda: f"{len(missing())} events are not on the topic", seconds=_DRAIN_SECONDS)
    extra = {record.event.event_id for record in fleet.reader.told()} - stored
    return [f"{len(extra)} events on the topic that no row knows"] if extra else []


async def _unexplained_calls(fleet: Fleet) -> list[str]:
    """P3: a step is called once by each claim that found it unfinished, at most, and never after its checkpoint."""
    made: Counter[tuple[str, str]] = Counter(
        (call.metadata["job-id"], method) for method in (TOKENIZE, EMBED) for call in fleet.server.calls(method)
    )
    rows = await fleet.rows(
        "select r.job_id, r.status, r.fence,"
        " (select array_agg(fence order by step_index) from checkpoint c where c.job_id = r.job_id) as fences"
        " from run r"
    )
    found = []
    for row in rows:
        for method, most in _most_calls(row).items():
            calls = made.pop((str(row["job_id"]), method), 0)
            if calls > most:
                found.append(f"P3: {row['job_id']}: {calls} calls of {method}, {most} claims")
    if made:
        found.append(f"calls for jobs that no row knows: {made}")
    return found


def _most_calls(row: Mapping[str, Any]) -> Mapping[str, int]:
    fences, last = list(row["fences"] or []), row["fence"]
    first = fences[0] if fences else last
    second = fences[1] if len(fences) > 1 else last
    return {TOKENIZE: first, EMBED: second - first + 1}


def summary(fleet: Fleet, load: Load) -> Mapping[str, int]:
    """The ledger's figures, for people."""
    told = fleet.reader.told()
    return {
        "records produced": load.sent,
        "jobs": len(load.wanted),
        "no requests": load.poison,
        "events": len(first_arrivals(told)),
        "events published again": len(told) - len(first_arrivals(told)),
        "calls": len(fleet.server.calls()),
    }
