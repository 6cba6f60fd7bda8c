"""Worker processes that start in no time: forked from one that has imported everything and started nothing."""

import asyncio
import ctypes
import json
import multiprocessing
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from streams.dev.commit_points import VARIABLE
from streams.dev.ports import LOOPBACK, free_port
from tests.acceptance.processes import environment
from tests.acceptance.waiting import until

_START_SECONDS = 40.0
_END_SECONDS = 30.0
_DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


@dataclass
class Forked:
    """A worker process of its own; `url` serves the verbs where it has the role."""

    process: BaseProcess
    url: str
    health_url: str
    log_file: Path

    @property
    def log(self) -> str:
        return self.log_file.read_text("utf-8", errors="replace")

    async def is_ready(self) -> bool:
        """Whether every service of it can work."""
        return await asyncio.to_thread(_answers, f"{self.health_url}/readyz")

    async def ready(self) -> None:
        """Wait until it can work."""

        async def ready() -> bool:
            assert self.process.is_alive(), self.log
            return await self.is_ready()

        await until(ready, lambda: self.log, seconds=_START_SECONDS)

    async def was_killed(self) -> None:
        """Wait for its end, which must be SIGKILL's."""
        await until(
            lambda: not self.process.is_alive(), lambda: f"it never came there: {self.log}", seconds=_END_SECONDS
        )
        assert self.process.exitcode == -signal.SIGKILL, self.log

    async def call(self, verb: str, arguments: Mapping[str, object]) -> Any:
        """Call a verb and return its answer; None when the worker dies meanwhile."""
        return await asyncio.to_thread(_post, f"{self.url}/verbs/{verb}", arguments)

    def terminate(self) -> None:
        """Ask it to stop, and do not wait."""
        self.process.terminate()

    def kill(self) -> None:
        """End it at once, as a crash would, and wait for its end."""
        self.process.kill()
        self.process.join()

    async def wait(self, seconds: float) -> int:
        """Wait for its end and return its exit code."""
        await until(lambda: not self.process.is_alive(), lambda: f"it does not end: {self.log}", seconds=seconds)
        assert self.process.exitcode is not None
        return self.process.exitcode

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.process.close()


def fork_worker(settings: Mapping[str, object], folder: Path, *, stop_at: str | None = None) -> Forked:
    """Start `workflow-runs worker` with these settings; at the commit point *stop_at* it kills itself."""
    number = len(list(folder.glob("worker-*.log")))
    web, health = free_port(), free_port()
    addresses = {"http_bind": f"{LOOPBACK}:{web}", "health_bind": f"{LOOPBACK}:{health}"}
    variables = environment({name: str(value) for name, value in {**addresses, **settings}.items()})
    if stop_at is not None:
        variables[VARIABLE] = stop_at
    log = folder / f"worker-{number}.log"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "tests.acceptance.preloaded"])
    process = context.Process(target=_work, args=(variables, str(log)), daemon=True)
    process.start()
    return Forked(process, f"http://{LOOPBACK}:{web}", f"http://{LOOPBACK}:{health}", log)


def _work(variables: Mapping[str, str], log: str) -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    os.environ.clear()
    os.environ.update(variables)
    with open(log, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    from streams.cli.main import main

    main(["worker"])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _post(url: str, arguments: Mapping[str, object]) -> Any:
    request = urllib.request.Request(url, json.dumps(arguments).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            raise AssertionError(f"{url}: {error.code} {error.read().decode()}") from None
    except OSError:
        return None
