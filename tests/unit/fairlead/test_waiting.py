"""Waiting for an event or a time ends with the event, with the time, and whenever the task is cancelled; work in the
background ends with its context. Requests wait longer for answers that come late."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.waiting import CALM_AFTER, LONGEST, Patience, in_background, wait_set
from tests.support.waits import Clock


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


async def test_work_in_the_background_has_ended_when_its_context_has() -> None:
    said: list[str] = []

    async def work() -> None:
        said.append("begins")
        try:
            await asyncio.Event().wait()
        finally:
            said.append("ends")

    with pytest.raises(ValueError, match="of the body"):
        async with in_background(work()):
            await asyncio.sleep(0)
            assert said == ["begins"]
            raise ValueError("of the body")
    assert said == ["begins", "ends"]


async def test_an_error_of_work_in_the_background_is_the_tasks() -> None:
    async def work() -> None:
        raise ValueError("of the work")

    async with in_background(work()) as task:
        await asyncio.wait({task})
    assert str(task.exception()) == "of the work"


def test_patience_doubles_with_each_late_answer_and_ends_when_none_is_late() -> None:
    clock = Clock()
    patience, waits = Patience(10.0, clock), []
    for _ in range(5):
        waits.append(patience.seconds)
        clock.now += patience.seconds
        patience.note_late()
    assert waits == [10.0, 20.0, 40.0, 80.0, LONGEST]
    clock.now += CALM_AFTER
    assert patience.seconds == LONGEST
    clock.now += 1
    assert patience.seconds == 10.0
    patience.note_late()
    assert patience.seconds == 20.0
