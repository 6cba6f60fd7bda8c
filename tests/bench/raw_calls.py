"""The raw limit of the calls: as many of them on one channel, 128 in flight, and nothing between them."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Final

import grpc
import grpc.aio
import uvloop
from google.protobuf.wrappers_pb2 import StringValue

from tests.bench.workload import METHOD, STEPS, WorkRequest

_CALL_SECONDS: Final = 30.0


def make_calls(address: str, requests: Sequence[WorkRequest], in_flight: int) -> float:
    """Make the calls of *requests*, one run's after the other, and return how many seconds that took."""
    return uvloop.run(_drive(address, requests, in_flight))


async def _drive(address: str, requests: Sequence[WorkRequest], in_flight: int) -> float:
    async with grpc.aio.insecure_channel(address) as channel:
        await channel.channel_ready()
        waiting = iter(requests)
        began = time.perf_counter()
        await asyncio.gather(*(_run_each(channel, waiting) for _ in range(in_flight)))
        return time.perf_counter() - began


async def _run_each(channel: grpc.aio.Channel, waiting: Iterator[WorkRequest]) -> None:
    call = channel.unary_unary(f"/{METHOD}", request_serializer=None, response_deserializer=None)
    for request in waiting:
        # A message with one string in field 1, whatever its type is called.
        payload = StringValue(value=request.text).SerializeToString()
        for step in STEPS:
            metadata = (("job-id", str(request.job_id)), ("step-name", step), ("attempt", "1"))
            payload = await call(payload, timeout=_CALL_SECONDS, metadata=metadata)
