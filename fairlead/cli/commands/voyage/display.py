"""Show a voyage in the terminal, and read the keys that control it."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import sys
import termios
import threading
import tty
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fairlead.cli.console import errors
from shore.jobs.status import JobStatus, read_status
from simulators.sail import Display, OnProgress
from simulators.voyage.control import VoyageControl
from simulators.voyage.player import Progress as Sailing
from simulators.voyage.voyage import VoyageSource


def terminal_display(trip: VoyageSource, *, quiet: bool) -> Display:
    """Show a progress bar; print plain lines where there is no terminal."""

    @asynccontextmanager
    async def display(control: VoyageControl) -> AsyncIterator[OnProgress]:
        with _steered(control, quiet=quiet) as steerable:
            with sailing(trip, quiet=quiet, steerable=steerable) as on_progress:
                yield on_progress

    return display


@contextmanager
def telling(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows progress: on one line of a terminal, or on lines of their own."""
    if quiet:
        yield lambda text: None
    elif errors.is_terminal:
        with errors.status("") as status:
            yield lambda text: status.update(escape(text))
    else:
        yield lambda text: errors.print(escape(text))


@contextmanager
def with_jobs(
    folder: Path, tell: Callable[[str], None], *, look_seconds: float = 1.0
) -> Iterator[Callable[[str], None]]:
    """Yield a function that tells what is being done; while shore's jobs run meanwhile, add how far they are.

    Args:
        folder: The state folder of the topology, which has the jobs' status.
    """
    doing, since, lock, ended = "", dt.datetime.now(dt.UTC), threading.Lock(), threading.Event()

    def begin(text: str) -> None:
        nonlocal doing, since
        with lock:
            doing, since = text, dt.datetime.now(dt.UTC)
            tell(text)

    def watch() -> None:
        told = ""
        while not ended.wait(look_seconds):
            status = read_status(folder)
            with lock:
                if status is None or status.at < since:  # of what was done before
                    continue
                text = f"{doing}: {jobs_so_far(status.jobs)}"
                if text != told:
                    tell(text)
                told = text

    watching = threading.Thread(target=watch, name="jobs", daemon=True)
    watching.start()
    try:
        yield begin
    finally:
        ended.set()
        watching.join()


def jobs_so_far(jobs: Mapping[str, JobStatus]) -> str:
    """Return how many of shore's jobs are done, and which are tried again, in words."""
    again = [
        f"; {name} is tried again: {(job.error or '').partition(chr(10))[0]}"
        for name, job in jobs.items()
        if job.state == "retrying"
    ]
    return f"{sum(job.state == 'done' for job in jobs.values())} of {len(jobs)} jobs done{''.join(again)}"


@contextmanager
def sailing(trip: VoyageSource, *, quiet: bool, steerable: bool) -> Iterator[Callable[[Sailing], None]]:
    """Show the voyage's position; with ``steerable``, also the keys."""
    if quiet:
        yield lambda _: None
        return
    if not errors.is_terminal:
        said: list[str] = []

        def say(now: Sailing) -> None:
            if now.phase != "publishing" and now.phase not in said[-1:]:
                said.append(now.phase)
                errors.print(escape(f"{now.sim_time:%d %b %H:%M} {now.published:>7,} published  {now.phase}"))

        yield say
        return
    if steerable:
        errors.print("[dim]space pauses and resumes, q ends[/]")
    columns = (SpinnerColumn(), TextColumn("{task.fields[when]}"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=errors) as progress:
        task = progress.add_task("", total=trip.expected_messages(), when="")

        def show(now: Sailing) -> None:
            trouble = "".join(f"; {site}: {why}" for site, why in now.troubles.items())
            text = f"{now.published:,} published, {now.phase}{trouble}"
            progress.update(task, completed=now.published, description=escape(text), when=f"{now.sim_time:%d %b %H:%M}")

        yield show


def usable() -> bool:
    """Whether this process may read keys: it has a terminal and is in the foreground."""
    return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


@contextmanager
def keys(control: VoyageControl) -> Iterator[bool]:
    """Read keys in the running event loop; restore the terminal afterwards. Yield False where no keys can be read."""
    if not usable():
        yield False
        return
    stdin, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(stdin)

    def listen() -> None:
        if usable():  # in the background a process may not change the terminal
            tty.setcbreak(stdin)

    def pressed() -> None:
        for key in os.read(stdin, 64).decode(errors="replace"):
            if key in " pP":
                control.toggle()
            elif key in "qQ":
                control.quit()

    listen()
    control.on_continued = listen  # after Ctrl-Z the shell has used the terminal
    loop.add_reader(stdin, pressed)
    try:
        yield True
    finally:
        loop.remove_reader(stdin)
        if usable():
            termios.tcsetattr(stdin, termios.TCSADRAIN, before)


@contextmanager
def _steered(control: VoyageControl, *, quiet: bool) -> Iterator[bool]:
    """Read keys if a person watches: on a terminal, and not ``quiet``."""
    if quiet or not errors.is_terminal:
        yield False
        return
    with keys(control) as steerable:
        yield steerable
