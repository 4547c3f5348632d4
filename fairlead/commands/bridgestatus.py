"""What ``fairlead status`` tells of a site's bridge: the last words of its metrics file, and what a person must see."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psutil

FRESH: Final = dt.timedelta(seconds=10)  # a bridge writes its file every second


def bridge_file(folder: Path, site: str) -> Path:
    """Where the bridge of a site writes, below a topology's state folder."""
    return folder / "run" / f"bridge.{site}.json"


def read_bridge(folder: Path, site: str) -> dict[str, Any] | None:
    """The metrics of a site's bridge, with ``running`` and ``alarms``; None when none has ever run on this machine, or
    its file cannot be read."""
    try:
        found: dict[str, Any] = json.loads(bridge_file(folder, site).read_text(encoding="utf-8"))
        age = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(found["written_at"])
        running = age < FRESH and psutil.pid_exists(int(found["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {**found, "running": running, "alarms": alarms(found)}


def alarms(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    """What has gone wrong at the way in since the bridge started, as sentences, each with what to do."""
    found: list[dict[str, str]] = []
    if dropped := metrics.get("mqtt_dropped", 0):
        text = f"the MQTT broker has DROPPED {dropped:,} messages: its queues were full"
        hint = "max_queued_messages and max_queued_bytes of its configuration must be 0; those messages are lost"
        found.append({"alarm": "mqtt-dropped", "what": text, "what_to_do": hint})
    if lost := metrics.get("mqtt_sessions_lost", 0):
        text = f"the MQTT broker has forgotten the bridge's session {lost:,} times: what it had queued may be lost"
        hint = "persistence must be true in its configuration, and its folder must be kept"
        found.append({"alarm": "mqtt-session-lost", "what": text, "what_to_do": hint})
    return found
