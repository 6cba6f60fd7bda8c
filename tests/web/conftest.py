"""A whole worker without Kafka, in this process, called over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from streams.settings import load_settings
from streams.worker import Worker
from tests.driver.stories import EMBED, TOKENIZE, TOKENS, VECTOR
from tests.fixtures.grpc_server import ScriptedServer

WAIT_SECONDS = 15.0


@dataclass
class Door:
    """The web servers of one worker. `post` answers status and JSON."""

    url: str
    health_url: str
    session: aiohttp.ClientSession
    worker: Worker

    async def post(self, verb: str, call: object, **headers: str) -> tuple[int, Any]:
        body = call if isinstance(call, bytes) else json.dumps(call).encode()
        sent = {"Content-Type": "application/json", **headers}
        async with self.session.post(f"{self.url}/verbs/{verb}", data=body, headers=sent) as response:
            return response.status, json.loads(await response.read())

    async def ok(self, verb: str, call: object) -> dict[str, Any]:
        """Call a verb that is expected to answer 200, and return its answer."""
        status, answer = await self.post(verb, call)
        assert status == 200, answer
        return dict(answer)

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(f"{self.health_url}{path}") as response:
            return response.status, await response.text()

    async def job(self, job_id: str) -> dict[str, Any]:
        return dict((await self.ok("get-job", {"jobId": job_id}))["job"])

    async def until(self, job_id: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                if holds(job := await self.job(job_id)):
                    return job
                await asyncio.sleep(0.02)

    async def until_status(self, job_id: str, status: str) -> dict[str, Any]:
        return await self.until(job_id, lambda job: job["status"] == status)


@asynccontextmanager
async def opened_door(**settings: object) -> AsyncIterator[Door]:
    """A worker with *settings*, stopped at the end of the block as SIGTERM stops it."""
    worker = Worker(load_settings(http_bind="127.0.0.1:0", health_bind="localhost:0", **settings))
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(WAIT_SECONDS):
        while len(worker.web.addresses) < 2:
            await asyncio.sleep(0.01)
            if running.done():
                running.result()
    async with aiohttp.ClientSession() as session:
        yield Door(worker.web.addresses["127.0.0.1:0"], worker.web.addresses["localhost:0"], session, worker)
    worker.stop()
    assert await running == 0


@pytest.fixture
async def door(database_url: str, grpc_server: ScriptedServer, tmp_path: Path) -> AsyncIterator[Door]:
    """A worker that drives runs; both services of the story answer."""
    grpc_server.script(TOKENIZE, TOKENS)
    grpc_server.script(EMBED, VECTOR)
    targets = tmp_path / "targets.yaml"
    targets.write_text(json.dumps({name: {"address": grpc_server.target} for name in ("tokenizer", "embedder")}))
    async with opened_door(
        database_url=database_url, roles="runs,web", targets_file=targets, lease_seconds=5, drain_grace_seconds=2
    ) as door:
        yield door
