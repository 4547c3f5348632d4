"""The size of a fleet: what a table shows and a program reads. Pure data.

Per day is the average over the voyage; the peak is the fullest day. Bytes over a link are those on the wire, bytes at a
site those in its logs.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulators.scale.costs import Cost


@dataclass(frozen=True, slots=True)
class LinkSize:
    """What crosses a link, per day on average and on its fullest day. Bytes are those on the wire."""

    name: str
    carrier: str
    records_per_day: float
    bytes_per_day: float
    bytes_peak_day: float
    rate: int | None  # bytes per second
    share_of_rate: float | None  # of what the rate carries, on the fullest day


@dataclass(frozen=True, slots=True)
class SiteSize:
    """What a site takes in and stores. ``kept_bytes``: what it has when the voyage is over, by its retention."""

    name: str
    published_per_day: float
    stored_records_per_day: float
    stored_bytes_per_day: float
    stored_bytes_peak_day: float
    kept_bytes: float
    logs: float
    bridge_cores: float
    replicator_cores: float


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a fleet. ``factor`` is how many boxes each modelled one stands for."""

    scenario: str
    topology: str
    seed: int
    containers: int
    modelled: int
    factor: float
    days: float
    reading_interval_minutes: float
    records: dict[str, float]  # by kind
    most_aboard: dict[str, float]
    links: tuple[LinkSize, ...]
    sites: tuple[SiteSize, ...]
    costs: tuple[Cost, ...]
    notes: tuple[str, ...]
