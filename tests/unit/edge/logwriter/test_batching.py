from __future__ import annotations

import asyncio

import pytest

from edge.logwriter.tail_reader import Batcher


async def test_questions_that_come_together_are_answered_together() -> None:
    """Requests that come at the same time share one call."""
    calls: list[list[int]] = []

    async def answer(keys: list[int]) -> dict[int, int]:
        calls.append(keys)
        return {key: key * key for key in keys}

    batcher = Batcher(answer, moment=0.0, most=3)
    assert await asyncio.gather(*(batcher.ask(key) for key in (1, 2, 2, 3, 4))) == [1, 4, 4, 9, 16]
    assert calls == [[1, 2, 3], [4]]


async def test_an_error_reaches_all_askers_and_the_next_question_is_asked_anew() -> None:
    """An error reaches every caller, and the next request makes a new call."""

    async def answer(keys: list[int]) -> dict[int, int]:
        if 1 in keys:
            raise ValueError("one")
        return dict.fromkeys(keys, 0)

    batcher = Batcher(answer, moment=0.0)
    found = await asyncio.gather(batcher.ask(1), batcher.ask(2), return_exceptions=True)
    assert [type(error) for error in found] == [ValueError, ValueError]
    assert await batcher.ask(2) == 0


async def test_an_asker_that_gives_up_disturbs_nobody() -> None:
    """A caller that is cancelled does not affect the others."""
    release = asyncio.Event()

    async def answer(keys: list[int]) -> dict[int, int]:
        await release.wait()
        return dict.fromkeys(keys, 7)

    batcher = Batcher(answer, moment=0.0)
    first, second = asyncio.create_task(batcher.ask(1)), asyncio.create_task(batcher.ask(1))
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    release.set()
    assert await second == 7


async def test_close_ends_what_waits() -> None:
    """Closing ends the waiting requests."""

    async def answer(keys: list[int]) -> dict[int, int]:
        await asyncio.Event().wait()
        return {}

    batcher = Batcher(answer, moment=0.0)
    asking = asyncio.create_task(batcher.ask(1))
    await asyncio.sleep(0.01)
    await batcher.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
