"""Messages that are too large: told from a busy service, although both go by the same status."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import pytest

from tests.driver.stories import TOKENIZE, TOKENS, tokenize_thrice
from tests.driver.world import World
from tests.fixtures.grpc_server import Answer

if TYPE_CHECKING:
    _Handler = grpc.GenericRpcHandler[bytes, bytes]
else:
    _Handler = grpc.GenericRpcHandler  # generic in the stubs alone

LIMIT = 4 << 20


def token_of(size: int) -> bytes:
    """Tokens with one token of *size* bytes."""
    length, left = bytearray(), size
    while left > 0x7F:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    return b"\n" + bytes([*length, left]) + b"0" * size


class Picky(_Handler):
    """Answers whatever is small enough for a server with default limits."""

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return grpc.unary_unary_rpc_method_handler(lambda request, context: TOKENS.payload)


@pytest.fixture
def picky_target() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Picky()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(grace=None).wait()


@pytest.mark.case("D21")
async def test_d21_a_response_over_our_limit_fails_the_run_at_once_with_both_sizes(world: World) -> None:
    world.server.script(TOKENIZE, Answer(token_of(5_000_000)))
    world.targets["tokenizer"]["message_bytes"] = LIMIT
    job_id = await world.run()

    async with world.worker():
        row = await world.until_status(job_id, "FAILED")

    assert "5000005" in row["error"]
    assert str(LIMIT) in row["error"]
    assert len(world.server.calls(TOKENIZE)) == 1


@pytest.mark.case("D21")
async def test_d21_a_request_over_the_services_limit_fails_the_run_at_once_with_both_sizes(
    world: World, picky_target: str
) -> None:
    world.targets["tokenizer"] = {"address": picky_target}
    job_id = await world.run(input='{"text": "%s"}' % ("0" * 5_000_000))

    async with world.worker():
        row = await world.until_status(job_id, "FAILED")

    assert "5000005" in row["error"]
    assert str(LIMIT) in row["error"]
    assert row["attempt"] == 1


@pytest.mark.case("D21")
async def test_d21_a_service_that_is_busy_is_tried_again(world: World) -> None:
    busy = Answer(status=grpc.StatusCode.RESOURCE_EXHAUSTED, details="queue full")
    world.server.script(TOKENIZE, busy, busy, TOKENS)
    job_id = await world.run()

    async with world.worker():
        await world.until_status(job_id, "COMPLETED")

    assert [call.metadata["attempt"] for call in world.server.calls(TOKENIZE)] == ["1", "2", "3"]


@pytest.mark.case("D21")
async def test_d21_large_responses_within_the_limit_are_kept_and_their_events_stay_small(world: World) -> None:
    world.server.script(TOKENIZE, Answer(token_of(3_900_000)))
    job_id = await world.run(tokenize_thrice())

    async with world.worker(message_bytes=LIMIT):
        row = await world.until_status(job_id, "COMPLETED")

    assert len(row["checkpoints"]) == 3
    assert await world.largest_event(job_id) < 10_000
