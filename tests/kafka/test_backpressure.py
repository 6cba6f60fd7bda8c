"""Intake stands still while too much is queued, and goes on by itself."""

import asyncio

from streams.kafka.backpressure import Backpressure
from streams.metrics import Metrics
from tests.agents.bench import SESSION_SECONDS, IntakeBench, request_value, until


def gauge(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"workflow_runs_{name}")


def test_it_holds_at_the_limit_and_goes_on_well_below_it() -> None:
    metrics = Metrics()
    backpressure = Backpressure(100, metrics)
    held = []
    for queued in (99, 100, 95, 90, 89, 95, 100):
        backpressure.counted(queued, {"host:1": queued})
        held.append(backpressure.reason is not None)
        assert gauge(metrics, "intake_held_back") == held[-1]
    assert held == [False, True, True, True, False, False, True]
    assert backpressure.reason == "100 or more due runs are queued: 100 for host:1"


async def test_partitions_stand_still_and_are_kept_while_too_much_is_queued(intake: IntakeBench) -> None:
    intake = intake.on_partitions(2)
    intake.batch_records = 5
    intake.backpressure = Backpressure(10, Metrics())
    async with intake.worker() as worker:
        await worker.ready()
        assignment = worker.consumer().current
        intake.backpressure.counted(10, {"slow:443": 10})
        for partition in (0, 1):
            intake.produce(*[request_value() for _ in range(20)], partition=partition)
        await asyncio.sleep(SESSION_SECONDS[intake.kafka.kind] + 1)
        stored = await intake.runs()
        assert stored <= 5  # what the fetch brought that was under way
        assert worker.consumer().current is assignment
        health = worker.service.health()
        assert health.ready
        assert "slow:443" in health.detail
        told = f"{40 - stored} offsets are not read yet"
        await until(lambda: told in worker.service.health().detail, worker.service.health)
        assert worker.count("intake_lag", topic=intake.topic, partition="1") >= 15
        intake.backpressure.counted(0, {})
        await intake.has_runs(40)
        assert worker.consumer().current is assignment
        assert "stands still" not in worker.service.health().detail
        await until(lambda: worker.count("intake_lag", topic=intake.topic, partition="1") == 0, worker.service.health)
