"""Reads the last report of a site's bridge for ``fairlead status``, and derives alarms from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fairlead.home import is_running, run_folder


def bridge_file(folder: Path, site: str) -> Path:
    """Return the file that the bridge of a site writes, below a topology's state folder."""
    return run_folder(folder, site) / f"bridge.{site}.json"


def read_bridge(folder: Path, site: str) -> dict[str, Any] | None:
    """Return the metrics of a site's bridge, with ``running`` and ``alarms`` added.

    None when no bridge of the site has ever run on this machine, or its file cannot be read.
    """
    try:
        found: dict[str, Any] = json.loads(bridge_file(folder, site).read_text(encoding="utf-8"))
        running = is_running(int(found["pid"]), found["written_at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {**found, "running": running, "alarms": alarms(found)}


@dataclass(frozen=True, slots=True)
class Alarm:
    """One way in which a bridge loses messages, or cannot bring them into their logs.

    Args:
        count: Returns the number of occurrences in the bridge's last metrics; 0: no alarm.
        what: A sentence with ``{count}``, or ``{unread}`` for the names of logs.
        what_to_do: The operator's remedy.
    """

    name: str
    count: Callable[[Mapping[str, Any]], int]
    what: str
    what_to_do: str


ALARMS: Final = (
    Alarm(
        "mqtt-dropped",
        lambda metrics: int(metrics.get("mqtt_dropped", 0)),
        "the MQTT broker has DROPPED {count:,} messages: its queues were full",
        "max_queued_messages and max_queued_bytes of its configuration must be 0; those messages are lost",
    ),
    Alarm(
        "mqtt-session-lost",
        lambda metrics: int(metrics.get("mqtt_sessions_lost", 0)),
        "the MQTT broker has lost the bridge's session {count:,} times; queued messages may be lost",
        "persistence must be true in its configuration, and its folder must be kept",
    ),
    Alarm(
        "flood-dropped",
        lambda metrics: int(metrics.get("flood_dropped", 0)),
        "the bridge has DROPPED {count:,} messages of devices that publish far more than their limit",
        "its log and the alert DEVICE_FLOOD name the devices; 'fairlead devices remove' shuts one out",
    ),
    Alarm(
        "qos0-dropped",
        lambda metrics: int(metrics.get("qos0_dropped", 0)),
        "the bridge has DROPPED {count:,} messages of QoS 0 or AIS: too many waited for Kafka",
        "they are lost; let devices publish with QoS 1, whose messages wait at the MQTT broker",
    ),
    Alarm(
        "dead-letters",
        lambda metrics: int(metrics.get("dead_letters", 0)),
        "{count:,} messages could not be used: they are dead letters, and no other log or table has them",
        "fairlead bridge replay --site SITE --dry-run shows why; remove the cause, then replay them",
    ),
    Alarm(
        "strays-gone",
        lambda metrics: int(metrics.get("strays_gone", 0)),
        "{count:,} strays were deleted by retention here before they were drained: their logs lack them",
        "the site that kept them still has them in its strays log; a longer retention for strays here prevents this",
    ),
    Alarm(
        "logs-broken",
        lambda metrics: int(metrics.get("custody", {}).get("broken", 0)),
        "{count:,} containers' logs refuse what the bridge appends: another program has written to them, or they are "
        "damaged",
        "run only one bridge for the site; fairlead acl audit NUMBER shows who else can write; make a broker that has "
        "a damaged log whole its leader; then restart the bridge",
    ),
    Alarm(
        "logs-unread",
        lambda metrics: len(metrics.get("unread", ())),
        "{count:,} logs that the bridge follows have a damaged batch, and are not read beyond it: {unread}",
        "make a broker that has them whole their leader; the bridge then reads on",
    ),
    Alarm(
        "site-alerts",
        lambda metrics: sum(metrics.get("site_alerts", {}).values()),
        "{count:,} alerts about this site are open: readings or events do not reach their logs",
        "fairlead alert list shows them; fairlead custody strays shows what waits for which log",
    ),
)
"""All alarms of bridges. Each is a line of ``fairlead status``, and makes ``fairlead status --check`` exit with 1."""


def alarms(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the alarms that the metrics call for, each with a sentence and a remedy."""
    counted = ((each, each.count(metrics)) for each in ALARMS)
    unread = ", ".join(sorted(metrics.get("unread", ())))
    return [
        {"alarm": each.name, "what": each.what.format(count=count, unread=unread), "what_to_do": each.what_to_do}
        for each, count in counted
        if count
    ]
