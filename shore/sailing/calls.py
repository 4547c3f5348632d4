"""The calls of a ship, from what is said and from where it was. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from shore.sailing.model import Call, Mark, Port, Track, nautical_miles

PORT_NMI: Final = 10.0
STILL_KN: Final = 0.5
_AT_ANCHOR, _MOORED = 1, 5


class _Run(NamedTuple):
    """Positions in a row near one port. ``berth``: first and last time in port, None when it never was."""

    port: str
    first: int
    last: int
    berth: tuple[int, int] | None
    at_begin: bool
    at_end: bool


def calls_of(known: Sequence[Mark], track: Track, ports: Sequence[Port]) -> list[Call]:
    """The stays of one ship, in order; ``known`` are its marks."""
    calls: list[Call] = []
    here: Call | None = None  # the call that runs at the left end of a segment, by an ARRI
    for left, right in zip([None, *known], [*known, None], strict=True):
        if left is None or left.kind == "DEPA":
            here = None
        elif here is None or here.left or here.port != left.port:  # else it never left: said twice
            here = Call(left.port, left.time, None, "EVENT", inbound=left.voyage)
            calls.append(here)
        if here is not None and right is not None and (right.kind, right.port) == ("DEPA", here.port):
            here.left, here.departure, here.departure_source, here.outbound = True, right.time, "EVENT", right.voyage
            continue
        runs = _runs(track.between(left.time if left else None, right.time if right else None), ports)
        if here is not None:
            _leaving(here, runs, right)
        elif left is not None and runs and runs[0].at_begin and runs[0].port == left.port:
            if runs[0].at_end and right is not None and (right.kind, right.port) == ("DEPA", left.port):
                calls[-1].departure = right.time  # it had not left yet when that was first said
                continue
            runs.pop(0)
        coming = runs.pop() if right is not None and _comes_to(right, runs) else None
        for run in runs:
            if run.berth is not None:
                calls.append(_seen(run, gone=not run.at_end or right is not None))
        if right is not None and right.kind == "DEPA":
            calls.append(_departed(right, coming))
    return calls


def _leaving(here: Call, runs: list[_Run], right: Mark | None) -> None:
    """When a ship left of which only the arrival is said; takes its stay out of ``runs``."""
    if not runs or runs[0].port != here.port:
        here.left = bool(runs) or right is not None
        return
    stay = runs.pop(0)
    here.left = not stay.at_end or (right is not None and right.port != here.port)
    if here.left:
        here.departure, here.departure_source = (stay.berth[1] if stay.berth else stay.last), "POSITION"


def _comes_to(mark: Mark, runs: Sequence[_Run]) -> bool:
    """Whether the last stay before a mark belongs to the call that the mark is about."""
    return bool(runs) and runs[-1].port == mark.port and (runs[-1].at_end or mark.kind == "DEPA")


def _seen(run: _Run, *, gone: bool) -> Call:
    """A call that nobody told of."""
    if run.berth is None:
        raise ValueError("the ship never lay in this port")
    arrival, last = run.berth
    if not gone:
        return Call(run.port, arrival, None, "POSITION")
    return Call(run.port, arrival, last, "POSITION", "POSITION", left=True)


def _departed(mark: Mark, coming: _Run | None) -> Call:
    """A call of which only the departure is said."""
    call = Call(mark.port, None, mark.time, None, "EVENT", outbound=mark.voyage, left=True)
    if coming is not None:
        call.arrival, call.arrival_source = (coming.berth[0] if coming.berth else coming.first), "POSITION"
    return call


def _runs(track: Track, ports: Sequence[Port]) -> list[_Run]:
    """Stretches of positions near one port, in order."""
    if not len(track) or not ports:
        return []
    away = np.stack([nautical_miles(track.latitude, track.longitude, p.latitude, p.longitude) for p in ports])
    nearest = np.argmin(away, axis=0)
    zone = np.where(np.min(away, axis=0) <= PORT_NMI, nearest, -1)
    still = (track.status == _MOORED) | ((track.status != _AT_ANCHOR) & (track.speed < STILL_KN))
    edges = np.flatnonzero(np.diff(zone)) + 1
    begins = [0, *(int(edge) for edge in edges)]
    found = []
    for begin, end in zip(begins, [*begins[1:], len(zone)], strict=True):
        if zone[begin] < 0:
            continue
        moored = np.flatnonzero(still[begin:end])
        berth = (int(track.time[begin + moored[0]]), int(track.time[begin + moored[-1]])) if len(moored) else None
        found.append(
            _Run(
                port=ports[int(zone[begin])].code,
                first=int(track.time[begin]),
                last=int(track.time[end - 1]),
                berth=berth,
                at_begin=begin == 0,
                at_end=end == len(zone),
            )
        )
    return found
