"""A voyage as an ordered stream of steps in simulated time. Pure: no clock, no network, no state outside itself.

The same scenario, topology and seed give the same steps, byte for byte, however slowly they are taken. Nothing is
kept that has been yielded, so a long voyage of many boxes needs no more memory than a short one.

Order: simulated time never goes back. Each message is published at the site where the box is at that time: a port's
yard, a ship, and for the short rest of its life the sea behind it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Protocol

from fairlead.errors import ConfigurationError
from simulators.mishaps import make_plan
from simulators.plan import Plan
from simulators.scenario import Scenario
from simulators.steps import Step
from simulators.unfolding import Unfolding
from topologies.model import Topology


class Course(Protocol):
    """What can be sailed: a voyage that is made, one that was recorded, or one that is being recorded."""

    @property
    def plan(self) -> Plan: ...
    @property
    def starts(self) -> dt.datetime: ...
    @property
    def ends(self) -> dt.datetime: ...
    def expected_messages(self) -> int: ...
    def steps(self) -> Iterator[Step]: ...


_SHORTEST = dt.timedelta(minutes=1)


class Voyage:
    """All steps of one scenario.

    Args:
        seed: Everything random follows from it.
        containers: Rescales the scenario's mix; None keeps it.
        start: Moves the whole voyage in time; None keeps the scenario's start. Devices' clocks follow.
        reading_interval: Replaces the scenario's.
        with_bad: Mixes in messages that no bridge can use (``simulators.bad``).

    Raises:
        ConfigurationError: the scenario does not fit the topology, or cannot be planned.
    """

    def __init__(
        self,
        scenario: Scenario,
        topology: Topology,
        *,
        seed: int,
        containers: int | None = None,
        start: dt.datetime | None = None,
        reading_interval: dt.timedelta | None = None,
        with_bad: bool = False,
    ) -> None:
        if containers is not None:
            scenario = scenario.rescaled(containers)
        changed: dict[str, object] = {}
        if start is not None:
            if start.tzinfo is None:
                raise ConfigurationError("the start of a voyage has no time zone", hint="give it in UTC, ending in Z")
            changed["start"] = start.replace(microsecond=0)
        if reading_interval is not None:
            if reading_interval < _SHORTEST:
                raise ConfigurationError(
                    f"a reading interval of {reading_interval} is too short", hint=f"give at least {_SHORTEST}"
                )
            changed["reading_interval"] = reading_interval
        self.plan: Plan = make_plan(scenario.model_copy(update=changed), topology, seed)
        self.with_bad = with_bad

    @property
    def starts(self) -> dt.datetime:
        return self.plan.starts

    @property
    def ends(self) -> dt.datetime:
        return self.plan.ends

    def expected_messages(self) -> int:
        """About how many messages will be published (within some per cent), for a progress bar."""
        scenario, ends = self.plan.scenario, self.plan.ends
        total = 0.0
        for box in self.plan.boxes:
            last = box.moves[-1]
            gone = box.falls or (last.time if last.to is None else ends)
            total += (gone - box.moves[0].time) / scenario.reading_interval + len(box.moves)
            total += 2 if box.released else int(box.lot.customer is not None)
        total *= 1 + scenario.devices.repeat
        hours = (ends - self.plan.starts) / scenario.ship_interval
        return int(total + 2 * hours * len(self.plan.timetables))

    def steps(self) -> Iterator[Step]:
        """The voyage from its beginning; every call begins anew."""
        return Unfolding(self.plan, with_bad=self.with_bad).steps()
