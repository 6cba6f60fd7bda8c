"""Handlers for tests, one for each way to run. What a call does is the text of its request, a key of `DOES`."""

import asyncio
import ctypes
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from streams.handlers import Context, Reject, Retry, handler, job

SOURCE = """
syntax = "proto3";
package steps.v1;
import "google/protobuf/struct.proto";
message Ask { string text = 1; }
message Reply { string text = 1; double ratio = 2; google.protobuf.Struct extras = 3; }
message Other { string text = 1; }
service Steps {
  rpc Sync(Ask) returns (Reply);
  rpc Async(Ask) returns (Reply);
  rpc Child(Ask) returns (Reply);
  rpc AsyncChild(Ask) returns (Reply);
  rpc Narrow(Ask) returns (Reply);
  rpc Slow(Ask) returns (Reply);
  rpc Write(Ask) returns (Reply);
  rpc AsyncWrite(Ask) returns (Reply);
  rpc Nobody(Ask) returns (Reply);
}
"""


def _classes() -> tuple[Any, Any, Any]:
    """What `protoc` would have generated for a program of its own."""
    file = FileDescriptorProto(name="steps.proto", package="steps.v1", syntax="proto3")
    file.dependency.append("google/protobuf/struct.proto")
    for name in ("Ask", "Reply", "Other"):
        message = file.message_type.add(name=name)
        message.field.add(name="text", number=1, type=9, label=1)
        if name == "Reply":
            message.field.add(name="ratio", number=2, type=1, label=1)
            message.field.add(name="extras", number=3, type=11, label=1, type_name=".google.protobuf.Struct")
    from google.protobuf import struct_pb2

    pool = DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    ask, reply, other = (pool.FindMessageTypeByName(f"steps.v1.{name}") for name in ("Ask", "Reply", "Other"))
    return tuple(message_factory.GetMessageClass(one) for one in (ask, reply, other))  # type: ignore[return-value]


Ask, Reply, Other = _classes()


class Odd(BaseException):
    """No Exception."""


class Seen:
    """What was called in this process, and what holds calls up."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int]] = []
        self.stopped: list[str] = []
        self.gate = threading.Event()
        self.arrived = threading.Event()
        self.now = 0
        self.most = 0
        self._counting = threading.Lock()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count how many calls there are at once."""
        with self._counting:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self._counting:
                self.now -= 1

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]


SEEN = Seen()


def _raises(error: BaseException) -> Callable[[Any, Context], object]:
    def do(request: Any, context: Context) -> object:
        raise error

    return do


def _waits(request: Any, context: Context) -> object:
    SEEN.arrived.set()
    while not SEEN.gate.wait(0.005):
        if context.cancelled():
            SEEN.stopped.append(context.step)
            break
    return Reply(text="waited")


def _blocks(request: Any, context: Context) -> object:
    """Asks nobody whether to go on."""
    SEEN.arrived.set()
    assert SEEN.gate.wait(30)
    return Reply(text="blocked")


def _spins(request: Any, context: Context) -> object:
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        pass
    return Reply(text="spun")


def _sleeps(request: Any, context: Context) -> object:
    time.sleep(1.5)  # the scenario itself: it blocks whatever it runs in, also the loop of async handlers
    return Reply(text="slept")


def _holds_the_gil(request: Any, context: Context) -> object:
    ctypes.PyDLL(None).usleep(300_000)
    return Reply(text="held")


def _tells(request: Any, context: Context) -> object:
    context.progress(1, 3)
    context.progress(2, 3)
    context.log.warning("told of %s", context.step)
    return Reply(
        text=f"{context.job_id} {context.tenant_id} {context.step} {context.attempt} {context.deadline.tzinfo}"
    )


def _fails_twice(request: Any, context: Context) -> object:
    if context.attempt < 3:
        raise Retry("not yet", after=0.01)
    return Reply(text="at last")


def _with_extras(number: float) -> Any:
    reply = Reply()
    reply.extras.update({"score": number})
    return reply


class _Unshowable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


DOES: dict[str, Callable[[Any, Context], object]] = {
    "reply": lambda request, context: Reply(text=f"{type(request).__name__} {request.text}"),
    "nothing": lambda request, context: None,
    "a list": lambda request, context: ["a"],
    "a dict": lambda request, context: {"text": "a", "extras": {"score": 1}},
    "an odd dict": lambda request, context: {"txt": "a"},
    "nan in dict": lambda request, context: {"ratio": float("nan")},
    "inf in dict": lambda request, context: {"extras": {"score": float("inf")}},
    "another type": lambda request, context: Other(text="a"),
    "nan": lambda request, context: Reply(ratio=float("nan")),
    "nan in struct": lambda request, context: _with_extras(float("nan")),
    "inf in struct": lambda request, context: _with_extras(float("inf")),
    "nul": lambda request, context: Reply(text="a\0b"),
    "error": _raises(ValueError("no good")),
    "error with nul": _raises(ValueError("no\0good")),
    "unshowable": _raises(_Unshowable()),
    "stop iteration": _raises(StopIteration("x")),
    "time-out": _raises(TimeoutError("mine")),
    "sys.exit": _raises(SystemExit(3)),
    "interrupt": _raises(KeyboardInterrupt()),
    "odd": _raises(Odd("odd")),
    "cancelled": _raises(asyncio.CancelledError()),
    "retry": _raises(Retry("busy", after=300)),
    "fails twice": _fails_twice,
    "reject": _raises(Reject("not in our region")),
    "waits": _waits,
    "blocks": _blocks,
    "spins": _spins,
    "holds the gil": _holds_the_gil,
    "sleeps": _sleeps,
    "tells": _tells,
    "_exit": lambda request, context: os._exit(137),
    "overflow": lambda request, context: faulthandler._stack_overflow(),  # type: ignore[attr-defined]
    "pid": lambda request, context: Reply(text=str(os.getpid())),
    "environment": lambda request, context: Reply(text=" ".join(sorted(os.environ))),
    "prints": lambda request, context: print("out", flush=True) or sys.stdin.read() or Reply(text="printed"),
    # Whoever calls this one must end its process: it does not come back by itself.
    "forever": lambda request, context: time.sleep(600),
}


def _do(request: Any, context: Context) -> object:
    SEEN.calls.append((context.step, request.text, context.attempt))
    return DOES[request.text](request, context)


@handler("steps.v1.Steps/Sync", permits=4)
def sync_step(request: Ask, context: Context) -> Reply:  # type: ignore[valid-type]
    return _do(request, context)


@handler("steps.v1.Steps/Async", permits=4)
async def async_step(request: Any, context: Context) -> Any:
    SEEN.calls.append((context.step, request.text, context.attempt))
    if request.text == "waits":
        SEEN.arrived.set()
        try:
            await asyncio.to_thread(SEEN.gate.wait, 30)
        except asyncio.CancelledError:
            SEEN.stopped.append(context.step)
            raise
        return Reply(text="waited")
    await asyncio.sleep(0)
    return DOES[request.text](request, context)


@handler("steps.v1.Steps/Child", process="child")
def child_step(request: Ask, context: Context) -> Reply:  # type: ignore[valid-type]
    return _do(request, context)


@handler("steps.v1.Steps/AsyncChild", process="child", permits=1)
async def async_child_step(request: Any, context: Context) -> Any:
    await asyncio.sleep(0)
    return _do(request, context)


@handler("steps.v1.Steps/Narrow", permits=2, timeout_seconds=0.1)
def narrow_step(request: Any, context: Context) -> Any:
    with SEEN.at_work():
        return _do(request, context)


@handler("steps.v1.Steps/Slow", permits=2)
def slow_step(request: Any, context: Context) -> Any:
    with SEEN.at_work():
        return _do(request, context)


@job("reindex")
@job("reindex-apart", process="child")
def reindex(data: dict[str, object], context: Context) -> object:
    SEEN.calls.append((context.step, str(data.get("do")), context.attempt))
    match data.get("do"):
        case "nan":
            return {"ratio": float("nan")}
        case "a set":
            return {1, 2}
        case "nothing":
            return None
    return {"given": data, "pages": 3}
