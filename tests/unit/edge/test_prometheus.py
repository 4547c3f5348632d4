"""The metrics of a bridge as a Prometheus server sees them, over real HTTP, read by prometheus-client's own parser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edge.bridge import Bridge
from edge.prometheus import bridge_metrics
from fairlead.scrape import serve
from tests.support.scraping import Fixed, Found, scrape
from topologies.loader.load import load


def at(found: Found, name: str, **labels: str) -> float | None:
    return found.get((f"fairlead_bridge_{name}", frozenset({"site": "tokyo", **labels}.items())))


@pytest.fixture
def new() -> dict[str, Any]:
    """Return the snapshot of a new bridge that has not connected to anything yet."""

    def nowhere() -> Any:
        raise AssertionError("is not asked")

    return Bridge(load("minimal", env={}), "tokyo", nowhere, nowhere).snapshot()


@pytest.fixture
def shown(new: dict[str, Any]) -> Iterator[Found]:
    changed: dict[str, Any] = {
        "received": 12,
        "acked": 9,
        "appended": 8,
        "readings": 7,
        "repeats": 1,
        "unacked": 3,
        "ready": True,
        "mqtt_connected": True,
        "kafka_connected": True,
        "dead_letters_by_reason": {"not-json": 2},
        "append_requests": 4,
        "append_seconds": 0.5,
        "custody": {"held": 5, "elsewhere": 2},
    }
    assert changed.keys() <= new.keys()
    server = serve(bridge_metrics, [Fixed(new | changed)], 0)
    try:
        yield scrape(server.port)
    finally:
        server.close()


def test_everything_of_a_snapshot_is_served(shown: Found) -> None:
    """Every value of a snapshot is served."""
    assert at(shown, "received_total") == 12
    assert at(shown, "acknowledged_total") == 9
    assert at(shown, "appended_total") == 8
    assert at(shown, "readings_total") == 7
    assert at(shown, "repeats_total") == 1
    assert at(shown, "dead_letters_total", reason="not-json") == 2
    assert at(shown, "waiting_messages") == 3
    assert at(shown, "ready") == at(shown, "mqtt_connected") == at(shown, "kafka_connected") == 1
    assert at(shown, "append_seconds_count") == 4
    assert at(shown, "append_seconds_sum") == 0.5
    assert at(shown, "logs", custody="held") == 5
    assert at(shown, "logs", custody="elsewhere") == 2


def test_a_bridge_that_has_reached_nothing_says_so(new: dict[str, Any]) -> None:
    """A bridge without any connection shows that in its metrics."""
    server = serve(bridge_metrics, [Fixed(new)], 0)
    try:
        found = scrape(server.port)
    finally:
        server.close()
    assert at(found, "ready") == at(found, "mqtt_connected") == at(found, "kafka_connected") == 0
    assert at(found, "received_total") == at(found, "append_seconds_count") == 0
    began = at(found, "start_time_seconds")
    assert began is not None and began > 1_700_000_000
