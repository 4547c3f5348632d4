"""Waiting for an event or a time ends with the event, with the time, and whenever the task is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.waiting import wait_set


async def test_it_ends_with_the_event() -> None:
    event = asyncio.Event()
    waiting = asyncio.ensure_future(wait_set(event, None))
    await asyncio.sleep(0)
    event.set()
    await waiting
    await wait_set(event, 0.0)
    assert event.is_set()


async def test_it_ends_with_the_time() -> None:
    event = asyncio.Event()
    await wait_set(event, 0.001)
    assert not event.is_set()


async def test_a_cancellation_counts_although_the_event_is_set_in_the_same_moment() -> None:
    event = asyncio.Event()
    waiting = asyncio.ensure_future(wait_set(event, 60.0))
    await asyncio.sleep(0)
    event.set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
