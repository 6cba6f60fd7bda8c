"""Requests of every kind, and what is no request, for as long as the chaos lasts."""

import asyncio
import json
import random
from uuid import UUID, uuid4

from tests.acceptance.fleet import PARTITIONS, WORKFLOW, Fleet
from tests.acceptance.producer import ANY_PARTITION, Request
from tests.chaos.services import Kind

_WEIGHTS = {Kind.PLAIN: 12, Kind.SLOW: 3, Kind.FLAKY: 3, Kind.BROKEN: 1, Kind.DOWN: 1, Kind.UNKNOWN: 1}
_POISON = (None, b"", b"no request", b"\x00\x00\x00\x00\x07", b"\x00\x00\x00\x03\xe9\x00\x0a", b'{"job_id": 7}')


class Load:
    """Puts a handful of records on the topic, again and again. `wanted` says how the run of each job must end."""

    def __init__(self, fleet: Fleet, chance: random.Random, *, per_second: float) -> None:
        self._fleet = fleet
        self._chance = chance
        self._pause_seconds = 1 / per_second
        self.wanted: dict[UUID, Kind] = {}
        self.sent = 0
        self.poison = 0
        self._last: list[Request] = []

    async def run(self) -> None:
        """Produce until cancelled."""
        while True:
            self._put_one()
            await asyncio.sleep(self._pause_seconds * self._chance.uniform(0.5, 1.5))

    def _put_one(self) -> None:
        self.sent += 1
        match self._chance.random():
            case roll if roll < 0.05:
                self._put_poison(self._chance.choice(_POISON), b"poison", self._chance.randrange(PARTITIONS))
            case roll if roll < 0.10 and self._last:
                self._fleet.producer.put(self._chance.choice(self._last))  # as a producer that retries does
            case roll if roll < 0.13 and self._last:
                known = self._chance.choice(self._last)
                other = {"job_id": str(known.job_id), "workflow_name": WORKFLOW, "input": {"text": "something else"}}
                # Under the same key, and so behind the request that it contradicts.
                self._put_poison(json.dumps(other).encode(), str(known.job_id).encode(), ANY_PARTITION)
            case _:
                self._put_request()

    def _put_request(self) -> None:
        [kind] = self._chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        workflow = "no-such" if kind is Kind.UNKNOWN else WORKFLOW
        request = Request(uuid4(), workflow, {"text": f"{kind} {self.sent}"})
        self.wanted[request.job_id] = kind
        self._fleet.producer.put(request, self._chance.choice(("protobuf", "json")))
        self._last = [*self._last[-50:], request]

    def _put_poison(self, value: bytes | None, key: bytes, partition: int) -> None:
        self.poison += 1
        self._fleet.producer.put_value(value, key, partition)
