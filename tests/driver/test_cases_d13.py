"""D13: one slow target. It gets as many calls as its permits, whatever becomes of them, and holds up nobody else."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.driver.stories import TOKENS, embed_only, tokenize_thrice
from tests.driver.world import World, until

if TYPE_CHECKING:
    _Handler = grpc.GenericRpcHandler[bytes, bytes]
else:
    _Handler = grpc.GenericRpcHandler  # generic in the stubs alone

CAP = 2
JOBS = 40
LOOPS = 8
FAULTS_OF_EACH_KIND = 5
QUICK_SECONDS = 5


@dataclass
class Slow(_Handler):
    """Holds each call until it is let go, or until the client gives up, and counts those in flight."""

    in_flight: int = 0
    most: int = 0
    arrived: int = 0
    going: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with self.lock:
            self.arrived += 1
            self.in_flight += 1
            self.most = max(self.most, self.in_flight)
        try:
            if b"raise" in request:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "it raised")
            while not self.going.wait(0.01) and context.is_active():
                pass
            return TOKENS.payload
        finally:
            with self.lock:
                self.in_flight -= 1


@pytest.fixture
def slow(world: World) -> Iterator[Slow]:
    """The target of the first service, with so many permits."""
    slow = Slow()
    server = grpc.server(ThreadPoolExecutor(16), handlers=[slow])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    world.targets["tokenizer"] = {"address": f"127.0.0.1:{port}", "permits": CAP}
    yield slow
    slow.going.set()
    server.stop(grace=None).wait()


def one_call(*, deadline_ms: int = 0) -> dict[str, Any]:
    """A single call, to the slow service."""
    document = tokenize_thrice()
    return {**document, "steps": [{**document["steps"][0], "deadlineMs": deadline_ms}]}


@pytest.mark.case("D13")
async def test_d13_a_slow_target_starves_no_other_and_is_not_claimed_for_without_a_permit(
    world: World, slow: Slow
) -> None:
    slow_jobs = [await world.run(one_call()) for _ in range(JOBS)]
    quick_jobs = [await world.run(embed_only()) for _ in range(JOBS)]

    async with world.worker(in_flight=LOOPS, lease_seconds=5):
        started_at = time.monotonic()
        for job_id in quick_jobs:
            await world.until_status(job_id, "COMPLETED")
        took = time.monotonic() - started_at
        await until(lambda: slow.in_flight == CAP)
        assert slow.arrived == CAP
        slow.going.set()
        rows = [await world.until_status(job_id, "COMPLETED") for job_id in slow_jobs]

    assert took < QUICK_SECONDS
    assert slow.most == CAP
    # Waiting for a permit is no claim, no lost lease and no try: each was claimed and called once.
    assert slow.arrived == JOBS
    assert {(row["fence"], row["lost_leases"], row["last_error"]) for row in rows} == {(1, 0, None)}


@pytest.mark.case("D13")
async def test_d13_no_permit_is_lost_or_doubled_by_what_becomes_of_a_call(world: World, slow: Slow) -> None:
    for _ in range(FAULTS_OF_EACH_KIND):
        async with world.worker(in_flight=LOOPS, lease_seconds=5):
            await _cancelled(world, slow)
            await _timed_out(world)
            await _raised(world)
            stopped = await world.run(one_call())
            await until(lambda: slow.in_flight > 0)
        assert (await world.row(stopped))["status"] == "QUEUED"
        await world.control().cancel(tenant_id="default", job_id=stopped, reason="another worker is to begin anew")
        await until(lambda: slow.in_flight == 0)

    async with world.worker(in_flight=LOOPS, lease_seconds=5):
        for _ in range(FAULTS_OF_EACH_KIND):
            await _cancelled(world, slow)
            await _timed_out(world)
            await _raised(world)
        jobs = [await world.run(one_call()) for _ in range(3 * CAP)]
        await until(lambda: slow.in_flight == CAP)
        slow.going.set()
        for job_id in jobs:
            await world.until_status(job_id, "COMPLETED")

    assert slow.most == CAP


async def _cancelled(world: World, slow: Slow) -> None:
    """A run that is cancelled in the middle of its call."""
    job_id = await world.run(one_call())
    await until(lambda: slow.in_flight == 1)
    await world.control().cancel(tenant_id="default", job_id=job_id, reason="not needed any more")
    await until(lambda: slow.in_flight == 0)


async def _timed_out(world: World) -> None:
    """A run whose only try takes too long."""
    row = await world.until_status(await world.run(one_call(deadline_ms=50), max_attempts=1), "DEAD")
    assert "DEADLINE_EXCEEDED" in row["error"]


async def _raised(world: World) -> None:
    """A run whose call fails for good."""
    await world.until_status(await world.run(one_call(), input='{"text": "raise"}'), "FAILED")
