from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from edge.intakes.frames import Confirm, down_decoder, read_frame
from edge.intakes.link import Link


@asynccontextmanager
async def linked(window: int = 10) -> AsyncIterator[tuple[Link, asyncio.StreamReader]]:
    """The core's end, and what an intake reads."""
    ours, theirs = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=ours)
    reader, other = await asyncio.open_connection(sock=theirs)
    link = Link(writer, window)
    try:
        yield link, reader
    finally:
        link.close()
        other.close()


async def confirmed(reader: asyncio.StreamReader) -> int | None:
    body = await read_frame(reader)
    if body is None:
        return None
    message = down_decoder.decode(body)
    assert isinstance(message, Confirm)
    return message.upto


async def test_only_what_has_everything_before_it_stored_is_confirmed() -> None:
    async with linked() as (link, reader):
        one, two, three = link.received(), link.received(), link.received()
        link.finish(three)
        link.finish(one)
        assert await confirmed(reader) == 1
        assert link.outstanding == 2
        assert link.head is two
        link.finish(two)
        assert await confirmed(reader) == 3


async def test_a_message_with_parts_waits_for_all_of_them() -> None:
    async with linked() as (link, reader):
        ticket = link.received()
        ticket.parts += 1
        link.finish(ticket)
        assert link.outstanding == 1
        link.finish(ticket)
        assert await confirmed(reader) == 1


async def test_closing_sends_what_can_be_confirmed_and_nothing_after_that() -> None:
    async with linked() as (link, reader):
        one, two = link.received(), link.received()
        link.finish(one)
        link.close()
        link.finish(two)
        assert await confirmed(reader) == 1
        assert await confirmed(reader) is None


async def test_a_link_is_full_at_its_window() -> None:
    async with linked(window=2) as (link, _):
        first = link.received()
        assert not link.full
        link.received()
        assert link.full
        link.finish(first)
        assert not link.full
