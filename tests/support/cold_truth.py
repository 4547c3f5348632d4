"""What the devices of a simulated voyage measured in boxes under cold treatment, and what follows from it for each."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

from simulators.fleet.plan import PlannedBox
from simulators.steps import MessageKind, Publish
from simulators.voyage.voyage import Voyage

PROBES = tuple(f"cargoProbe{number}Temperature" for number in (1, 2, 3))


@dataclass(frozen=True, slots=True)
class ColdTruth:
    """One box whose booking asks for a cold treatment.

    Args:
        measured: Device time and what the three probes showed, while the booking holds, in order.
        cold: First and last time of each time without a break, in order.
    """

    box: PlannedBox
    measured: tuple[tuple[dt.datetime, tuple[float, ...]], ...]
    cold: tuple[tuple[dt.datetime, dt.datetime], ...]

    @property
    def warm_again(self) -> list[dt.datetime]:
        """The first time after each time without a break, if there is one."""
        times = [time for time, _ in self.measured]
        return [times[times.index(last) + 1] for _, last in self.cold if last != times[-1]]


def cold_truths(voyage: Voyage) -> dict[str, ColdTruth]:
    """Unfold a voyage and return the truth by container.

    Raises:
        AssertionError: two readings are further apart than a cold treatment allows; times without a break would then
            depend on what counts as a gap.
    """
    boxes = {box.number: box for box in voyage.plan.boxes if box.lot.cold_treatment}
    measured: dict[str, list[tuple[dt.datetime, tuple[float, ...]]]] = {number: [] for number in boxes}
    for step in voyage.steps():
        if isinstance(step, Publish) and step.kind is MessageKind.READING and step.key in boxes:
            said: dict[str, Any] = json.loads(step.payload)
            time = dt.datetime.fromisoformat(said["device"]["deviceDateTime"])
            if boxes[step.key].booked(time):
                measured[step.key].append((time, tuple(said["measurements"][name] for name in PROBES)))
    return {number: _truth(boxes[number], rows) for number, rows in measured.items()}


def _truth(box: PlannedBox, rows: list[tuple[dt.datetime, tuple[float, ...]]]) -> ColdTruth:
    asked = box.lot.cold_treatment
    assert asked is not None
    assert max(later - sooner for (sooner, _), (later, _) in pairwise(rows)) < dt.timedelta(hours=2)
    marked = [(time, all(value <= asked.temperature for value in values)) for time, values in rows]
    groups = [(cold, [time for time, _ in members]) for cold, members in groupby(marked, itemgetter(1))]
    return ColdTruth(box, tuple(rows), tuple((times[0], times[-1]) for cold, times in groups if cold))
