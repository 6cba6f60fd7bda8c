"""A TCP proxy on loopback that breaks the network on request.

It runs in a thread of its own, so that tests of any kind can use it. With a Kafka broker, let the broker advertise the
proxy's port: else clients go round the proxy after their first answer.
"""

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Coroutine
from enum import StrEnum
from typing import Final

from streams.dev.ports import LOOPBACK, free_port
from streams.dev.server import Server

_CHUNK_BYTES: Final = 65_536
_CALL_SECONDS: Final = 10.0
# Closing with this answers the peer with a reset, not with an orderly end.
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class Direction(StrEnum):
    """Which way bytes go."""

    TO_SERVER = "to server"
    TO_CLIENT = "to client"


class FaultProxy(Server):
    """Forwards connections to one port; faults hold until `heal`, for connections that are open and new ones alike."""

    def __init__(self, target_port: int, *, port: int | None = None) -> None:
        """Describe the proxy for a server on `target_port` of 127.0.0.1; nothing is started yet."""
        self.port = port or free_port()
        self.target_port = target_port
        self.delay_seconds = 0.0
        self._flowing = {direction: asyncio.Event() for direction in Direction}
        self.passed_bytes: Counter[Direction] = Counter()
        self._cut_after: int | None = None
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._listener: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Where clients connect to, as host:port."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def open_connections(self) -> int:
        """How many connections are open through the proxy now."""
        return len(self._connections)

    def start(self) -> None:
        """Start to forward. Raises OSError when the port is taken."""
        if self._loop is not None:
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._thread.start()
        try:
            self.heal()
        except BaseException:
            self.close()
            raise

    def delay(self, seconds: float) -> None:
        """Hold what is sent, either way, for this long."""
        self.delay_seconds = seconds

    def silence(self, *directions: Direction) -> None:
        """Let nothing through in these directions (both when none is given); it arrives after `heal`."""
        self._call(self._set_flow(set(directions or Direction)))

    def refuse(self) -> None:
        """Refuse new connections; open ones go on."""
        self._call(self._close_listener())

    def cut_after(self, byte_count: int) -> None:
        """Reset the connection that brings the next this many bytes, either way, in the middle of what it sends."""
        self._cut_after = byte_count

    def reset_all(self) -> None:
        """Reset every open connection; clients may connect again at once."""
        self._call(self._reset_all())

    def heal(self) -> None:
        """End every fault; what was held is let through."""
        self.delay_seconds = 0.0
        self._cut_after = None
        self._call(self._set_flow(set()))
        self._call(self._listen())

    def stop(self) -> None:
        """Reset every connection and listen no more."""
        if self._loop is None or self._thread is None:
            return
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_SECONDS)
        self._loop.close()
        self._loop = self._thread = None

    def kill(self) -> None:
        """The same as `stop`."""
        self.stop()

    def close(self) -> None:
        """The same as `stop`: the proxy keeps nothing."""
        self.stop()

    def _call(self, work: Coroutine[object, object, None]) -> None:
        assert self._loop is not None, "the proxy was not started"
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_SECONDS)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._serve, LOOPBACK, self.port)

    async def _set_flow(self, silent: set[Direction]) -> None:
        for direction, flowing in self._flowing.items():
            if direction in silent:
                flowing.clear()
            else:
                flowing.set()

    async def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _end(self) -> None:
        await self._close_listener()
        await self._reset_all()

    async def _reset_all(self) -> None:
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writers = self._connections[task] = [writer]
        reset = False
        try:
            server_reader, server_writer = await asyncio.open_connection(LOOPBACK, self.target_port)
            writers.append(server_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(reader, server_writer, Direction.TO_SERVER))
                both.create_task(self._forward(server_reader, writer, Direction.TO_CLIENT))
        except* (OSError, asyncio.CancelledError):
            reset = True  # broken by either side, or reset on purpose
        for one in writers:
            _end_connection(one, reset=reset)
        del self._connections[task]

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await asyncio.sleep(self.delay_seconds)
            await self._flowing[direction].wait()
            if self._cuts(len(data)):
                writer.write(data[: len(data) // 2])
                await writer.drain()
                raise ConnectionResetError
            writer.write(data)
            await writer.drain()
            self.passed_bytes[direction] += len(data)
        if writer.can_write_eof():
            writer.write_eof()

    def _cuts(self, byte_count: int) -> bool:
        if self._cut_after is None:
            return False
        self._cut_after -= byte_count
        if self._cut_after > 0:
            return False
        self._cut_after = None
        return True


def _end_connection(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    connection: socket.socket | None = writer.get_extra_info("socket")
    if reset and connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        writer.transport.abort()
    else:
        writer.close()
