"""Health and metrics tell how a worker is, on an address of their own."""

import asyncio
import json

import pytest
from aiohttp.test_utils import TestClient, TestServer

from store.migrate import migrate
from streams.dev.postgres import EmbeddedPostgres
from streams.health import ServiceHealth
from streams.metrics import Metrics
from streams.settings import load_settings
from streams.web.health import health_app
from streams.worker import Worker
from tests.fixtures.eventually import eventually
from tests.web.conftest import Door, opened_door


async def until_ready(door: Door, status: int) -> dict[str, object]:
    async with asyncio.timeout(20):
        while True:
            answered, text = await door.get("/readyz")
            if answered == status:
                return dict(json.loads(text))
            await asyncio.sleep(0.05)


async def test_a_worker_is_ready_once_all_its_services_are(door: Door) -> None:
    ready = await until_ready(door, 200)
    services = ready["services"]
    assert isinstance(services, list)
    assert {service["name"] for service in services} == {"web", "store", "runs"}
    status, text = await door.get("/healthz")
    assert (status, json.loads(text)["status"]) == (200, "ok")


async def test_an_outage_of_the_store_is_not_ready_but_alive_and_heals(own_postgres: EmbeddedPostgres) -> None:
    await migrate(own_postgres.url())
    async with opened_door(database_url=own_postgres.url(), roles="runs,web") as door:
        await until_ready(door, 200)
        own_postgres.stop()
        away = await until_ready(door, 503)
        assert away["status"] == "failing"
        assert (await door.get("/healthz"))[0] == 200
        assert (await door.post("list-jobs", {}))[0] == 503
        own_postgres.start()
        await until_ready(door, 200)
        assert (await door.post("list-jobs", {}))[0] == 200


async def test_a_worker_whose_store_is_away_at_the_start_waits_for_it(own_postgres: EmbeddedPostgres) -> None:
    await migrate(own_postgres.url())
    own_postgres.stop()
    async with opened_door(database_url=own_postgres.url(), roles="runs,web") as door:
        assert (await door.get("/healthz"))[0] == 200
        assert (await door.get("/readyz"))[0] == 503
        own_postgres.start()
        await until_ready(door, 200)


@pytest.mark.parametrize(
    ("alive", "ready", "degraded", "readyz", "healthz"),
    [
        (True, True, False, (200, "ok"), (200, "ok")),
        (True, True, True, (200, "degraded"), (200, "degraded")),
        (True, False, True, (503, "failing"), (200, "degraded")),
        (True, False, False, (503, "failing"), (200, "ok")),
        (False, True, True, (503, "failing"), (503, "failing")),
    ],
)
async def test_a_trouble_that_stops_no_service_is_told_and_takes_no_worker_away(
    alive: bool, ready: bool, degraded: bool, readyz: tuple[int, str], healthz: tuple[int, str]
) -> None:
    relay = ServiceHealth("relay", alive=alive, ready=ready, detail="1 blocked keys", degraded=degraded)
    services = [ServiceHealth("store", alive=True, ready=True), relay]
    async with TestClient(TestServer(health_app(lambda: services, Metrics()))) as client:
        for path, wanted in (("/readyz", readyz), ("/healthz", healthz)):
            answer = await client.get(path)
            told = await answer.json()
            assert (answer.status, told["status"]) == wanted
            assert told["services"] == [
                {"name": "store", "alive": True, "ready": True, "degraded": False},
                {"name": "relay", "alive": alive, "ready": ready, "degraded": degraded, "detail": "1 blocked keys"},
            ]


async def test_the_metrics_page_counts_what_the_verbs_answered(door: Door) -> None:
    await door.ok("list-jobs", {})
    await door.post("nonsense", {})
    status, page = await door.get("/metrics")
    assert status == 200
    assert 'workflow_runs_verbs_total{status="200",verb="list-jobs"} 1.0' in page
    assert 'workflow_runs_verbs_total{status="404",verb="unknown"} 1.0' in page


async def test_a_service_that_dies_ends_the_worker_with_75_and_hands_back_what_it_held(database_url: str) -> None:
    worker = Worker(load_settings(database_url=database_url, roles="runs", health_bind=""))
    running = asyncio.create_task(worker.run())
    await eventually(lambda: any(service.name == "runs" and service.ready for service in worker.health()), seconds=20)
    [listening] = [task for task in asyncio.all_tasks() if task.get_name() == "listener"]
    listening.cancel()
    assert await asyncio.wait_for(running, 20) == 75
