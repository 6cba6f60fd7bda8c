"""The fault proxy between a client and an echo server."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from streams.dev.faultproxy import Direction, FaultProxy
from streams.dev.ports import free_port

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def server_port() -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.fixture
def proxy(server_port: int) -> Iterator[FaultProxy]:
    with FaultProxy(server_port) as proxy:
        yield proxy


async def _connect(proxy: FaultProxy) -> Streams:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def _echo(streams: Streams, data: bytes, timeout_seconds: float = 5) -> bytes:
    reader, writer = streams
    writer.write(data)
    async with asyncio.timeout(timeout_seconds):
        return await reader.readexactly(len(data))


async def test_bytes_pass_and_are_counted(proxy: FaultProxy) -> None:
    streams = await _connect(proxy)
    assert await _echo(streams, b"x" * 200_000) == b"x" * 200_000
    assert proxy.passed_bytes[Direction.TO_SERVER] == 200_000
    assert proxy.open_connections == 1
    streams[1].write_eof()
    assert await streams[0].read() == b""
    streams[1].close()


async def test_a_delay_holds_each_way(proxy: FaultProxy) -> None:
    streams = await _connect(proxy)
    proxy.delay(0.1)
    began = time.monotonic()
    await _echo(streams, b"late")
    assert time.monotonic() - began >= 0.2
    streams[1].close()


@pytest.mark.parametrize("direction", list(Direction))
async def test_a_silence_loses_nothing_and_heals(proxy: FaultProxy, direction: Direction) -> None:
    streams = await _connect(proxy)
    await _echo(streams, b"before")
    proxy.silence(direction)
    with pytest.raises(TimeoutError):
        await _echo(streams, b"held", 0.2)
    assert proxy.passed_bytes[Direction.TO_SERVER] == (6 if direction is Direction.TO_SERVER else 10)
    proxy.heal()
    async with asyncio.timeout(5):
        assert await streams[0].readexactly(4) == b"held"
    streams[1].close()


async def test_refused_connections_leave_open_ones_alone(proxy: FaultProxy) -> None:
    streams = await _connect(proxy)
    await _echo(streams, b"open")
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await _connect(proxy)
    assert await _echo(streams, b"still") == b"still"
    streams[1].close()
    proxy.heal()
    healed = await _connect(proxy)
    assert await _echo(healed, b"again") == b"again"
    healed[1].close()


async def test_a_cut_comes_in_the_middle_of_what_is_sent(proxy: FaultProxy) -> None:
    reader, writer = await _connect(proxy)
    proxy.cut_after(1_000)
    writer.write(b"x" * 1_000)
    with pytest.raises(ConnectionResetError):
        await reader.readexactly(1_000)
    writer.close()
    again = await _connect(proxy)
    assert await _echo(again, b"y" * 2_000) == b"y" * 2_000
    again[1].close()


async def test_a_reset_reaches_every_connection(proxy: FaultProxy) -> None:
    connections = [await _connect(proxy) for _ in range(3)]
    for streams in connections:
        await _echo(streams, b"open")
    await asyncio.to_thread(proxy.reset_all)
    for reader, writer in connections:
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()
    assert proxy.open_connections == 0


async def test_a_stopped_proxy_leaves_no_thread_and_starts_again_on_its_port(server_port: int) -> None:
    proxy = FaultProxy(server_port)
    with proxy:
        address = proxy.address
    with pytest.raises(ConnectionRefusedError):
        await _connect(proxy)
    with proxy:
        assert proxy.address == address
        streams = await _connect(proxy)
        assert await _echo(streams, b"back") == b"back"
        streams[1].close()


async def test_a_server_that_is_away_resets_the_client() -> None:
    with FaultProxy(free_port()) as proxy:
        reader, writer = await _connect(proxy)
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()
