"""Controlling a voyage from another process: its files, its signals, and the error without a voyage."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.errors import UnavailableError
from simulators.network.controller import CutPeriod
from simulators.steps import BarrierKind, Step, VoyageBarrier
from simulators.voyage.control import PAUSE, RESUME, VoyageControl, control_files, read_underway, report_file, steer
from simulators.voyage.player import Player, Progress
from tests.support.simulators.worlds import no_wait
from tests.unit.simulators.voyage.fakes import nobody

START = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)


class Sea:
    """A voyage of barriers that goes on until ``arrive``."""

    def __init__(self, folder: Path) -> None:
        self.control = VoyageControl(folder, "harbour")
        self.phases: list[str] = []
        self.moved = asyncio.Event()
        self.arrives = False
        self.steps = 0

    def told(self, now: Progress) -> None:
        self.control.on_progress(now)
        if now.phase not in self.phases[-1:]:
            self.phases.append(now.phase)
        self.moved.set()

    async def sail(self) -> str:
        def endless() -> Iterator[Step]:
            while not self.arrives:
                self.steps += 1
                yield VoyageBarrier(START + dt.timedelta(minutes=self.steps), BarrierKind.RECORDED, "all is well")

        async def breathe(_: Step) -> None:
            await asyncio.sleep(0)

        player = Player(nobody, no_wait, on_progress=self.told, on_step=breathe)
        self.control.attach(player)
        await player.play(endless())
        return "arrived"

    async def until(self, phase: str) -> None:
        async with asyncio.timeout(20):
            while self.phases[-1:] != [phase]:
                self.moved.clear()
                await self.moved.wait()


async def test_signals_pause_and_resume_a_voyage(tmp_path: Path) -> None:
    sea = Sea(tmp_path)
    sailing = asyncio.create_task(sea.control.run(sea.sail()))
    await sea.until("publishing")
    os.kill(os.getpid(), PAUSE)
    await sea.until("paused")
    state = read_underway(tmp_path)
    assert state is not None
    assert (state.pid, state.scenario, state.paused, state.phase) == (os.getpid(), "harbour", True, "paused")
    steps = sea.steps
    for _ in range(50):
        await asyncio.sleep(0)
    assert sea.steps == steps, "it stands still"
    os.kill(os.getpid(), RESUME)
    await sea.until("publishing")
    state = read_underway(tmp_path)
    assert state is not None
    assert not state.paused
    sea.arrives = True
    assert await sailing == "arrived"
    assert read_underway(tmp_path) is None
    assert not any(file.exists() for file in control_files(tmp_path))
    assert signal.getsignal(PAUSE) is signal.SIG_DFL


async def test_another_process_waits_until_it_stands(tmp_path: Path) -> None:
    sea = Sea(tmp_path)
    sailing = asyncio.create_task(sea.control.run(sea.sail()))
    await sea.until("publishing")
    paused = await asyncio.to_thread(steer, tmp_path, paused=True, patience=20)
    assert (paused.paused, paused.phase, paused.acknowledged) == (True, "paused", 0)
    assert (await asyncio.to_thread(steer, tmp_path, paused=True, patience=20)).paused, "doing it again is no error"
    assert not (await asyncio.to_thread(steer, tmp_path, paused=False, patience=20)).paused
    sea.arrives = True
    await sailing


async def test_quitting_ends_it_as_if_interrupted(tmp_path: Path) -> None:
    sea = Sea(tmp_path)
    sailing = asyncio.create_task(sea.control.run(sea.sail()))
    await sea.until("publishing")
    sea.control.toggle()
    await sea.until("paused")
    sea.control.quit()
    assert await sailing is None
    assert sea.phases[-1] == "interrupted"
    assert not any(file.exists() for file in control_files(tmp_path))


async def test_a_failure_is_raised_and_not_taken_for_quitting(tmp_path: Path) -> None:
    async def sinks() -> None:
        raise UnavailableError("the broker is gone")

    with pytest.raises(UnavailableError, match="gone"):
        await VoyageControl(tmp_path, "harbour").run(sinks())
    assert read_underway(tmp_path) is None


def test_without_a_voyage_nothing_can_be_controlled(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no voyage is under way"):
        steer(tmp_path, paused=True, patience=1)
    pid_file, state = control_files(tmp_path)
    pid_file.parent.mkdir()
    pid_file.write_text('{"pid": 1, "started": 5.0, "marker": "x", "version": "", "log": ""}')
    state.write_text("{}")
    assert read_underway(tmp_path) is None, "the files of a voyage that was killed"


async def test_a_voyage_says_which_links_were_cut_and_forgets_the_report_of_the_last_one(tmp_path: Path) -> None:
    cut = CutPeriod(("duck-star", "tokyo"), START, START + dt.timedelta(hours=1), 0.5)
    old = report_file(tmp_path)
    old.parent.mkdir()
    old.write_text("{}")
    control = VoyageControl(tmp_path, "harbour", lambda _: (cut,))

    async def sail() -> None:
        control.on_progress(Progress(START, 1, 1, "paused", {}))
        now = read_underway(tmp_path)
        assert now is not None
        assert now.cuts == (cut,)
        assert not old.exists()

    await control.run(sail())
