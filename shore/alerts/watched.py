"""Whose silence is shore's to tell.

A box on a ship is watched by its ship, and its readings come ashore only when the ship is at a berth; one that left the
system (GTOT) need not report. Silence of the others is told while their site is heard: at least one other box of the
same holder must have reported in the same batch, else the site or the way from it is silent and not the box.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow.compute as pc
from deltalake import DeltaTable

UNKNOWN = ""  # holder of logs that no ledger names


@dataclass(frozen=True, slots=True)
class Holders:
    """Who holds each log now. ``custody``: location of that table; read anew by every call."""

    custody: str

    def __call__(self) -> Mapping[str, str | None]:
        running = pc.field("to_offset").is_null() & ~pc.field("lost")
        rows = DeltaTable(self.custody).to_pyarrow_dataset().to_table(columns=["log", "holder"], filter=running)
        return dict(zip(rows["log"].to_pylist(), rows["holder"].to_pylist(), strict=True))


def watched(log: str, holders: Mapping[str, str | None], heard: Collection[str | None], ships: Collection[str]) -> bool:
    """Whether shore tells a silence of this log now.

    Args:
        holders: Who holds each log; None after a gate-out.
        heard: Holders of the logs that brought readings in this batch.
        ships: Sites that watch their boxes themselves.
    """
    holder = holders.get(log, UNKNOWN)
    return holder is not None and holder not in ships and holder in heard
