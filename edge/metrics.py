"""What one bridge has done since it started, as numbers, and the file that other programs read them from."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.home import private_folder


@dataclass(slots=True)
class Metrics:
    """Counters. ``received`` = appended + repeats + strays + events kept + dead letters + flood_dropped + those under
    way.

    ``appended`` counts messages of every kind that went to their own log, ``readings`` those of containers among them;
    ``strays`` readings kept because their log is elsewhere, ``drained`` strays that have since got into their log,
    ``events_kept`` events that wait for custody or have waited; ``mqtt_dropped`` messages that the MQTT broker says its
    queues have dropped, over its restarts; ``flood_dropped`` messages that the bridge has dropped because their device
    published far more than its limit (``edge.ingest.limits``); ``entries_refused`` entries of ledgers that are not
    believed; ``strays_gone`` strays that retention had deleted from the copy here before they were drained.
    """

    received: int = 0
    readings: int = 0
    appended: int = 0
    repeats: int = 0
    strays: int = 0
    drained: int = 0
    events_kept: int = 0
    dead_letters: int = 0
    alerts: int = 0
    events: int = 0
    grants: int = 0
    seizures: int = 0
    opened: int = 0
    refused_by_reason: Counter[str] = field(default_factory=Counter)
    mqtt_dropped: int = 0
    flood_dropped: int = 0
    entries_refused: int = 0
    strays_gone: int = 0

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "received": self.received,
            "readings": self.readings,
            "appended": self.appended,
            "repeats": self.repeats,
            "strays": self.strays,
            "drained": self.drained,
            "events_kept": self.events_kept,
            "dead_letters": self.dead_letters,
            "dead_letters_by_reason": dict(self.refused_by_reason),
            "alerts": self.alerts,
            "events": self.events,
            "grants": self.grants,
            "seizures": self.seizures,
            "opened": self.opened,
            "mqtt_dropped": self.mqtt_dropped,
            "flood_dropped": self.flood_dropped,
            "entries_refused": self.entries_refused,
            "strays_gone": self.strays_gone,
        }


def write_snapshot(path: Path, snapshot: dict[str, Any]) -> None:
    """Replace the file at once, so that no reader sees half of it."""
    private_folder(path.parent)
    body = {"written_at": dt.datetime.now(dt.UTC).isoformat(), "pid": os.getpid(), **snapshot}
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(body) + "\n", encoding="utf-8")
    temporary.replace(path)
