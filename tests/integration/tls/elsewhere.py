"""Reach sites at an address that their certificates do not contain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

ELSEWHERE = "127.0.0.2"  # another address of this machine, which no certificate has


@contextlib.asynccontextmanager
async def relay(port: int) -> AsyncIterator[int]:
    """Relay a local port from another address of this machine; yield the port there. Close everything at the end."""
    serving: set[asyncio.Task[None] | None] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        opened = [writer]
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
            opened.append(back)
            await asyncio.gather(carry(reader, back), carry(there, writer))
        finally:
            for each in opened:
                each.close()
            for each in opened:
                with contextlib.suppress(OSError):
                    await each.wait_closed()
            serving.discard(asyncio.current_task())

    server = await asyncio.start_server(both, ELSEWHERE, 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        left = [task for task in serving if task is not None]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
