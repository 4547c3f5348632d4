"""Reach sites at an address that their certificates do not contain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

ELSEWHERE = "127.0.0.2"  # another address of this machine, which no certificate has


@contextlib.asynccontextmanager
async def relay(port: int) -> AsyncIterator[int]:
    """Relay a local port from another address of this machine; yield the port there."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(carry(reader, back), carry(there, writer))

    async with await asyncio.start_server(both, ELSEWHERE, 0) as server:
        yield int(server.sockets[0].getsockname()[1])
