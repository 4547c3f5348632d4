"""Whose silence is shore's to tell because time passes.

A box on a ship is watched by its ship, and its readings come ashore only when the ship is at a berth; one that left the
system (GTOT) need not report. Of the others a silence is told when their site has been heard since the box was due:
else the site, or the way from it, is silent and not the box. What is known of sites stands in ``containers_now``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow.compute as pc
from deltalake import DeltaTable

UNKNOWN = ""  # holder of containers that no ledger names
_COLUMNS = ["equipment_reference", "holder", "holder_kind", "custody_event", "reading_date_time"]


class Sites(NamedTuple):
    """What is known of them.

    Args:
        holders: Who has to report of each container; None: nobody, to shore. Those that are missing: ``UNKNOWN``.
        clocks: Time of the newest reading of the containers of each site, milliseconds since 1970.
    """

    holders: Mapping[str, str | None]
    clocks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SitesNow:
    """Reads them, anew by every call. ``location``: of table ``containers_now``."""

    location: str

    def __call__(self) -> Sites:
        boxes = DeltaTable(self.location).to_pyarrow_dataset().to_table(columns=_COLUMNS)
        times = pc.cast(boxes["reading_date_time"], "int64").to_pylist()
        holders: dict[str, str | None] = {}
        clocks: dict[str, int] = {}
        kinds, events = boxes["holder_kind"].to_pylist(), boxes["custody_event"].to_pylist()
        names, holding = boxes["equipment_reference"].to_pylist(), boxes["holder"].to_pylist()
        for box, holder, kind, event, micros in zip(names, holding, kinds, events, times, strict=True):
            site = holder if holder is not None else UNKNOWN
            holders[box] = None if kind == "ship" or event == "GTOT" else site
            if micros is not None and event != "GTOT":
                clocks[site] = max(clocks.get(site, 0), micros // 1000)
        return Sites(holders, clocks)


def watched(number: str, due_ms: int, sites: Sites) -> bool:
    """Whether shore tells a silence of this container, which was due at ``due_ms``."""
    holder = sites.holders.get(number, UNKNOWN)
    return holder is not None and sites.clocks.get(holder, 0) >= due_ms
