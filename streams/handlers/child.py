"""The process of a handler that asked for one: a fresh interpreter that imports its module and serves call after call.

    python -P child.py <sys.path as JSON>

Frames come on standard input and go out on standard output, which people's code sees as nothing and standard error.
"""

import asyncio
import json
import logging
import os
import queue
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from uuid import UUID

if TYPE_CHECKING:
    from streams.handlers.frames import Frame
    from streams.handlers.values import Served
    from streams.workflow.descriptors import SchemaSet

_SCHEMAS_KEPT: Final = 16


def main(path: str) -> None:
    """Serve until the worker ends."""
    sys.path[:] = json.loads(path)
    wire_in, wire_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    frames: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(wire_in, frames), daemon=True).start()
    _Server(frames, wire_out).serve()


def _listen(wire: BinaryIO, frames: "queue.SimpleQueue[Frame]") -> None:
    """Hand over what comes. The worker's end is the end of this process, whatever its handler is at."""
    from streams.handlers.frames import read_frame_from

    while (frame := read_frame_from(wire)) is not None:
        frames.put(frame)
    os._exit(0)


class _Server:
    def __init__(self, frames: "queue.SimpleQueue[Frame]", wire: BinaryIO) -> None:
        self._frames = frames
        self._wire = wire
        self._lock = threading.Lock()
        self._schemas: OrderedDict[str, SchemaSet] = OrderedDict()

    def serve(self) -> None:
        logging.basicConfig(level=logging.INFO, handlers=[_LogFrames(self._send)], force=True)
        served = self._load(*self._frames.get())
        while True:
            self._answer(served, *self._frames.get())

    def _load(self, setup: dict[str, Any], _: bytes) -> "Served":
        from importlib import import_module

        from streams.handlers.declarations import declared_in
        from streams.handlers.values import served

        declarations = declared_in(import_module(setup["module"]))
        return served(next(one for one in declarations if one.target == setup["target"]))

    def _answer(self, served: "Served", header: dict[str, Any], payload: bytes) -> None:
        from schemas.errors import StepFailed
        from streams.handlers.running import awaited, called
        from streams.handlers.values import Given

        context = self._context(header)
        try:
            given = Given(
                payload, header["request_type"], header["response_type"], partial(self._schema, header["schema"])
            )
            if served.declaration.is_async:
                response = asyncio.run(awaited(served, given, context))
            else:
                response = called(served, given, context)
        except StepFailed as error:
            if error.__cause__ is not None:
                logging.getLogger("handlers").warning("the handler failed", exc_info=error.__cause__)
            message = str(error).removeprefix(f"{error.kind}: ")
            after = getattr(error, "after_seconds", None)
            self._send({"failed": type(error).__name__, "message": _sendable(message), "after": after})
        else:
            self._send({"done": True}, response)

    def _context(self, header: dict[str, Any]) -> Any:
        from streams.handlers.context import Context

        return Context(
            job_id=UUID(header["job_id"]),
            tenant_id=header["tenant_id"],
            step=header["step"],
            attempt=header["attempt"],
            deadline=datetime.fromisoformat(header["deadline"]),
            log=logging.getLogger(header["log"]),
            report=lambda done, total: self._send({"progress": [done, total]}),
        )

    def _schema(self, key: str) -> "SchemaSet":
        """The schema set of that hash, which the worker sends at the first use."""
        from streams.workflow.descriptors import SchemaSet

        if key not in self._schemas:
            self._send({"wants": key})
            _, data = self._frames.get()
            self._schemas[key] = SchemaSet.from_bytes(data)
            while len(self._schemas) > _SCHEMAS_KEPT:
                self._schemas.popitem(last=False)
        self._schemas.move_to_end(key)
        return self._schemas[key]

    def _send(self, header: dict[str, Any], blob: bytes = b"") -> None:
        from streams.handlers.frames import packed

        data = memoryview(packed(header, blob))
        with self._lock:
            while data:
                data = data[self._wire.write(data) :]


class _LogFrames(logging.Handler):
    """Passes log records on to the worker, whose log says which run they belong to."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._send_frame = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._send_frame({"log": [record.name, record.levelno, _sendable(self.format(record))]})
        except Exception:  # noqa: BLE001  # logging never fails its caller
            self.handleError(record)


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


if __name__ == "__main__":
    main(sys.argv[1])
