"""A worker is killed around the commits of steps that send: each record is kept once, as it is without the kill."""

from contextlib import closing
from typing import Any
from uuid import UUID

import pytest

from schemas.headers import record_headers
from schemas.ids import key_of
from streams.workflow.plan import ENGINE
from tests.acceptance.bench import Bench
from tests.store.samples import select
from tests.workflow.notices import ask, notices, tell

pytestmark = pytest.mark.embedded

_ORDER = '{"number": "o-7"}'


def sent(job_id: UUID, seq: int, step_index: int, step: str, topic: str, type: str, value: bytes) -> dict[str, Any]:
    """The whole record of a step, which nothing but the run's id and place decides."""
    headers = record_headers(job_id=job_id, tenant_id="default", step=step, message_type=f"notice.v1.{type}")
    return {
        "job_id": job_id,
        "seq": seq,
        "step_index": step_index,
        "topic": topic,
        "type": f"notice.v1.{type}",
        "key": b"o-7" if step == "tell" else key_of(job_id),
        "value": value,
        "headers": [list(header) for header in headers],
        "skip_reason": None,
    }


@pytest.mark.parametrize(
    "stop_at", [f"{move}.{side}_commit" for move in ("checkpoint", "park") for side in ("before", "after")]
)
async def test_each_record_is_kept_once_whatever_kills_its_worker(bench: Bench, stop_at: str) -> None:
    document = notices(steps=[tell(publish={"key": "input.number"}), ask(), tell("again", rules=["text = ask.note"])])
    job_id = await bench.run(document, target=ENGINE, input=_ORDER, engine_level=2)
    with closing(bench.worker(stop_at=stop_at)) as victim:
        await victim.was_killed()
    await bench.let_leases_run_out()
    with closing(bench.worker()) as heir:
        await bench.until_status(job_id, heir, "WAITING")
        await heir.ready()
        answer = {"jobId": str(job_id), "stepName": "ask", "response": {"approved": True, "note": "fine"}}
        assert (await heir.call("complete-step", answer))["ok"]
        await bench.until_status(job_id, heir, "COMPLETED")

    assert await select(bench.sql, "select * from record order by seq") == [
        sent(job_id, 2, 0, "tell", "notices", "Notice", b"\x12\x03o-7"),
        sent(job_id, 3, 1, "ask", "questions", "Question", b"\n\x03o-7"),
        sent(job_id, 5, 2, "again", "notices", "Notice", b"\n\x04fine"),
    ]
    queued = await select(bench.sql, "select kind, seq from relay_queue order by id")
    assert [(row["kind"], row["seq"]) for row in queued] == [
        ("event", 1),
        ("record", 2),
        ("event", 2),
        ("record", 3),
        ("event", 3),
        ("event", 4),
        ("record", 5),
        ("event", 5),
        ("event", 6),
    ]
