"""What the tests of lines share: something to reach over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.kafka.endpoint import Address
from simulators.network.line import HOST


@pytest.fixture
async def echo() -> AsyncIterator[Address]:
    """A server that answers with what it is sent."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    yield server.sockets[0].getsockname()[:2]
    server.close()
