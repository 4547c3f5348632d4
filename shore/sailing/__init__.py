"""Where a ship called and how it sailed, from what is said (ARRI, DEPA) and from where it was. Pure.

What is said counts. Events of one kind and port that follow each other within a day are one: the first ARRI, the last
DEPA (the port says it, and the ship). Where one is missing, positions tell: a ship is **in port** while it is within
``PORT_NMI`` of the port and moored (AIS status 5), or slower than ``STILL_KN`` and not at anchor (status 1), from its
first such position to its last before it leaves that circle (``shore.sailing.calls`` has both numbers). Only ports with
known coordinates are looked for; what neither events nor positions say stays unknown (None).

Between two events nothing depends on what is beyond them. So a change of what is known is local: ``window`` says which
rows it may change, and ``sail`` computes these from the events and the positions around them.
"""

from __future__ import annotations

from collections.abc import Sequence

from shore.sailing.calls import calls_of
from shore.sailing.legs import legs_of
from shore.sailing.marks import marks, window
from shore.sailing.model import ALL, Bounds, Call, Event, Leg, Port, Track, nautical_miles

__all__ = ["Bounds", "Call", "Event", "Leg", "Port", "Track", "marks", "nautical_miles", "sail", "window"]


def sail(
    events: Sequence[Event], track: Track, ports: Sequence[Port], bounds: Bounds = ALL
) -> tuple[list[Call], list[Leg]]:
    """The calls and legs of one ship that begin within ``bounds``, in order of time.

    Args:
        events: All of its ARRI and DEPA.
        track: Its positions, at least those that ``bounds`` needs.
    """
    known = [m for m in marks(events) if _inside(m.time, bounds.read_since, bounds.read_until, closed=True)]
    track = track.between(bounds.read_since, bounds.read_until)
    calls = calls_of(known, track, ports)
    legs = legs_of(calls, track)
    named = {(call.time, call.port): call for call in reversed(calls)}  # of two that contradict each other, the first
    return (
        [call for call in reversed(named.values()) if _inside(call.time, bounds.since, bounds.until)],
        [leg for leg in legs if _inside(leg.time, bounds.since, bounds.until)],
    )


def _inside(time: int, since: int | None, until: int | None, *, closed: bool = False) -> bool:
    if since is not None and time < since:
        return False
    return until is None or time < until or (closed and time == until)
