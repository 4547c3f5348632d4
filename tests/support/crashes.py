"""Plant crashes: end a run of a shore job before or after its n-th write, as if the Spark driver had died there.

Every write of shore goes through one of these: commits of Spark (appends and MERGE) and of delta-rs, and appends to
feeds, which tasks make before the commit that follows from them. A planted crash leaves the same state as a kill: the
tables as they were at that moment, and no commit in Spark's checkpoint.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import delta.tables
import pyspark.sql.readwriter

import shore.jobs.runner  # imports all modules that write
import shore.sink.exactly_once

Side = Literal["before", "after"]


class PlantedCrash(Exception):
    """The exception that stands for the death of the driver."""


def die() -> None:
    """End the process itself. Only a test process of its own can do this."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Plan:
    """A plan to crash at the n-th write (counted from 0), before or after it. ``seen`` lists the writes so far by their
    writer.
    """

    at: int
    side: Side
    how: Callable[[], None] | None = None
    seen: list[str] = field(default_factory=list)
    crashed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _crash(self) -> None:
        self.crashed = True
        if self.how is not None:
            self.how()
        raise PlantedCrash(f"{self.side} write {self.at}: {self.seen[-1]}")

    def around(self, name: str, write: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(write)
        def wrapped(*args: Any, **more: Any) -> Any:
            with self._lock:
                if self.crashed:
                    raise PlantedCrash("dead")
                mine = len(self.seen) == self.at
                self.seen.append(name)
                if mine and self.side == "before":
                    self._crash()
            done = write(*args, **more)
            if mine and self.side == "after":
                self._crash()
            return done

        return wrapped


@contextmanager
def planted(plan: Plan) -> Iterator[Plan]:
    """Route every write of shore through the plan while the context is open."""
    places: list[tuple[Any, str]] = [
        (module, "write_deltalake")
        for name, module in sorted(sys.modules.items())
        if name.startswith("shore.") and hasattr(module, "write_deltalake")
    ]
    places.append((pyspark.sql.readwriter.DataFrameWriter, "save"))
    places.append((delta.tables.DeltaMergeBuilder, "execute"))
    places.append((shore.sink.exactly_once.FeedSink, "append"))
    places.append((shore.sink.exactly_once.FeedSink, "_commit"))
    before = [(owner, name, getattr(owner, name)) for owner, name in places]
    try:
        for owner, name, write in before:
            setattr(owner, name, plan.around(f"{getattr(owner, '__name__', owner)}.{name}", write))
        yield plan
    finally:
        for owner, name, write in before:
            setattr(owner, name, write)


def crash_everywhere(batch: Callable[[int], Callable[[], object]], check: Callable[[], None]) -> int:
    """Run batches, each of which crashes after a later write than the one before, until a batch has no such write.

    After each crash the batch runs again and ``check`` must pass. Return the number of writes in a batch.

    Args:
        batch: Return the work of the n-th batch; the work must be the same at each call.
        check: Fail unless the tables are right.
    """
    for at in itertools.count():
        work = batch(at)
        with planted(Plan(at, "after")) as plan:
            try:
                work()
            except PlantedCrash:
                assert plan.crashed
        work()
        check()
        if not plan.crashed:
            return at
    raise AssertionError("no batch has so many writes")
