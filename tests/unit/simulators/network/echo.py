"""Ask the echo server of ``conftest`` through a proxy."""

from __future__ import annotations

import asyncio

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def answers(streams: Streams, *, within: float = 5.0) -> bool:
    """Return whether the server answers; False also when the connection has ended."""
    reader, writer = streams
    try:
        writer.write(b"?")
        async with asyncio.timeout(within):
            return await reader.readexactly(1) == b"?"
    except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
        return False
