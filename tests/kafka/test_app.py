"""The App of intake: crashed, hung, locked out and stopped, in a process that goes on."""

import asyncio
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.protocol.group import JoinGroupRequest

from streams.dev.ports import free_port
from streams.worker import CLOSE_SECONDS, STOP_SECONDS
from tests.agents.bench import IntakeBench, request_value, until


class Killed(Exception):
    pass


async def test_ten_crashes_under_load_lose_nothing_and_disturb_nobody(
    intake: IntakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ticks = 0

    async def somebody_else() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    neighbour = asyncio.create_task(somebody_else())
    threads = threading.active_count()
    made = 0
    async with intake.worker() as worker:
        for crash in range(10):
            await worker.ready()
            intake.produce(*[request_value() for _ in range(50)])
            made += 50
            await until(lambda: worker.count("intake_batch_seconds_count") > 0, worker.service.health)
            await worker.service.crash(Killed(crash))
            await until(lambda crash=crash: worker.count("intake_rebuilds_total") == crash + 1, worker.service.health)
        await intake.has_runs(made)
        await intake.has_committed(made)
        await worker.ready()
        assert threading.active_count() <= threads + 6
    assert list(tmp_path.iterdir()) == []
    assert ticks > 100
    neighbour.cancel()


async def test_a_crash_in_the_middle_of_a_transaction_is_read_again(intake: IntakeBench, database_url: str) -> None:
    async with (
        intake.worker() as worker,
        await psycopg.AsyncConnection.connect(database_url) as other,
    ):
        await worker.ready()
        await other.execute("LOCK TABLE workflow_runs.run IN SHARE MODE")
        intake.produce(*[request_value() for _ in range(20)])
        await until(lambda: intake.waiting_for_locks(), lambda: "nobody waits for the lock")
        await worker.service.crash(Killed())
        await until(lambda: worker.count("intake_rebuilds_total") == 1, worker.service.health)
        assert intake.committed() < 0
        await other.rollback()
        await intake.has_runs(20)
        await intake.has_committed(20)


async def test_a_broker_that_is_away_at_the_start_is_waited_for(intake: IntakeBench) -> None:
    intake.produce(request_value())
    with intake.kafka.outage():
        async with intake.worker(group_lost_seconds=6) as worker:
            await until(lambda: worker.count("intake_rebuilds_total") > 0, worker.service.health)
            health = worker.service.health()
            assert (health.alive, health.ready) == (True, False)
            intake.kafka.start()
            await intake.has_runs(1)
            await worker.ready()


async def test_a_broker_that_goes_away_and_comes_back_is_read_on(intake: IntakeBench) -> None:
    async with intake.worker() as worker:
        intake.produce(*[request_value() for _ in range(10)])
        await intake.has_runs(10)
        with intake.kafka.outage():
            await asyncio.sleep(1)
        intake.produce(*[request_value() for _ in range(10)])
        await intake.has_runs(20)
        await intake.has_committed(20)
        await worker.ready()


async def test_a_group_that_does_not_take_the_worker_back_ends_the_app(intake: IntakeBench) -> None:
    async with intake.worker(group_lost_seconds=4) as worker:
        await worker.ready()
        worker.consumer().app.rebalancing = True  # where Faust stays when aiokafka left the group for good
        await until(lambda: worker.count("intake_rebuilds_total") == 1, worker.service.health)
        intake.produce(request_value())
        await intake.has_runs(1)


@pytest.mark.parametrize("away", ["nothing", "store", "broker"])
async def test_it_stops_in_time_whatever_is_away(intake: IntakeBench, database_url: str, away: str) -> None:
    async with (
        intake.worker() as worker,
        await psycopg.AsyncConnection.connect(database_url) as other,
    ):
        await worker.ready()
        if away == "store":
            await other.execute("LOCK TABLE workflow_runs.run IN SHARE MODE")
            intake.produce(*[request_value() for _ in range(5)])
            await until(lambda: intake.waiting_for_locks(), lambda: "nobody waits for the lock")
        if away == "broker":
            intake.kafka.stop()
        began = time.monotonic()
        assert await worker.service.stop()
        assert time.monotonic() - began < 10
        assert worker.running.done()


async def test_a_stop_lets_the_batch_in_hand_and_its_offsets_through(intake: IntakeBench, database_url: str) -> None:
    async with (
        intake.worker() as worker,
        await psycopg.AsyncConnection.connect(database_url) as other,
    ):
        await worker.ready()
        await other.execute("LOCK TABLE workflow_runs.run IN SHARE MODE")
        intake.produce(*[request_value() for _ in range(5)])
        await until(lambda: intake.waiting_for_locks(), lambda: "nobody waits for the lock")
        stopping = asyncio.create_task(worker.service.stop())
        await asyncio.sleep(0.1)
        await other.rollback()
        assert await stopping
        assert intake.committed() == await intake.runs() > 0


async def test_a_worker_that_nothing_is_assigned_to_is_ready_and_takes_over(intake: IntakeBench) -> None:
    async with intake.worker() as spare:
        async with intake.worker() as active:
            await active.ready()
            await spare.ready()
            intake.produce(request_value())
            await intake.has_runs(1)
        intake.produce(request_value())
        await intake.has_runs(2)
        await spare.ready()


async def test_a_stop_between_the_answer_about_the_coordinator_and_the_connection_to_it_waits_for_neither(
    intake: IntakeBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, look_up = threading.Event(), AIOKafkaClient.coordinator_lookup

    async def looked_up(client: AIOKafkaClient, *args: Any) -> int:
        coordinator = await look_up(client, *args)
        asked.set()
        await until(client._get_conn_lock.locked, lambda: "it does not leave the group")
        return int(coordinator)

    monkeypatch.setattr(AIOKafkaClient, "coordinator_lookup", looked_up)
    async with intake.worker() as worker:
        await until(asked.is_set, worker.service.health)
        assert await worker.service.stop()
    assert "the group was not left in order" not in caplog.text


async def test_a_stop_while_the_group_waits_for_somebody_else_takes_less_than_a_worker_leaves_it(
    intake: IntakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, send = threading.Event(), GroupCoordinator._send_req

    async def sent(coordinator: GroupCoordinator, request: Any) -> Any:
        answer = await send(coordinator, request)
        if isinstance(request, JoinGroupRequest):
            asked.set()
            await asyncio.sleep(60)
        return answer

    monkeypatch.setattr(GroupCoordinator, "_send_req", sent)
    async with intake.worker() as worker:
        await until(asked.is_set, worker.service.health)
        began = time.monotonic()
        assert await worker.service.stop()
        assert time.monotonic() - began < STOP_SECONDS - CLOSE_SECONDS


async def test_no_broker_at_all_is_told_and_does_not_hold_up_the_stop(intake: IntakeBench) -> None:
    intake.bootstrap = f"127.0.0.1:{free_port()}"
    async with intake.worker() as worker:
        await until(lambda: worker.count("intake_rebuilds_total") > 1, worker.service.health)
        assert not worker.service.health().ready
        began = time.monotonic()
        assert await worker.service.stop()
        assert time.monotonic() - began < 5
