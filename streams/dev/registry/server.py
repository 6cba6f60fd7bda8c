"""The registry as a process of its own."""

import json
import sys
import urllib.request
from typing import Final

from streams.dev.guard import Guard
from streams.dev.ports import LOOPBACK, free_port
from streams.dev.processes import ChildProcess
from streams.dev.registry.model import FAULTS_PATH, REQUESTS_PATH
from streams.dev.server import Server

_START_SECONDS: Final = 20.0
_CALL_SECONDS: Final = 5.0


class RegistryServer(Server):
    """The stand-in on loopback. Its schemas are in memory: after `stop` or `kill` a new start begins without any."""

    def __init__(self, *, port: int | None = None) -> None:
        """Describe the server; a free port is taken when none is given. Nothing is started yet."""
        self.port = port or free_port()
        self._guard: Guard | None = None
        self._process: ChildProcess | None = None

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it, empty, and wait until it serves."""
        if self._process is None:
            self._guard = Guard()
            self._process = ChildProcess(
                "schema registry",
                [sys.executable, "-m", "streams.dev.registry", "--port", str(self.port)],
                log=self._guard.make_folder("registry") / "registry.log",
                guard=self._guard,
            )
        self._process.start_on(self.port, deadline_seconds=_START_SECONDS)

    def stop(self) -> None:
        """Stop it in order."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """Begin an outage that keeps all schemas: calls get no answer."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        """End the outage that `pause` began."""
        if self._process is not None:
            self._process.resume()

    def fail_next(self, count: int, *, status: int = 503, delay_seconds: float = 0.0) -> None:
        """Let the next calls wait and then be answered with an HTTP status; with status 0 they are only slow."""
        body = {"count": count, "status": status, "delay_seconds": delay_seconds}
        self._call("POST", FAULTS_PATH, json.dumps(body).encode())

    def heal(self) -> None:
        """Forget the faults that no call has met."""
        self._call("DELETE", FAULTS_PATH)

    def requests(self) -> list[str]:
        """Return the calls received since the start, as "GET /schemas/ids/1", in order."""
        return list(json.loads(self._call("GET", REQUESTS_PATH)))

    def close(self) -> None:
        """End it. To close twice is harmless."""
        if self._process is not None:
            self._process.close()
            self._process = None
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(self.url + path, data=body, method=method)
        with urllib.request.urlopen(request, timeout=_CALL_SECONDS) as response:
            return bytes(response.read())
