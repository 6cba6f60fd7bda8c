"""Calls over real gRPC: what goes along, what comes back, and that none is left open."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import grpc
import pytest

from schemas.errors import CallFailed, SegmentInterrupted
from streams.calls.grpc_calls import CallContext, GrpcCalls
from streams.calls.targets import Targets
from streams.workflow.runner import CallRequest
from tests.fixtures.grpc_server import Answer, ScriptedServer

METHOD = "/loan.v1.Scorer/Score"
JOB = UUID("0b7f6f0e-6a2f-4d0c-9a51-2f5a0d8d2c11")
CONTEXT = CallContext(JOB, attempt=2)
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


@contextlib.asynccontextmanager
async def opened(
    targets: Targets | None = None,
    *,
    message_bytes: int = 16 << 20,
    call_cap_seconds: float = 900,
    most_channels: int = 64,
    root_certificates: bytes | None = None,
) -> AsyncIterator[GrpcCalls]:
    calls = GrpcCalls(
        targets or Targets(),
        message_bytes=message_bytes,
        call_cap_seconds=call_cap_seconds,
        most_channels=most_channels,
        root_certificates=root_certificates,
    )
    try:
        yield calls
    finally:
        await calls.close()


def request_to(target: str, payload: bytes = b"ask", *, tls: bool = False, timeout_seconds: float = 10) -> CallRequest:
    return CallRequest("score", 0, target, tls, METHOD, payload, timeout_seconds, "loan.v1.Score")


async def test_a_call_carries_its_bytes_and_whose_it_is(grpc_server: ScriptedServer) -> None:
    grpc_server.script(METHOD, Answer(b"answer"))
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    async with opened() as calls:
        assert await calls(request_to(grpc_server.target), replace(CONTEXT, traceparent=trace)) == b"answer"

    [call] = grpc_server.calls(METHOD)
    assert call.request == b"ask"
    assert {name: call.metadata[name] for name in ("job-id", "step-name", "attempt", "traceparent")} == {
        "job-id": str(JOB),
        "step-name": "score",
        "attempt": "2",
        "traceparent": trace,
    }


@pytest.mark.parametrize("trace", [None, "", "my trace", "00-xyz", "naïve\n"])
async def test_what_is_no_traceparent_does_not_go_along(grpc_server: ScriptedServer, trace: str | None) -> None:
    grpc_server.script(METHOD, Answer())

    async with opened() as calls:
        assert await calls(request_to(grpc_server.target), replace(CONTEXT, traceparent=trace)) == b""

    assert "traceparent" not in grpc_server.calls(METHOD)[0].metadata


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        (grpc.StatusCode.UNAVAILABLE, True),
        (grpc.StatusCode.DEADLINE_EXCEEDED, True),
        (EXHAUSTED, True),
        (grpc.StatusCode.INVALID_ARGUMENT, False),
        (grpc.StatusCode.INTERNAL, False),
        (grpc.StatusCode.CANCELLED, False),
        (grpc.StatusCode.UNKNOWN, False),
    ],
)
async def test_a_status_other_than_ok_becomes_our_error(
    grpc_server: ScriptedServer, status: grpc.StatusCode, retryable: bool
) -> None:
    grpc_server.script(METHOD, Answer(status=status, details="as told"))

    async with opened() as calls:
        with pytest.raises(CallFailed) as failed:
            await calls(request_to(grpc_server.target), CONTEXT)

    assert str(failed.value) == f"GRPC: {status.name}: as told"
    assert (failed.value.code, failed.value.step, failed.value.retryable) == (status.name, "score", retryable)


async def test_a_service_that_is_not_there_is_unavailable_at_once_and_called_again_once_it_is(
    grpc_server: ScriptedServer,
) -> None:
    grpc_server.script(METHOD, Answer(b"back"))
    grpc_server.stop()

    async with opened() as calls:
        with pytest.raises(CallFailed, match="UNAVAILABLE"):
            await calls(request_to(grpc_server.target), CONTEXT)
        grpc_server.start()
        async with asyncio.timeout(5):
            while True:
                with contextlib.suppress(CallFailed):
                    assert await calls(request_to(grpc_server.target), CONTEXT) == b"back"
                    break
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("words", ["CLIENT: Received message larger than max (5000005 vs. 4194304)", "queue full"])
async def test_only_too_large_is_for_good(grpc_server: ScriptedServer, words: str) -> None:
    grpc_server.script(METHOD, Answer(status=EXHAUSTED, details=words))

    async with opened() as calls:
        with pytest.raises(CallFailed) as failed:
            await calls(request_to(grpc_server.target), CONTEXT)

    assert failed.value.retryable is (words == "queue full")


async def test_a_response_over_the_limit_is_refused_for_good_with_both_sizes(grpc_server: ScriptedServer) -> None:
    grpc_server.script(METHOD, Answer(b"x" * 5000))

    async with opened(message_bytes=4096) as calls:
        with pytest.raises(CallFailed, match=r"5000 vs\. 4096") as failed:
            await calls(request_to(grpc_server.target), CONTEXT)

    assert failed.value.retryable is False


async def test_a_request_over_the_limit_is_never_sent(grpc_server: ScriptedServer) -> None:
    async with opened(message_bytes=4096) as calls:
        with pytest.raises(CallFailed, match=r"RESOURCE_EXHAUSTED.*5000 vs\. 4096") as failed:
            await calls(request_to(grpc_server.target, b"x" * 5000), CONTEXT)

    assert failed.value.retryable is False
    assert grpc_server.calls() == []


async def test_a_large_message_within_the_limit_goes_both_ways(grpc_server: ScriptedServer) -> None:
    grpc_server.script(METHOD, Answer(b"y" * 5_000_000))

    async with opened() as calls:
        assert len(await calls(request_to(grpc_server.target, b"x" * 5_000_000), CONTEXT)) == 5_000_000


@pytest.mark.parametrize(("asked", "cap", "most"), [(0.25, 10, 0.25), (600, 10, 10)])
async def test_a_call_gets_the_time_it_asks_for_and_never_more_than_the_cap(
    grpc_server: ScriptedServer, asked: float, cap: float, most: float
) -> None:
    grpc_server.script(METHOD, Answer())

    async with opened(call_cap_seconds=cap) as calls:
        await calls(request_to(grpc_server.target, timeout_seconds=asked), CONTEXT)

    seconds_left = grpc_server.calls(METHOD)[0].seconds_left
    assert seconds_left is not None
    # gRPC sends few digits and rounds them up, by 0.1 s from 10 s on, and its clocks are coarse.
    assert 0 < seconds_left <= most * 1.01 + 0.05


async def test_a_call_that_takes_longer_ends_as_deadline_exceeded(grpc_server: ScriptedServer) -> None:
    with grpc_server.holding(METHOD):
        async with opened() as calls:
            with pytest.raises(CallFailed, match="DEADLINE_EXCEEDED"):
                await calls(request_to(grpc_server.target, timeout_seconds=0.1), CONTEXT)


async def test_cancelling_a_call_cancels_it_at_the_service(grpc_server: ScriptedServer) -> None:
    with grpc_server.holding(METHOD) as held:
        async with opened() as calls:
            call = asyncio.create_task(calls(request_to(grpc_server.target), CONTEXT))
            await held.arrived()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await grpc_server.calls(METHOD)[0].was_cut()


async def test_closing_ends_a_call_in_flight_as_interrupted_not_as_failed(grpc_server: ScriptedServer) -> None:
    with grpc_server.holding(METHOD) as held:
        async with opened() as calls:
            call = asyncio.create_task(calls(request_to(grpc_server.target), CONTEXT))
            await held.arrived()
            await calls.close()
            with pytest.raises(SegmentInterrupted):
                await call
            assert await grpc_server.calls(METHOD)[0].was_cut()
            with pytest.raises(SegmentInterrupted):
                await calls(request_to(grpc_server.target), CONTEXT)


async def test_a_target_that_is_not_served_is_not_called() -> None:
    async with opened() as calls:
        with pytest.raises(SegmentInterrupted, match="does not serve the target 10\\.0\\.0\\.1:80"):
            await calls(request_to("10.0.0.1:80"), CONTEXT)


@pytest.mark.spec(49)
async def test_calls_share_one_channel_per_address_and_transport(grpc_server: ScriptedServer) -> None:
    grpc_server.script(METHOD, Answer())

    async with opened() as calls:
        for _ in range(2):
            await calls(request_to(grpc_server.target), CONTEXT)
        assert calls.open_channels == 1
        with pytest.raises(CallFailed):
            await calls(request_to(grpc_server.target, tls=True), CONTEXT)
        assert calls.open_channels == 2


async def test_nothing_is_sent_in_plaintext_where_either_side_asks_for_tls(
    grpc_server: ScriptedServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    grpc_server.script(METHOD, Answer())
    file = tmp_path_factory.mktemp("targets") / "targets.yaml"
    file.write_text(
        f"secret: {{address: '{grpc_server.target}', tls: true}}\nplain: {{address: '{grpc_server.target}'}}"
    )

    async with opened(Targets(file)) as calls:
        for request in (request_to("secret"), request_to("plain", tls=True)):
            with pytest.raises(CallFailed, match="UNAVAILABLE"):
                await calls(request, CONTEXT)

    assert grpc_server.calls() == []


async def test_every_channel_in_use_is_told_as_exhausted_and_worth_another_try(grpc_server: ScriptedServer) -> None:
    other = ScriptedServer()
    other.start()
    other.script(METHOD, Answer(b"later"))
    try:
        async with opened(most_channels=1) as calls:
            with grpc_server.holding(METHOD) as held:
                grpc_server.script(METHOD, Answer())
                call = asyncio.create_task(calls(request_to(grpc_server.target), CONTEXT))
                await held.arrived()
                with pytest.raises(CallFailed, match="all 1 channels") as failed:
                    await calls(request_to(other.target), CONTEXT)
                assert (failed.value.code, failed.value.retryable) == ("RESOURCE_EXHAUSTED", True)
                held.release()
                await call
            assert await calls(request_to(other.target), CONTEXT) == b"later"
            assert calls.open_channels == 1
    finally:
        other.stop()
