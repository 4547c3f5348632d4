"""Counters of one bridge since its start, and the file from which other programs read them."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from fairlead.home import replace_file


@dataclass(slots=True)
class Metrics:
    """The bridge's counters.

    ``received`` = ``appended`` + ``repeats`` + ``strays`` + ``events_kept`` + ``dead_letters`` + ``flood_dropped`` +
    ``qos0_dropped`` + messages in flight.

    Args:
        readings: Readings of containers among ``appended``.
        appended: Messages of every kind that were appended to their own log.
        strays: Readings kept because another site holds their log.
        drained: Strays that were appended to their log later: by draining, or by an append that was under way when its
            log was blocked.
        events_kept: Events that wait, or have waited, for custody.
        mqtt_dropped: Messages that the MQTT broker says its queues have dropped, summed over its restarts.
        flood_dropped: Messages dropped because their device published far more than its limit (``edge.ingest.limits``).
        qos0_dropped: Messages without PUBACK, of QoS 0 or from AIS, dropped because too many waited for Kafka.
        entries_refused: Ledger entries that are not believed.
        strays_gone: Strays that retention had deleted from the copy here before they were drained.
        unread: Logs that cannot be read beyond a damaged batch (``edge.logwriter.follower``).
    """

    received: int = 0
    readings: int = 0
    appended: int = 0
    repeats: int = 0
    strays: int = 0
    drained: int = 0
    events_kept: int = 0
    dead_letters: int = 0
    dead_letters_by_reason: Counter[str] = field(default_factory=Counter)
    alerts: int = 0
    events: int = 0
    grants: int = 0
    seizures: int = 0
    opened: int = 0
    mqtt_dropped: int = 0
    flood_dropped: int = 0
    qos0_dropped: int = 0
    entries_refused: int = 0
    strays_gone: int = 0
    unread: set[str] = field(default_factory=set)

    def snapshot(self) -> dict[str, Any]:
        """Return the counters as a JSON-ready dictionary."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def write_snapshot(path: Path, snapshot: dict[str, Any]) -> None:
    """Write a snapshot, with time and process id, to a file. Replaces the file atomically for its readers."""
    body = {"written_at": dt.datetime.now(dt.UTC).isoformat(), "pid": os.getpid(), **snapshot}
    replace_file(path, f"{json.dumps(body)}\n".encode())
