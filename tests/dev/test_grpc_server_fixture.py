"""The scripted gRPC server: answers in order, keeps calls, holds them, and sees that a client gave up."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from tests.fixtures.grpc_server import Answer, ScriptedServer

METHOD = "/acme.v1.Tokenizer/Tokenize"


@pytest.fixture
async def channel(grpc_server: ScriptedServer) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(grpc_server.target) as channel:
        yield channel


def _call(
    channel: grpc.aio.Channel, request: bytes = b"", timeout: float = 20
) -> "grpc.aio.UnaryUnaryCall[bytes, bytes]":
    return channel.unary_unary(METHOD, bytes, bytes)(request, timeout=timeout, metadata=(("job-id", "j1"),))


async def test_answers_come_in_order_and_the_last_one_repeats(
    grpc_server: ScriptedServer, channel: grpc.aio.Channel
) -> None:
    grpc_server.script(METHOD, Answer(status=grpc.StatusCode.UNAVAILABLE, details="away"), Answer(b"\x0a\x01a"))
    with pytest.raises(grpc.aio.AioRpcError, match="away") as refused:
        await _call(channel)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert [await _call(channel, b"x"), await _call(channel)] == [b"\x0a\x01a", b"\x0a\x01a"]
    assert [call.request for call in grpc_server.calls(METHOD)] == [b"", b"x", b""]
    assert grpc_server.calls()[0].metadata["job-id"] == "j1"


async def test_a_method_without_a_script_is_unimplemented(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _call(channel)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_held_call_waits_for_its_release(grpc_server: ScriptedServer, channel: grpc.aio.Channel) -> None:
    grpc_server.script(METHOD, Answer(b"late"))
    with grpc_server.holding(METHOD) as hold:
        call = _call(channel)
        await hold.arrived()
        assert not call.done()
        hold.release()
        assert await call == b"late"


async def test_a_cancelled_call_is_seen_as_cut(grpc_server: ScriptedServer, channel: grpc.aio.Channel) -> None:
    grpc_server.script(METHOD, Answer(b"never"), Answer(b"in time"))
    with grpc_server.holding(METHOD) as hold:
        call = _call(channel)
        await hold.arrived()
        call.cancel()
        assert await grpc_server.calls()[0].was_cut()
    assert await _call(channel) == b"in time"
    assert not await grpc_server.calls()[1].was_cut()


async def test_a_stopped_server_comes_back_on_its_port(grpc_server: ScriptedServer) -> None:
    grpc_server.script(METHOD, Answer(b"here"))
    await asyncio.to_thread(grpc_server.stop)
    async with grpc.aio.insecure_channel(grpc_server.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await _call(channel)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    grpc_server.start()
    # Channels of one process share connections, and the back-off after the refusal, unless told otherwise.
    fresh = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(grpc_server.target, options=fresh) as channel:
        assert await _call(channel) == b"here"
