"""Child processes that outlive this one: start them, find them by pid file, stop them, wait until they serve.

After a restart of the machine another process may have the same pid. A pid file therefore also has the start time and a
part of the command line, and only a process that matches all three is signalled.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

import psutil

from fairlead.errors import UnavailableError
from fairlead.home import private_folder, purge_command, restart_command
from fairlead.local.files import explained, write_file

GRACE = 15.0  # seconds from SIGTERM to SIGKILL; a broker with 5,000 written logs took 4
_SAME_START = 5.0  # seconds; start times are relative to the boot time, which moves when the clock is set


@dataclass(frozen=True, slots=True)
class _Child:
    """A child of this process, and its ``PidRecord.started``."""

    process: subprocess.Popen[bytes]
    started: float


# By pid, kept so that this process can wait for them when they end: no zombies in long-lived callers.
_children: dict[int, _Child] = {}


@atexit.register
def _leave_them_running() -> None:
    """Prevent Popen's warning about children that still run: they outlive this process on purpose."""
    for child in _children.values():
        if child.process.poll() is None:
            child.process.returncode = 0


@dataclass(frozen=True, slots=True)
class PidRecord:
    """The content of a pid file. ``started``: seconds since the machine's boot; ``marker``: a part of one argument."""

    pid: int
    started: float
    marker: str
    version: str
    log: str


def start(
    pid_file: Path,
    command: Sequence[str],
    *,
    cwd: Path,
    log: Path,
    marker: str,
    version: str = "",
) -> psutil.Process:
    """Start a process in its own session, append its output to ``log``, and write its pid file.

    The process outlives the terminal, and Ctrl-C there does not reach it.

    Args:
        marker: Part of one argument of ``command``, and of no argument of an unrelated process.

    Raises:
        UnavailableError: the disk is full.
        OSError: the program cannot be run.
    """
    with explained(log):
        private_folder(log.parent)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(  # noqa: S603 - the callers' fixed programs
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    finally:
        os.close(output)
    try:
        process = psutil.Process(child.pid)
        facts = PidRecord(child.pid, process.create_time() - psutil.boot_time(), marker, version, str(log))
        _children[child.pid] = _Child(child, facts.started)
        write_file(pid_file, json.dumps(asdict(facts)))
    except BaseException:
        child.kill()  # without a pid file no command could find it again
        child.wait()
        raise
    return process


def read(pid_file: Path) -> PidRecord | None:
    """Return the content of a pid file; None if it is missing or damaged."""
    try:
        return PidRecord(**json.loads(pid_file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _child(recorded: PidRecord) -> subprocess.Popen[bytes] | None:
    """Return the process of a pid file if it is a child of this one. A pid alone does not say so: after a child has
    ended, somebody else's process may get its pid."""
    child = _children.get(recorded.pid)
    return child.process if child is not None and child.started == recorded.started else None


def find(pid_file: Path) -> psutil.Process | None:
    """Return the running process of a pid file; None if it has ended, even if another process has its pid now."""
    found = _found(pid_file)
    return found[0] if found is not None else None


def _found(pid_file: Path) -> tuple[psutil.Process, subprocess.Popen[bytes] | None] | None:
    """Return the running process of a pid file, and the same process as a child of this one, if it is one."""
    recorded = read(pid_file)
    if recorded is None:
        return None
    child = _child(recorded)
    if child is not None and child.poll() is not None:
        return None
    try:
        process = psutil.Process(recorded.pid)
        dying = process.status() == psutil.STATUS_ZOMBIE
        if dying and child is None:
            return None
        same_start = abs(process.create_time() - psutil.boot_time() - recorded.started) < _SAME_START
        arguments = [] if dying else process.cmdline()
        if child is not None and same_start and not arguments:
            return process, child  # just started, or ending without an exit code yet
        if same_start and any(recorded.marker in argument for argument in arguments):
            return process, child
    except psutil.Error:
        pass
    return None


def exit_code(pid_file: Path) -> int | None:
    """Return the exit code of a pid file's process, if this process started it and it has ended; else None."""
    recorded = read(pid_file)
    child = _child(recorded) if recorded is not None else None
    return child.poll() if child else None


def send(pid_file: Path, number: signal.Signals) -> bool:
    """Send a signal to a pid file's process; return False if it does not run."""
    process = find(pid_file)
    if process is None:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
    return True


def stop(pid_files: Collection[Path], *, grace: float = GRACE, forget_first: bool = False) -> None:
    """Stop processes in parallel: SIGTERM, then SIGKILL to those that still run after ``grace`` seconds.

    Returns when all have ended, and removes their pid files then. Ignores processes that do not run.

    Args:
        forget_first: Remove the pid files before, because a supervisor restarts a worker that has one and has ended. An
            interruption puts those of processes that still run back.
    """
    running = [(path, *found) for path in pid_files if (found := _found(path)) is not None]
    forgotten: dict[Path, bytes] = {}
    for path, *_ in running if forget_first else ():
        with contextlib.suppress(FileNotFoundError):  # another command stops it, too
            forgotten[path] = path.read_bytes()
            path.unlink()
    try:
        for _, process, _ in running:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
                process.resume()  # a paused process would not act on SIGTERM
        end = time.monotonic() + grace
        for _, process, child in running:
            if not _gone(process, child, end - time.monotonic()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
                _gone(process, child, GRACE)
    except BaseException:
        for path, process, _ in running:
            if path in forgotten and process.is_running():
                path.write_bytes(forgotten[path])
        raise
    for path in pid_files:
        path.unlink(missing_ok=True)


def kill(pid_file: Path) -> None:
    """Send SIGKILL, wait until the process has ended, and remove its pid file; for fault tests."""
    found = _found(pid_file)
    if found is not None:
        process, child = found
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
        _gone(process, child, GRACE)
    pid_file.unlink(missing_ok=True)


def _gone(process: psutil.Process, child: subprocess.Popen[bytes] | None, timeout: float) -> bool:
    """Wait for the end of a process, which is ``child`` if it is one. Return whether it came within ``timeout`` s."""
    try:
        if child is not None:
            child.wait(max(0.0, timeout))
        else:
            process.wait(max(0.0, timeout))
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        return False
    return True


_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PAUSE = 0.02  # seconds; a poll costs less than a millisecond


class Cancelled(Exception):
    """The caller gave up waiting (Ctrl-C). No user sees this error."""


@contextlib.contextmanager
def interruptible(cancel: threading.Event) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and a closed terminal set ``cancel`` inside this context, instead of raising an exception.

    So repeated Ctrl-C cannot interrupt the clean-up. The context suppresses ``Cancelled``, and on exit raises
    ``KeyboardInterrupt`` if ``cancel`` is set. Outside the main thread it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(_number: int, _frame: FrameType | None) -> None:
        cancel.set()

    before = {number: signal.signal(number, note) for number in _INTERRUPTIONS}
    try:
        yield
    except Cancelled:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if cancel.is_set():
        raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class ProcessWait:
    """Waits until one process serves.

    Args:
        what: The program's name in messages (``Kafka``).
        folder: The folder of its logs.
        end: The deadline, as a value of ``time.monotonic()``.
        last_words: Reads the end of its log.
    """

    process: psutil.Process
    what: str
    site: str
    folder: Path
    end: float
    last_words: Callable[[], str]
    cancel: threading.Event = field(default_factory=threading.Event)

    @property
    def _state(self) -> Path:
        return self.folder.parents[2]  # has sites/<site>/<program>

    def pause(self) -> None:
        """Wait a moment before the next poll.

        Raises:
            UnavailableError: the process has ended, or the deadline has passed; with the last lines of its log.
            Cancelled: the caller gave up.
        """
        if self.cancel.wait(_PAUSE):
            raise Cancelled
        if not self.process.is_running() or self.process.status() == psutil.STATUS_ZOMBIE:
            raise self._failed("ended while starting", f"its logs are in {self.folder}")
        if time.monotonic() > self.end:
            again = f"{restart_command(self._state, self.site)}; its logs are in {self.folder}"
            raise self._failed(f"runs (pid {self.process.pid}) but does not answer", again)

    def refused(self, user: str | None, why: str) -> UnavailableError:
        """Return the error for a login that the program refused."""
        purge = purge_command(self._state, self.site)
        return UnavailableError(
            f"{self.site}'s {self.what} refused the user {user}: {why}",
            hint=f"restore secrets.json beside the site's data, or forget it all: {purge}",
            site=self.site,
            user=user,
        )

    def _failed(self, how: str, hint: str) -> UnavailableError:
        words = self.last_words() or "it wrote nothing"
        return UnavailableError(
            f"{self.site}'s {self.what} {how}: {words}", hint=hint, site=self.site, folder=str(self.folder)
        )
