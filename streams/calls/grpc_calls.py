"""Unary gRPC calls of steps: bytes in, bytes out, errors translated once."""

import asyncio
import re
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

import grpc
import grpc.aio

from schemas.errors import CallFailed, ResourceExhausted, SegmentInterrupted
from streams.calls.channels import MOST_CHANNELS, Channels
from streams.calls.targets import Target, Targets
from streams.workflow.runner import CallRequest

# gRPC has one status for "busy" and for "too large", and only the text tells them apart. These are the words of the
# C, Go, Java, Node and .NET implementations, which stand in the middle of the text as often as at its start.
_TOO_LARGE: Final = re.compile(
    r"message (?:is )?larger than max|message exceeds maximum size|message exceeds the maximum configured",
    re.IGNORECASE,
)
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class CallContext:
    """On whose behalf a call is made: what a service needs to be idempotent on job id and step name.

    `attempt` is the number of the try. `traceparent` goes along where it is one by W3C Trace Context.
    """

    job_id: UUID
    attempt: int
    traceparent: str | None = None


class TargetCalls(Protocol):
    """Makes the call of one step.

    Raises:
        CallFailed: the call ended with another status than OK.
        SegmentInterrupted: no call was made, since this process does not serve the target, or is closing.
    """

    async def __call__(self, request: CallRequest, context: CallContext) -> bytes: ...


class GrpcCalls:
    """`TargetCalls` over gRPC, on one channel per address and transport.

    A call lasts at most *call_cap_seconds*, whatever its definition allows. A message over *message_bytes* fails the
    call for good, in either direction, with both sizes in the error. Cancelling a call cancels it at the service too.
    """

    def __init__(
        self,
        targets: Targets,
        *,
        message_bytes: int = 16 << 20,
        call_cap_seconds: float = 900,
        most_channels: int = MOST_CHANNELS,
        root_certificates: bytes | None = None,
    ) -> None:
        self._targets = targets
        self._message_bytes = message_bytes
        self._call_cap_seconds = call_cap_seconds
        self._channels = Channels(message_bytes=message_bytes, most=most_channels, root_certificates=root_certificates)
        self._closed = False

    @property
    def open_channels(self) -> int:
        """How many channels are open."""
        return len(self._channels)

    async def __call__(self, request: CallRequest, context: CallContext) -> bytes:
        target = self._targets.find(request.target)
        if target is None or self._closed:
            raise SegmentInterrupted(f"this worker does not serve the target {request.target}")
        most = min(self._message_bytes, target.message_bytes or self._message_bytes)
        if (size := len(request.payload)) > most:
            detail = f"the request is larger than max ({size} vs. {most} bytes)"
            raise CallFailed("RESOURCE_EXHAUSTED", detail, step=request.step, retryable=False)
        try:
            return await self._call(request, context, target)
        except grpc.aio.AioRpcError as error:
            raise _call_failed(error, request.step, target.token) from None
        except ResourceExhausted as error:
            raise CallFailed("RESOURCE_EXHAUSTED", str(error), step=request.step) from None
        except asyncio.CancelledError:
            # Closing a channel ends its calls as if their tasks had been cancelled.
            if self._closed and not _is_cancelled():
                raise SegmentInterrupted("the calls of this worker are closed") from None
            raise

    async def close(self) -> None:
        """Close every channel. A call still in flight ends with SegmentInterrupted, as does every later one."""
        self._closed = True
        await self._channels.close()

    async def _call(self, request: CallRequest, context: CallContext, target: Target) -> bytes:
        # Either side may ask for TLS, and then nothing is ever sent in plaintext.
        async with self._channels.to(
            target.address,
            tls=request.tls or target.tls,
            credentials=target.credentials,
            message_bytes=target.message_bytes,
        ) as channel:
            method = channel.unary_unary(request.method, request_serializer=None, response_deserializer=None)
            cap = min(self._call_cap_seconds, target.call_seconds or self._call_cap_seconds)
            timeout = min(request.timeout_seconds, cap)
            metadata = _metadata(request, context, target.token)
            response = await method(request.payload, timeout=timeout, metadata=metadata)
            return bytes(response)


def _metadata(request: CallRequest, context: CallContext, token: str | None) -> tuple[tuple[str, str], ...]:
    metadata: tuple[tuple[str, str], ...] = (
        ("job-id", str(context.job_id)),
        ("step-name", request.step),
        ("attempt", str(context.attempt)),
    )
    if context.traceparent is not None and _TRACEPARENT.fullmatch(context.traceparent):
        metadata += (("traceparent", context.traceparent),)
    if token is not None:
        metadata += (("authorization", f"Bearer {token}"),)
    return metadata


def _call_failed(error: grpc.aio.AioRpcError, step: str, token: str | None) -> CallFailed:
    code, detail = error.code().name, error.details() or ""
    if token is not None:  # a service may say in its error what it was sent
        detail = detail.replace(token, "***")
    too_large = code == "RESOURCE_EXHAUSTED" and _TOO_LARGE.search(detail) is not None
    return CallFailed(code, detail, step=step, retryable=False if too_large else None)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
