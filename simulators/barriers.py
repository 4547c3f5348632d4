"""The moments at which a voyage waits for the real system, as values. Pure functions.

``ends`` is how long each log must be by now: its markers and every message published for it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping

from simulators.plan import Box, Work
from simulators.steps import Barrier, BarrierKind

Maker = Callable[[dt.datetime, Mapping[str, int]], Barrier]


def _ends_of(boxes: Iterable[Box], ends: Mapping[str, int]) -> dict[str, int]:
    return {log: ends[log] for log in sorted(box.log for box in boxes)}


def booked(office: str, what: str, time: dt.datetime, ends: Mapping[str, int]) -> Barrier:
    """The booking office has written down what is published; readings that depend on it come after."""
    log = f"bookings.{office}"
    return Barrier(time, BarrierKind.RECORDED, f"{what} at {office}", site=office, log_ends={log: ends[log]})


def discharged(work: Work, time: dt.datetime, ends: Mapping[str, int]) -> Barrier:
    """The port has taken the boxes over, so that it may pass them on or let them leave."""
    here = [box for box in work.discharged if box.falls is None]
    return Barrier(
        time,
        BarrierKind.CUSTODY,
        f"{work.call.port} takes custody of {len(here)} boxes discharged by {work.ship}",
        site=work.call.port,
        peer=work.ship,
        containers=tuple(sorted(box.number for box in here)),
        log_ends=_ends_of(here, ends),
        gives_way=True,
    )


def ready_to_sail(work: Work, aboard: Iterable[Box], time: dt.datetime, ends: Mapping[str, int]) -> Barrier:
    """The ship has taken over what it loaded, and ship and port have all of each other's logs of what is aboard."""
    port = work.call.port
    return Barrier(
        time,
        BarrierKind.DEPARTURE,
        f"{work.ship} takes custody of {len(work.loaded)} boxes at {port}, both have all logs of its cargo",
        site=port,
        peer=work.ship,
        containers=tuple(sorted(box.number for box in work.loaded)),
        log_ends=_ends_of(aboard, ends),
        gives_way=True,
    )


def up_to_date(ship: str, aboard: Iterable[Box], time: dt.datetime, ends: Mapping[str, int]) -> Barrier:
    """The ship has written down all that its sensors said.

    In life a ship is never weeks of readings behind; in a voyage that is played thousands of times too fast it may be,
    and the time that an alert takes would be that of the queue before it.
    """
    what = f"{ship} has recorded all readings so far"
    return Barrier(time, BarrierKind.RECORDED, what, site=ship, log_ends=_ends_of(aboard, ends), gives_way=True)


def finished(time: dt.datetime, ends: Mapping[str, int]) -> Barrier:
    """The voyage is over."""
    return Barrier(
        time, BarrierKind.FINISHED, "all that was published is in the logs", log_ends=dict(sorted(ends.items()))
    )
