"""Answers that the board reads once for everybody who asks at the same time."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from board.service import _KEPT as KEPT
from board.service import _OLD as OLD
from board.service import FRESH, SHARE, STALE, BoardService
from fairlead.errors import UnavailableError
from tests.support.waits import Clock
from topologies.context import open_topology


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> BoardService:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return BoardService(open_topology("minimal"), "tokyo", clock=clock)


async def test_everybody_who_asks_while_it_is_read_gets_the_same_answer(board: BoardService, clock: Clock) -> None:
    asked, go_on = [], threading.Event()

    def read() -> int:
        asked.append(1)
        assert go_on.wait(30)
        return len(asked)

    waiting = [asyncio.create_task(board.read_once("x", read)) for _ in range(20)]
    await asyncio.sleep(0)
    clock.now += FRESH * 10  # it takes long
    go_on.set()
    assert await asyncio.gather(*waiting) == [1] * 20
    assert await board.read_once("x", read) == 1  # fresh since it was read
    clock.now += FRESH * 10 * SHARE - 1
    assert await board.read_once("x", read) == 1  # reading it took long
    clock.now += STALE + 2
    assert await board.read_once("x", read) == 2  # the answer before is too old to be shown
    assert board.last_answer("x") == 2


async def test_whoever_asks_while_it_is_read_anew_gets_the_answer_before(board: BoardService, clock: Clock) -> None:
    go_on = threading.Event()

    def read_again() -> str:
        assert go_on.wait(30)
        return "new"

    assert await board.read_once("x", lambda: "old") == "old"
    clock.now += FRESH + 1
    assert await board.read_once("x", read_again, stale=STALE) == "old"
    assert board.last_answer("x") == "old"
    clock.now += STALE  # it takes too long
    waiting = asyncio.create_task(board.read_once("x", read_again, stale=STALE))
    await asyncio.sleep(0)
    go_on.set()
    assert await waiting == "new"
    assert board.last_answer("x") == "new"


async def test_an_error_is_not_kept(board: BoardService) -> None:
    def fail() -> int:
        raise UnavailableError("the table is away")

    with pytest.raises(UnavailableError):
        await board.read_once("x", fail)
    assert board.last_answer("x") is None
    assert await board.read_once("x", lambda: 7) == 7


async def test_old_answers_and_too_many_are_forgotten(board: BoardService, clock: Clock) -> None:
    for number in range(KEPT + 50):
        assert await board.read_once(number, lambda number=number: number) == number  # type: ignore[misc]
        clock.now += 0.01
    assert board.last_answer(0) is None
    assert board.last_answer(KEPT + 49) == KEPT + 49
    clock.now += OLD + 1
    await board.read_once("new", lambda: 1)
    assert board.last_answer(KEPT + 49) is None


async def test_nobody_gets_an_answer_from_before_the_tables_changed(board: BoardService, clock: Clock) -> None:
    answers = iter(["first", "second", "third"])
    assert await board.read_once("x", lambda: next(answers), stale=STALE) == "first"
    clock.now += 1
    board.tables_changed()
    assert await board.read_once("x", lambda: next(answers), stale=STALE) == "second"
    clock.now += FRESH + 1
    assert await board.read_once("x", lambda: next(answers), stale=STALE) == "second"  # no change since it was begun


@pytest.mark.parametrize("fails", [False, True])
async def test_who_asks_after_the_tables_changed_does_not_wait_for_a_reading_that_was_begun_before(
    board: BoardService, clock: Clock, fails: bool
) -> None:
    finish, finish_newer = threading.Event(), threading.Event()

    def read() -> str:
        assert finish.wait(30)
        if fails:
            raise UnavailableError("the table is away")
        return "older"

    def read_newer() -> str:
        assert finish_newer.wait(30)
        return "newer"

    assert await board.read_once("x", lambda: "old") == "old"
    clock.now += FRESH + 1
    older = asyncio.create_task(board.read_once("x", read))
    await asyncio.sleep(0)
    clock.now += 1
    board.tables_changed()
    newer = asyncio.create_task(board.read_once("x", read_newer, stale=STALE))
    await asyncio.sleep(0)
    assert board.last_answer("x") == "old"  # neither of the two is read
    finish.set()
    [found] = await asyncio.gather(older, return_exceptions=True)
    assert isinstance(found, UnavailableError) if fails else found == "older"
    assert board.last_answer("x") == ("old" if fails else "older")
    assert not newer.done()
    finish_newer.set()
    assert await newer == "newer"
    assert await board.read_once("x", lambda: "not read", stale=STALE) == board.last_answer("x") == "newer"
