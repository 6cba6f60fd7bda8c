"""The promises under kills and outages, for as long as a suite can afford; `make chaos MINUTES=30` goes on longer."""

import random
from pathlib import Path

import pytest

from tests.chaos.run import Plan, run_chaos


@pytest.mark.acceptance
@pytest.mark.apache
@pytest.mark.timeout(400)
async def test_every_promise_holds_while_workers_database_and_brokers_are_killed(tmp_path: Path) -> None:
    plan = Plan(seed=random.SystemRandom().randrange(10**6), seconds=120)
    print(f"seed {plan.seed}")
    outcome = await run_chaos(plan, tmp_path, print)
    print("\n".join(outcome.faults), outcome.figures, sep="\n")
    assert outcome.problems == []
    assert outcome.figures["samples"] > 50
    assert outcome.figures["faults"] >= 18
