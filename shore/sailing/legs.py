"""The passages between a ship's calls, and how it sailed on them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from shore.sailing.model import Call, Leg, Track, nautical_miles

GAP_MICROS: Final = 3_600_000_000


def legs_of(calls: Sequence[Call], track: Track) -> list[Leg]:
    """The passages before, between and after the calls; none where the ship is in port, or nothing is known of one.

    Events that contradict each other give two legs of one time. One of them stays: that with a departure, else the
    first.
    """
    found: dict[int, Leg] = {}
    for before, after in zip([None, *calls], [*calls, None], strict=True):
        if before is not None and not before.left:
            continue
        leg = _leg(before, after, track)
        if leg is None:
            continue
        known = found.setdefault(leg.time, leg)
        if known.departure is None and leg.departure is not None:
            found[leg.time] = leg
    return list(found.values())


def _leg(before: Call | None, after: Call | None, track: Track) -> Leg | None:
    departure = before.departure if before is not None else None
    arrival = after.arrival if after is not None else None
    since = departure if departure is not None else (before.time if before is not None else None)
    until = arrival if arrival is not None else (after.time if after is not None else None)
    part = track.between(since, until + 1 if until is not None else None)
    first = int(part.time[0]) if len(part) else None
    if before is None and first in (None, until):
        return None  # nothing is known of how it came to its first port
    time = next((t for t in (departure, first, arrival, since) if t is not None), None)
    if time is None:
        return None
    steps = nautical_miles(part.latitude[:-1], part.longitude[:-1], part.latitude[1:], part.longitude[1:])
    distance = float(np.sum(steps)) if len(part) > 1 else None
    hours = (int(part.time[-1]) - int(part.time[0])) / 3.6e9 if len(part) > 1 else 0.0
    ends = [departure] if departure is not None else []
    arrived = [arrival] if arrival is not None else []
    silences = np.diff(np.concatenate([ends, part.time, arrived]).astype(np.int64))
    gaps = silences[silences > GAP_MICROS]
    voyage = (before.outbound if before is not None else None) or (after.inbound if after is not None else None)
    return Leg(
        time=time,
        from_port=before.port if before is not None else None,
        to_port=after.port if after is not None else None,
        departure=departure,
        arrival=arrival,
        voyage=voyage,
        last_position=int(part.time[-1]) if len(part) else None,
        positions=len(part),
        distance=distance,
        speed=distance / hours if distance is not None and hours > 0 else None,
        gaps=len(gaps),
        gap_micros=int(np.sum(gaps)),
        longest_gap_micros=int(np.max(gaps)) if len(gaps) else 0,
    )
