"""What is known of a ship and what is worked out of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

_EARTH_NMI: Final = 6371.0088 / 1.852  # mean radius (IUGG)

Floats = npt.NDArray[np.float64]
Kind = Literal["ARRI", "DEPA"]
Source = Literal["EVENT", "POSITION"]


class Event(NamedTuple):
    """One ARRI or DEPA, repeats counted once. Times are microseconds since 1970."""

    time: int
    kind: Kind
    port: str
    event_id: str
    voyage: str | None = None


class Mark(NamedTuple):
    """Events that say the same, as one. ``run`` numbers the stretches of events of one kind and port; ``begin`` is the
    time of the first of them, before which the ``time`` of a DEPA is not."""

    time: int
    kind: Kind
    port: str
    voyage: str | None
    run: int
    begin: int


class Port(NamedTuple):
    """A port whose place is known."""

    code: str
    latitude: float
    longitude: float


@dataclass(frozen=True, slots=True)
class Track:
    """Positions of one ship, one a moment, in order. ``speed`` in knots, NaN where unknown."""

    time: npt.NDArray[np.int64]
    latitude: Floats
    longitude: Floats
    speed: Floats
    status: npt.NDArray[np.int64]

    def between(self, since: int | None, until: int | None) -> Track:
        """Those from ``since`` (inclusive) to ``until`` (exclusive); None is open."""
        low = 0 if since is None else int(np.searchsorted(self.time, since))
        high = len(self.time) if until is None else int(np.searchsorted(self.time, until))
        part = slice(low, max(low, high))
        return Track(*(getattr(self, name)[part] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.time)


@dataclass(slots=True)
class Call:
    """One stay at a port. ``left``: it is not there any more, whether or not the time is known."""

    port: str
    arrival: int | None = None
    departure: int | None = None
    arrival_source: Source | None = None
    departure_source: Source | None = None
    inbound: str | None = None
    outbound: str | None = None
    left: bool = False

    @property
    def time(self) -> int:
        """What names the call beside ship and port."""
        known = self.arrival if self.arrival is not None else self.departure
        if known is None:
            raise ValueError("a call has an arrival or a departure")
        return known


@dataclass(frozen=True, slots=True)
class Leg:
    """One passage. ``time`` names it beside the ship; ``speed`` is None where there is no time to sail it in."""

    time: int
    from_port: str | None
    to_port: str | None
    departure: int | None
    arrival: int | None
    voyage: str | None
    last_position: int | None
    positions: int
    distance: float | None
    speed: float | None
    gaps: int
    gap_micros: int
    longest_gap_micros: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which part of a ship's history is made again.

    Rows that begin in [``since``, ``until``) are replaced; for them positions in [``read_since``, ``read_until``) are
    needed. None is open.
    """

    since: int | None = None
    until: int | None = None
    read_since: int | None = None
    read_until: int | None = None


ALL: Final = Bounds()


def nautical_miles(latitude: Any, longitude: Any, to_latitude: Any, to_longitude: Any) -> Any:
    """Great-circle distance on the mean sphere, of arrays or numbers in degrees."""
    lat, lon, to_lat, to_lon = (np.radians(each) for each in (latitude, longitude, to_latitude, to_longitude))
    half = np.sin((to_lat - lat) / 2) ** 2 + np.cos(lat) * np.cos(to_lat) * np.sin((to_lon - lon) / 2) ** 2
    return 2 * _EARTH_NMI * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0)))
