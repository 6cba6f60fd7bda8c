"""Answers that tests ask for in place of the registry's own."""

from collections import deque
from dataclasses import dataclass

from aiohttp import web

from streams.dev.registry.model import FAULTS_PATH, REQUESTS_PATH


@dataclass(frozen=True, slots=True)
class Fault:
    """What one call gets: a wait, then an error status, or the honest answer when the status is 0."""

    status: int = 0
    delay_seconds: float = 0.0


class Faults:
    """Faults for the calls to come, each used up by one call."""

    def __init__(self) -> None:
        self._waiting: deque[Fault] = deque()

    def add(self, fault: Fault, count: int) -> None:
        """Let the next `count` calls, after those that earlier faults are for, meet this fault."""
        self._waiting.extend([fault] * count)

    def clear(self) -> None:
        """Forget the faults that no call has met."""
        self._waiting.clear()

    def next(self) -> Fault:
        """Take the fault of the call that arrives now."""
        return self._waiting.popleft() if self._waiting else Fault()


def fault_routes(faults: Faults, requests: list[str]) -> list[web.RouteDef]:
    """Return the calls by which tests ask for faults, and read which calls came."""

    async def add(request: web.Request) -> web.Response:
        body = await request.json()
        fault = Fault(status=int(body.get("status", 0)), delay_seconds=float(body.get("delay_seconds", 0)))
        faults.add(fault, int(body.get("count", 1)))
        return web.json_response({})

    async def clear(request: web.Request) -> web.Response:
        faults.clear()
        return web.json_response({})

    async def seen(request: web.Request) -> web.Response:
        return web.json_response(requests)

    return [web.post(FAULTS_PATH, add), web.delete(FAULTS_PATH, clear), web.get(REQUESTS_PATH, seen)]
