"""A proxy delays, cuts and resets, in front of an echo server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fairlead.kafka.endpoint import Address
from simulators.network.proxy import TcpProxy

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Reach = Callable[[TcpProxy], Awaitable[Streams]]


@pytest.fixture
async def reach(echo: Address) -> AsyncIterator[Reach]:
    """Connects to the echo server through a proxy."""
    opened: list[asyncio.StreamWriter] = []

    async def connect(proxy: TcpProxy) -> Streams:
        streams = await asyncio.open_connection(*proxy.addresses[echo])
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


async def test_bytes_are_carried_and_counted(echo: Address, reach: Reach) -> None:
    data = bytes(range(256)) * 4000
    async with TcpProxy([echo]) as proxy:
        one, two = await reach(proxy), await reach(proxy)
        assert list(await asyncio.gather(ask(one, data), ask(two, data))) == [data, data]
        assert (proxy.up.bytes, proxy.down.bytes, proxy.connections) == (2 * len(data), 2 * len(data), 2)
        one[1].close()
        two[1].write_eof()
        assert await ended(two)
    assert not vars(proxy)["_open"]


async def test_all_connections_share_the_rate(echo: Address, reach: Reach) -> None:
    async with TcpProxy([echo], rtt=0.1) as proxy:
        one, two = await reach(proxy), await reach(proxy)
        began = time.monotonic()
        await ask(one, b"x")
        assert 0.1 <= time.monotonic() - began < 0.2
        proxy.shape(rtt=0.0, rate=800e3)  # 100,000 bytes a second
        began = time.monotonic()
        await asyncio.gather(ask(one, bytes(20_000)), ask(two, bytes(20_000)))
        assert 0.3 <= time.monotonic() - began < 0.8


async def test_a_cut_resets_connections_until_it_is_mended(echo: Address, reach: Reach) -> None:
    async with TcpProxy([echo]) as proxy:
        before = await reach(proxy)
        assert await ask(before, b"x") == b"x"
        proxy.cut()
        assert await ended(before)
        assert await ended(await reach(proxy))
        proxy.mend()
        assert await ask(await reach(proxy), b"y") == b"y"


async def test_a_connection_is_reset_in_the_middle_of_its_data(echo: Address, reach: Reach) -> None:
    async with TcpProxy([echo]) as proxy:
        streams = await reach(proxy)
        assert await ask(streams, bytes(100)) == bytes(100)
        proxy.down.fuse = 1000
        streams[1].write(bytes(5000))
        assert await streams[0].readexactly(1000) == bytes(1000)
        assert await ended(streams)
        assert proxy.down.resets == 1
        assert await ask(await reach(proxy), bytes(5000)) == bytes(5000)


async def test_one_direction_is_held_back_and_let_go(echo: Address, reach: Reach) -> None:
    async with TcpProxy([echo]) as proxy:
        streams = await reach(proxy)
        proxy.freeze(proxy.down)
        streams[1].write(b"heard")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await streams[0].read(1)
        assert proxy.up.bytes == 5
        assert len(vars(proxy)["_open"]) == 1
        proxy.mend()
        assert await streams[0].readexactly(5) == b"heard"


async def test_jitter_keeps_the_order(echo: Address, reach: Reach) -> None:
    data = bytes(range(256)) * 200
    async with TcpProxy([echo]) as proxy:
        streams = await reach(proxy)
        proxy.shape(rtt=0.002, rate=40e6, jitter=0.01)
        assert await ask(streams, data) == data
        assert proxy.up.lost == proxy.down.lost == 0
