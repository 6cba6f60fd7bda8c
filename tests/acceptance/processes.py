"""One worker as a process of its own, looked at from outside."""

import asyncio
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from streams.dev.guard import Guard
from streams.dev.processes import ChildProcess
from tests.acceptance.waiting import until

START_SECONDS = 90.0
_GET_SECONDS = 5.0


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker with these settings and none of the test's own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("WORKFLOW_RUNS_")}
    return {**inherited, **{f"WORKFLOW_RUNS_{name.upper()}": value for name, value in settings.items()}}


def start_worker(
    settings: Mapping[str, str], folder: Path, guard: Guard, *, number: int, shift_seconds: float = 0, zone: str = ""
) -> "WorkerProcess":
    """Start `workflow-runs worker`; its log is a file in *folder*.

    Its clock is *shift_seconds* ahead (see `tests.acceptance.shifted`), its local time that of *zone*.
    """
    name = settings["worker_id"]
    program = ["tests.acceptance.shifted", str(shift_seconds)] if shift_seconds else ["streams.cli"]
    process = ChildProcess(
        name,
        [sys.executable, "-m", *program, "worker"],
        log=folder / f"{number}-{name}.log",
        folder=Path(__file__).parents[2],
        environment={**environment(settings), **({"TZ": zone} if zone else {})},
        guard=guard,
    )
    process.start()
    return WorkerProcess(name, process, f"http://{settings['http_bind']}", f"http://{settings['health_bind']}")


@dataclass
class WorkerProcess:
    """A started worker. `name` is its worker id, `url` serves the verbs, `health_url` health and metrics."""

    name: str
    process: ChildProcess
    url: str
    health_url: str

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.running

    @property
    def log(self) -> str:
        """All that it has logged."""
        return self.process.log.read_text("utf-8", errors="replace")

    def kill(self) -> None:
        """End it at once, as a crash of the machine would."""
        self.process.kill()

    def terminate(self) -> None:
        """Ask it to stop, and do not wait."""
        self.process.send(signal.SIGTERM)

    async def wait(self, seconds: float) -> int:
        """Wait for its end and return its exit code."""
        return await asyncio.to_thread(self.process.wait, seconds)

    def pause(self) -> None:
        """Freeze it where it stands."""
        self.process.pause()

    def resume(self) -> None:
        """Let it go on."""
        self.process.resume()

    def close(self) -> None:
        self.process.close()

    async def ready(self) -> None:
        """Wait until every service of it can work."""
        seen: object = "no answer yet"

        async def is_ready() -> bool:
            nonlocal seen
            assert self.running, f"{self.name} ended with {self.process.returncode}: {self.process.tail()}"
            status, seen = await self.health("/readyz")
            return status == 200

        await until(is_ready, lambda: f"{self.name} is not ready: {seen}", seconds=START_SECONDS)

    async def call(self, verb: str, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Call a verb and return its answer. Raises OSError when there is none, or another than 200."""
        return await asyncio.to_thread(_post, f"{self.url}/verbs/{verb}", arguments)

    async def health(self, path: str) -> tuple[int, Any]:
        """The status and the JSON of `/healthz` or `/readyz`; status 0 when there is no answer."""
        return await health_of(self.health_url, path)

    async def count(self, metric: str, **labels: str) -> float:
        """The sum of a counter's or gauge's values that have these labels."""
        return await count_of(self.health_url, metric, **labels)


async def health_of(health_url: str, path: str) -> tuple[int, Any]:
    """What `WorkerProcess.health` says, of whichever worker has that address."""
    status, text = await asyncio.to_thread(_get, health_url + path)
    return status, json.loads(text) if status else text


async def count_of(health_url: str, metric: str, **labels: str) -> float:
    """What `WorkerProcess.count` says, of whichever worker has that address."""
    status, text = await asyncio.to_thread(_get, f"{health_url}/metrics")
    assert status == 200, text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return sum(
        sample.value
        for sample in samples
        if sample.name == f"workflow_runs_{metric}" and labels.items() <= sample.labels.items()
    )


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=_GET_SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def _post(url: str, body: Mapping[str, object]) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=10) as response:
        return dict(json.loads(response.read()))
