"""A worker is killed in the middle of a step that fans out: the next one calls only what was in flight."""

import json
from collections import Counter
from contextlib import closing

import pytest

from tests.acceptance.bench import Bench
from tests.driver.test_fan_out import SEND, SENT
from tests.store.samples import select
from tests.workflow.mail import campaign, mail_all

pytestmark = pytest.mark.embedded

ITEMS = 12
CONCURRENCY = 3


@pytest.mark.parametrize("side", ["before_commit", "after_commit"])
async def test_a_worker_killed_while_it_keeps_items_repeats_those_in_flight_at_most(bench: Bench, side: str) -> None:
    bench.server.script(SEND, SENT)
    document = mail_all(maxConcurrency=CONCURRENCY)
    document["steps"][0]["target"] = "tokenizer"
    job_id = await bench.run(document, input=json.dumps(campaign(ITEMS)))

    with closing(bench.worker(stop_at=f"item.{side}:3", drain_grace_seconds=0)) as victim:
        await victim.was_killed()
    query = "select item_index from item where status = 'COMPLETED'"
    kept = {row["item_index"] for row in await select(bench.sql, query)}
    assert 0 < len(kept) < ITEMS
    before = Counter(call.metadata["step-name"] for call in bench.server.calls(SEND))

    await bench.let_leases_run_out()
    with closing(bench.worker()) as heir:
        await bench.until_status(job_id, heir, "COMPLETED")

    assert await bench.ledger(job_id) == ["ACCEPTED", "STEP_CHECKPOINT mailall", "COMPLETED"]
    calls = Counter(call.metadata["step-name"] for call in bench.server.calls(SEND))
    assert {calls[f"mailall#{index}"] for index in kept} == {1}
    assert all(calls[f"mailall#{index}"] == before[f"mailall#{index}"] + 1 for index in set(range(ITEMS)) - kept)
    assert sum(calls.values()) <= ITEMS + CONCURRENCY
    [row] = await select(bench.sql, "select items_total, items_done, items_failed, lost_leases from run")
    assert row == {"items_total": ITEMS, "items_done": ITEMS, "items_failed": 0, "lost_leases": 0}
