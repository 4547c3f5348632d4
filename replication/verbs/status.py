"""What a site's replicator says about itself: its status file, and whether that shows the effect of orders."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from replication.orders import Order, OrderKind
from replication.states import LinkState, LogState

FRESH: Final = dt.timedelta(seconds=10)  # a replicator writes its file every few seconds at least


@dataclass(frozen=True, slots=True)
class Status:
    """The last words of one site's replicator, as ``Replicator.snapshot`` made them, and whether it still runs."""

    site: str
    running: bool
    snapshot: Mapping[str, Any] = field(default_factory=dict)

    def link(self, name: str) -> Mapping[str, Any] | None:
        """One of its links."""
        return next((each for each in self.snapshot.get("links", ()) if each["name"] == name), None)

    def troubles(self) -> dict[str, Mapping[str, Any]]:
        """Logs that are not mirrored, but for those that an operator paused."""
        logs: Mapping[str, Mapping[str, Any]] = self.snapshot.get("logs", {})
        return {log: each for log, each in logs.items() if not _is_paused(each)}

    def released(self) -> Mapping[str, Mapping[str, Any]]:
        """Logs that it leaves alone."""
        found: Mapping[str, Mapping[str, Any]] = self.snapshot.get("released", {})
        return found


def status_file(folder: Path, site: str) -> Path:
    """Where the replicator of a site writes, below a topology's state folder."""
    return folder / "run" / f"replicator.{site}.json"


def read_status(folder: Path, site: str) -> Status | None:
    """The status of a site's replicator; None when none has ever run on this machine, or its file cannot be read."""
    try:
        snapshot: dict[str, Any] = json.loads(status_file(folder, site).read_text(encoding="utf-8"))
        age = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(snapshot["at"])
        return Status(site, age < FRESH and psutil.pid_exists(int(snapshot["pid"])), snapshot)
    except (OSError, ValueError, KeyError):
        return None


def shows(status: Status, orders: Sequence[Order], position: int) -> bool:
    """Whether a replicator has acted on orders that stand in its site's topic before ``position``: ``orders`` of its
    report is how far it had read them when it planned last."""
    acted_before: int = status.snapshot["orders"]
    return acted_before >= position and all(_shows(status, order) for order in orders)


def _shows(status: Status, order: Order) -> bool:
    """Nothing in the report contradicts that the order is in force."""
    link = status.link(order.link) if order.link and order.stream is order.log is None else None
    released = status.released().get(order.log or "")
    match order.kind:
        case OrderKind.PAUSE:
            return link is None or link["state"] == LinkState.PAUSED
        case OrderKind.RESUME:
            return link is None or link["state"] != LinkState.PAUSED
        case OrderKind.PROMOTE | OrderKind.FAILOVER:
            if released is None:  # links that are down bring nothing either
                return all(each["state"] != LinkState.MIRRORING for each in status.snapshot.get("links", ()))
            return dt.datetime.fromisoformat(released["since"]) == order.at
        case OrderKind.RESTORE:
            return released is None
        case _:
            return True


def _is_paused(log: Mapping[str, Any]) -> bool:
    return bool(log["state"] == LogState.PAUSED)
