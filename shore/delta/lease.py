"""A lease that allows one process to write the tables on a storage that several machines reach.

The lease has a term, counted up from 1. The process that version 0 of the Delta table ``lock/<n>`` names holds term
*n*: a Delta commit never replaces another, so of several processes that try, one succeeds. The holder rewrites the file
``beat`` beside it every ``BEAT_SECONDS``. A process that sees the file unchanged for ``DEAD_SECONDS`` by its own clock,
or finds a file ``released``, takes the next term. Clocks of different machines are never compared.

A holder that stood still finds the next term taken, and stops: shore's writers call ``check`` before every commit, and
it reads the storage where the last beat is older than half of ``DEAD_SECONDS``.

Commands use ``only_one``: it holds the lock of the state folder and, where tables are elsewhere, the lease.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from filelock import FileLock, Timeout

from fairlead.errors import UnavailableError
from fairlead.home import private_folder
from shore.errors import AlreadyRunningError, LeaseLostError
from shore.paths import TablePaths
from shore.storage import Storage

BEAT_SECONDS: Final = 10.0
DEAD_SECONDS: Final = 60.0
_FOLDER: Final = "lock"
_BEAT, _RELEASED = "beat", "released"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_held: list[Lease] = []


def _machine() -> str:
    """Return the id of this machine's boot, which no other machine has; empty where the system has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a term. ``token`` is random for each attempt to take one. ``machine`` tells machines with
    one host name apart."""

    host: str = ""
    machine: str = ""
    pid: int = msgspec.field(default_factory=os.getpid)
    folder: str = ""
    site: str = ""
    token: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(slots=True, eq=False)
class Lease:
    """The right to write below ``base``. ``acquire`` takes it, ``release`` gives it back.

    Args:
        base: A storage URL, or a folder that several machines reach.
        site: The site where this process runs shore, for messages.
        folder: The state folder. The caller holds its lock, so an earlier holder with this host, machine and folder has
            died.
        on_lost: Called once, from another thread, when another machine has taken the right.
    """

    base: str
    folder: str
    on_lost: Callable[[], None] = lambda: None
    beat_seconds: float = BEAT_SECONDS
    dead_seconds: float = DEAD_SECONDS
    host: str = field(default_factory=socket.gethostname)
    machine: str = field(default_factory=_machine)
    site: str = ""
    term: int = 0
    _taken_by: str = ""
    _beaten: float = 0.0
    _files: Storage = field(init=False)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Take the next term. Wait up to ``dead_seconds`` where the last holder has not released its term.

        Raises:
            AlreadyRunningError: another process holds the lease, or took the term first.
            UnavailableError: the storage does not answer.
        """
        self._files = Storage(f"{self.base}/{_FOLDER}")
        last = self._newest()
        if last:
            self._await_end(last)
        own = Holder(host=self.host, machine=self.machine, folder=self.folder, site=self.site)
        term = last + 1
        with contextlib.suppress(DeltaError):  # another process was first: version 0 names it
            DeltaTable.create(
                self._place(term),
                schema=pa.schema([pa.field("nothing", pa.int64())]),
                mode="error",
                description=msgspec.json.encode(own).decode(),
            )
        if (found := self._holder(term)) != own:
            raise self._refused(term, found)
        self.term = term
        self._beat()
        for older in self._terms():
            if older < term:
                self._files.delete(str(older))
        _held.append(self)
        self._thread = threading.Thread(target=self._keep, name="shore-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Check that this process may still write.

        Raises:
            LeaseLostError: another machine has taken the right.
            UnavailableError: the storage does not answer, so it is not known whether another has.
        """
        if not self._taken_by and _now() - self._beaten > self.dead_seconds / 2:
            self._beat()
        if self._taken_by:
            raise LeaseLostError(
                f"this process may write no more to {self.base}: {self._taken_by} has taken over",
                hint="this one stood still for a while, or could not reach the storage; let only one machine run shore",
                location=self.base,
            )

    def release(self) -> None:
        """Give the right back, so that the next holder need not wait."""
        self._stop.set()
        if self in _held:
            _held.remove(self)
        if self._thread is not None:
            self._thread.join()
        if self.term and not self._taken_by:
            with contextlib.suppress(UnavailableError):  # then the next holder waits
                self._files.write(f"{self.term}/{_RELEASED}", b"")

    def _keep(self) -> None:
        while not self._stop.wait(self.beat_seconds):
            with contextlib.suppress(UnavailableError):  # check tries again before a commit
                self._beat()
            if self._taken_by:
                self.on_lost()
                return

    def _beat(self) -> None:
        with self._lock:
            before = _now()
            newer = self._newest()
            if newer > self.term:
                self._taken_by = _named(self._holder(newer))
                return
            self._files.write(f"{self.term}/{_BEAT}", uuid.uuid4().bytes)
            self._beaten = before

    def _await_end(self, term: int) -> None:
        holder = self._holder(term)
        if (holder.host, holder.machine, holder.folder) == (self.host, self.machine, self.folder):
            return  # it was on this machine, and we hold the folder's lock now
        seen, since = self._last_beat(term), time.monotonic()
        while _RELEASED not in self._files.names(str(term)):
            time.sleep(min(1.0, self.dead_seconds / 10))
            found = self._last_beat(term)
            if found != seen or self._newest() != term:
                raise self._refused(term, holder)
            if time.monotonic() - since >= self.dead_seconds:
                return

    def _last_beat(self, term: int) -> bytes:
        try:
            return self._files.read(f"{term}/{_BEAT}")
        except FileNotFoundError:
            return b""

    def _terms(self) -> list[int]:
        return sorted(int(name) for name in self._files.names("") if name.isdecimal())

    def _newest(self) -> int:
        return max(self._terms(), default=0)

    def _place(self, term: int) -> str:
        return f"{self.base}/{_FOLDER}/{term}"

    def _holder(self, term: int) -> Holder:
        try:
            table = DeltaTable(self._place(term), version=0)
            return msgspec.json.decode(table.metadata().description or "{}", type=Holder)
        except (DeltaError, msgspec.DecodeError) as error:
            raise UnavailableError(
                f"who may write to {self.base} cannot be found out: {self._place(term)}: {error}",
                hint="when no machine runs shore, remove the folder 'lock' there",
                location=self.base,
            ) from error

    def _refused(self, term: int, holder: Holder) -> AlreadyRunningError:
        return AlreadyRunningError(
            f"{_named(holder)} writes to {self.base} (term {term})",
            hint="let only one machine run shore, or stop that one; one that died is waited for, for a minute",
            location=self.base,
            host=holder.host,
        )


def check_lease(location: str) -> None:
    """Check that this process may write at a location. Locations that no held lease covers always pass.

    Raises:
        LeaseLostError: another machine has taken the right to write.
        UnavailableError: the storage does not answer, so it is not known whether another has.
    """
    for lease in _held:
        if location.startswith(f"{lease.base}/"):
            lease.check()


@contextlib.contextmanager
def leased(base: str, folder: str, site: str = "") -> Iterator[Lease]:
    """Hold the right to write below a location. Raises as ``Lease.acquire``."""
    lease = Lease(base, folder, site=site)
    lease.acquire()
    try:
        yield lease
    finally:
        lease.release()


def _named(holder: Holder) -> str:
    return f"process {holder.pid} of {holder.host}" + (f", for site {holder.site}," if holder.site else "")


def _now() -> float:
    """Return a time in seconds that includes the time in which this machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.time()


@contextlib.contextmanager
def only_one(folder: Path, paths: TablePaths, site: str = "") -> Iterator[Lease | None]:
    """Hold the state folder's lock, which ends with the process in any case. Where the tables are elsewhere (at a
    storage URL, or in a folder that other machines may reach), hold the lease there as well, and yield it.

    Raises:
        AlreadyRunningError: another process holds one of them.
        UnavailableError: the storage does not answer.
    """
    lock = FileLock(private_folder(folder / "run") / "shore.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise AlreadyRunningError(
            f"another 'fairlead shore run' is at work in {folder}",
            hint="wait until it is done, or stop it; 'fairlead shore status' shows what it does",
        ) from None
    try:
        if Path(paths.base).resolve() == folder.resolve():
            yield None
        else:
            with leased(paths.base, str(folder.resolve()), site) as lease:
                yield lease
    finally:
        lock.release()
