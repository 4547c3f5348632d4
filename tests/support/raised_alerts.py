"""A writer of alerts that stores nothing and shows which alerts were raised."""

from __future__ import annotations

from unittest.mock import MagicMock

from edge.logwriter.writer import Barrier, LogEntry
from edge.metrics import Metrics
from edge.writer_registry import AlertKey, AlertWriter, Settlement
from fairlead.records import decoder
from fairlead.records.alert import Alert

_ALERT = decoder(Alert)


def _never(error: BaseException) -> None:
    raise error


class RaisedAlerts(AlertWriter):
    """Collect ``items`` instead of appending them."""

    def __init__(self, site: str = "star") -> None:
        super().__init__(f"alerts.{site}", MagicMock(), Settlement(Metrics(), _never))
        self.items: list[LogEntry[AlertKey] | Barrier] = []

    def enqueue(self, item: LogEntry[AlertKey] | Barrier) -> None:
        self.items.append(item)

    def entries(self) -> list[LogEntry[AlertKey]]:
        return [item for item in self.items if isinstance(item, LogEntry)]

    def raised(self) -> list[Alert]:
        """Return the alerts in the order in which they were raised."""
        return [_ALERT.decode(entry.record.value or b"") for entry in self.entries()]
