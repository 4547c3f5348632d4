"""What is said of a ship: events as marks, and which part of its history a change concerns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from shore.sailing.model import Bounds, Event, Mark

SAME_EVENT_MICROS: Final = 24 * 3_600_000_000


def marks(events: Sequence[Event]) -> list[Mark]:
    """Events as marks, in order of time."""
    found: list[Mark] = []
    for event in sorted(events):
        last = found[-1] if found else None
        same_run = last is not None and (last.kind, last.port) == (event.kind, event.port)
        if last is not None and same_run and event.time - last.begin <= SAME_EVENT_MICROS:
            time = last.time if event.kind == "ARRI" else event.time
            found[-1] = last._replace(time=time, voyage=last.voyage or event.voyage)
            continue
        run = (last.run + (not same_run)) if last is not None else 0
        found.append(Mark(event.time, event.kind, event.port, event.voyage, run, event.time))
    return found


def window(events: Sequence[Event], first: int, last: int) -> Bounds:
    """Which rows may be others than before, when events or positions from ``first`` to ``last`` are new.

    Two stretches of events to either side are made again: what is new may change the stretch it falls into and where
    the next ones begin, and a stay or passage depends on the stretches at its ends.
    """
    known = marks(events)
    runs = [next(group) for _, group in groupby(known, lambda mark: mark.run)]  # each run's first mark
    before = sum(mark.begin < first for mark in runs) - 1
    after = next((i for i, mark in enumerate(runs) if mark.begin > last), len(runs))

    def time(run: int) -> int | None:
        return runs[run].time if 0 <= run < len(runs) else None

    return Bounds(time(before - 1), time(after + 1), time(before - 2), time(after + 2))
