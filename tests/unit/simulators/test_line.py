"""A shaped line delays, cuts and resets as it was told, seen by an echo server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fairlead.kafka.endpoint import Address
from simulators.network.line import HOST, TcpProxy

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Reach = Callable[[TcpProxy], Awaitable[Streams]]


@pytest.fixture
async def echo() -> AsyncIterator[Address]:
    """A server that sends back what it gets."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    yield server.sockets[0].getsockname()[:2]
    server.close()


@pytest.fixture
async def reach(echo: Address) -> AsyncIterator[Reach]:
    """Connects to the echo server over a line."""
    opened: list[asyncio.StreamWriter] = []

    async def connect(line: TcpProxy) -> Streams:
        streams = await asyncio.open_connection(*line.ways[echo])
        opened.append(streams[1])
        return streams

    yield connect
    for writer in opened:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in opened), return_exceptions=True)


async def ask(streams: Streams, data: bytes) -> bytes:
    reader, writer = streams
    writer.write(data)
    return await reader.readexactly(len(data))


async def ended(streams: Streams) -> bool:
    """Whether the connection was reset or closed, without another byte."""
    try:
        return await streams[0].read(1) == b""
    except ConnectionResetError:
        return True


async def test_carries_and_counts(echo: Address, reach: Reach) -> None:
    data = bytes(range(256)) * 4000
    async with TcpProxy([echo]) as line:
        one, two = await reach(line), await reach(line)
        assert list(await asyncio.gather(ask(one, data), ask(two, data))) == [data, data]
        assert (line.up.bytes, line.down.bytes, line.connections) == (2 * len(data), 2 * len(data), 2)
        one[1].close()
        two[1].write_eof()
        assert await ended(two)
    assert line.alive == 0


async def test_delay_and_rate_are_of_the_line(echo: Address, reach: Reach) -> None:
    async with TcpProxy([echo], rtt=0.1) as line:
        one, two = await reach(line), await reach(line)
        began = time.monotonic()
        await ask(one, b"x")
        assert 0.1 <= time.monotonic() - began < 0.2
        line.shape(rtt=0.0, rate=800e3)  # 100,000 bytes a second
        began = time.monotonic()
        await asyncio.gather(ask(one, bytes(20_000)), ask(two, bytes(20_000)))
        assert 0.3 <= time.monotonic() - began < 0.8


async def test_cut_and_mend(echo: Address, reach: Reach) -> None:
    async with TcpProxy([echo]) as line:
        before = await reach(line)
        assert await ask(before, b"x") == b"x"
        line.cut()
        assert await ended(before)
        assert await ended(await reach(line))
        line.mend()
        assert await ask(await reach(line), b"y") == b"y"


async def test_reset_in_the_middle(echo: Address, reach: Reach) -> None:
    async with TcpProxy([echo]) as line:
        streams = await reach(line)
        assert await ask(streams, bytes(100)) == bytes(100)
        line.reset_after(1000, line.down)
        streams[1].write(bytes(5000))
        assert await streams[0].readexactly(1000) == bytes(1000)
        assert await ended(streams)
        assert line.down.resets == 1
        assert await ask(await reach(line), bytes(5000)) == bytes(5000)


async def test_half_open(echo: Address, reach: Reach) -> None:
    async with TcpProxy([echo]) as line:
        streams = await reach(line)
        line.freeze(line.down)
        streams[1].write(b"heard")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await streams[0].read(1)
        assert line.up.bytes == 5
        assert line.alive == 1
        line.mend()
        assert await streams[0].readexactly(5) == b"heard"


async def test_jitter_keeps_the_order(echo: Address, reach: Reach) -> None:
    data = bytes(range(256)) * 200
    async with TcpProxy([echo]) as line:
        streams = await reach(line)
        line.shape(rtt=0.002, rate=40e6, jitter=0.01)
        assert await ask(streams, data) == data
        assert line.up.lost == line.down.lost == 0
