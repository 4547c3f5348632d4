"""Control a running voyage: its process, its progress, and the signals that pause and resume it.

``run/voyage.pid`` and ``run/voyage.json`` in a topology's state folder exist while a voyage can be controlled. SIGUSR1
pauses it, SIGUSR2 resumes it. ``reports/voyage.json`` is the report of the last voyage, until another one begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil

from fairlead.errors import UnavailableError
from fairlead.home import replace_file
from fairlead.local import processes
from fairlead.local.files import write_file
from simulators.network.controller import CutPeriod
from simulators.voyage.player import Player, Progress

PAUSE, RESUME = signal.SIGUSR1, signal.SIGUSR2
_EVERY = 1.0  # seconds between two state files
_LOOK = 0.05

T = TypeVar("T")


class Underway(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``run/voyage.json``. ``phase`` is as in ``simulators.voyage.player.Progress``.

    ``cuts``: the links that the scenario has cut so far, those that are cut now up to ``sim_time``.
    """

    pid: int
    scenario: str
    paused: bool
    phase: str
    sim_time: dt.datetime | None
    published: int
    acknowledged: int
    cuts: tuple[CutPeriod, ...] = ()


class VoyageControl:
    """Controls one voyage of this process. Use it inside its event loop.

    Args:
        folder: The topology's state folder.
        scenario: The scenario's name.
        cuts: Returns the links that were cut up to a simulated time.
    """

    def __init__(
        self, folder: Path, scenario: str, cuts: Callable[[dt.datetime], tuple[CutPeriod, ...]] = lambda _: ()
    ) -> None:
        self._pid_file, self._state_file = control_files(folder)
        self._report_file = report_file(folder)
        self._scenario, self._cuts = scenario, cuts
        self._player: Player | None = None
        self._task: asyncio.Task[Any] | None = None
        self._told = 0.0
        self._last = Progress(dt.datetime.fromtimestamp(0, dt.UTC), 0, 0, "starting", {})
        self.has_quit = False
        self.on_continued: Callable[[], None] = lambda: None

    def attach(self, player: Player) -> None:
        """Control this player from now on."""
        self._player = player

    def pause(self) -> None:
        """Pause the voyage until ``resume``."""
        if self._player is not None:
            self._player.pause()
            self._write_state(self._last)

    def resume(self) -> None:
        """Resume the voyage."""
        if self._player is not None:
            self._player.resume()
            self._write_state(self._last)

    def toggle(self) -> None:
        """Pause the voyage, or resume it if it is paused."""
        if self._player is not None:
            (self.resume if self._player.paused else self.pause)()

    def quit(self) -> None:
        """End the voyage; it first waits some seconds for outstanding acknowledgements (see ``Player.play``)."""
        self.has_quit = True
        if self._task is not None:
            self._task.cancel()

    def on_progress(self, now: Progress) -> None:
        """Write the state file if a second has passed, or if the voyage is paused or resumes."""
        before, self._last = self._last, now
        standing = now.phase == "paused" or before.phase == "paused"
        if standing or time.monotonic() - self._told >= _EVERY:
            self._write_state(now)

    async def run(self, sailing: Coroutine[Any, Any, T]) -> T | None:
        """Run the voyage; return its result, or None after ``quit``."""
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(sailing)
        self._task = task
        loop.add_signal_handler(PAUSE, self.pause)
        loop.add_signal_handler(RESUME, self.resume)
        loop.add_signal_handler(signal.SIGCONT, self._continued)
        self._announce()
        try:
            return await task
        except asyncio.CancelledError:
            if self.has_quit:
                return None
            raise
        finally:
            for file in (self._pid_file, self._state_file):
                file.unlink(
                    missing_ok=True
                )  # before the handlers are removed: without them these signals end the process
            for number in (PAUSE, RESUME, signal.SIGCONT):
                loop.remove_signal_handler(number)

    def _continued(self) -> None:
        if self._player is not None:
            self._player.continued()
        self.on_continued()

    def _announce(self) -> None:
        self._report_file.unlink(missing_ok=True)
        process = psutil.Process()
        marker = Path(process.cmdline()[0]).name
        facts = processes.PidRecord(process.pid, process.create_time() - psutil.boot_time(), marker, "", "")
        self._write_state(self._last)
        write_file(self._pid_file, json.dumps(asdict(facts)))

    def _write_state(self, now: Progress) -> None:
        self._told = time.monotonic()
        state = Underway(
            pid=os.getpid(),
            scenario=self._scenario,
            paused=self._player is not None and self._player.paused,
            phase=now.phase,
            sim_time=now.sim_time if now.phase != "starting" else None,
            published=now.published,
            acknowledged=now.acknowledged,
            cuts=self._cuts(now.sim_time),
        )
        replace_file(self._state_file, msgspec.json.encode(state))


def control_files(folder: Path) -> tuple[Path, Path]:
    """Return the paths of the pid file and the state file of a topology's voyage."""
    return folder / "run" / "voyage.pid", folder / "run" / "voyage.json"


def report_file(folder: Path) -> Path:
    """Return the path of the report of a topology's last voyage, as JSON; ``simulators.report`` writes it."""
    return folder / "reports" / "voyage.json"


def read_underway(folder: Path) -> Underway | None:
    """Return the state of the running voyage; None if there is none."""
    pid_file, state_file = control_files(folder)
    if processes.find(pid_file) is None:
        return None
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(state_file.read_bytes(), type=Underway)
    return None


def steer(folder: Path, *, paused: bool, patience: float) -> Underway:
    """Pause or resume the voyage of a topology, wait until it has done so, and return its state.

    Raises:
        UnavailableError: no voyage is under way, it ended meanwhile, or it has not done so within ``patience`` seconds.
    """
    pid_file, _ = control_files(folder)
    if not processes.send(pid_file, PAUSE if paused else RESUME):
        raise UnavailableError(f"no voyage is under way in {folder}", hint="fairlead voyage sails one")
    for state in _states(folder, patience):
        if state is None:
            raise UnavailableError("the voyage has ended", hint="its own terminal tells how")
        if state.paused == paused and (state.phase == "paused" or not paused):
            return state
    raise UnavailableError(
        f"the voyage has not {'paused' if paused else 'gone on'} within {patience:.0f} s",
        hint="it was told to, and does so when what it waits for has come: look at 'fairlead status'",
    )


def _states(folder: Path, patience: float) -> Iterator[Underway | None]:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        yield read_underway(folder)
        time.sleep(_LOOK)
