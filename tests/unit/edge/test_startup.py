"""What a bridge remembers from its site's own logs when it starts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from unittest.mock import MagicMock

import pytest

from edge import startup
from edge.alerts.engine import AlertEngine
from edge.alerts.operator import order_for
from edge.alerts.state import cleared_by_hand, next_state
from edge.startup import recall
from fairlead.records.alert import Alert
from fairlead.records.reading import milliseconds
from tests.support.edge.port import running
from tests.support.edge.samples import NOW
from tests.support.kafka.fake_broker import FakeCluster
from tests.support.notices import alert

HOUR = dt.timedelta(hours=1)


async def recalled(fake: FakeCluster, alerts: Iterable[Alert]) -> AlertEngine:
    """Return the alert engine of a bridge that starts with these alerts in its log."""
    async with running(fake) as port:
        port.writers.alerts.append_alerts(alerts)
        await port.until_idle()
        engine = AlertEngine("tokyo", ashore=True)
        await recall(port.logs, port.writers, engine, MagicMock(), port.tails)
        return engine


async def test_alerts_that_are_older_than_the_newest_states_are_remembered(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alert that is open, and one that a person has cleared, are remembered however many states have followed.

    The others of that age are over, and take no room.
    """
    monkeypatch.setattr(startup, "REMEMBERED", 2)
    lasts, by_hand, ended, newest = (
        alert(f"TEMPERATURE.{box}.d1.1.0", equipment_reference=box)
        for box in ("BIGU1000005", "BIGU1000010", "BIGU1000026", "BIGU1000031")
    )
    seen = next_state(lasts, "UPDATED", (), at=NOW, raised=NOW + HOUR)
    said = cleared_by_hand(by_hand, order_for(by_hand, "a test", NOW + HOUR), milliseconds(NOW))
    dismissed = next_state(by_hand, "CLEARED", said.evidence, at=NOW, raised=NOW)
    told = [lasts, by_hand, ended, seen, dismissed, next_state(ended, "CLEARED", (), at=NOW, raised=NOW)]
    cleared = next_state(newest, "CLEARED", (), at=NOW, raised=NOW)
    engine = await recalled(fake, [*told, newest, cleared])
    boxes = engine.ship.aboard
    assert boxes.keys() == {each.equipment_reference for each in (lasts, by_hand, newest)}
    assert boxes[by_hand.equipment_reference].dismissed == {"TEMPERATURE": dismissed}
    assert boxes[newest.equipment_reference].open == {}
    [acknowledged] = engine.acknowledge(order_for(lasts, "a test", NOW + HOUR, acknowledge=True), milliseconds(NOW))
    assert (acknowledged.alert_id, acknowledged.revision) == (lasts.alert_id, 2)
    [over] = engine.dismiss(order_for(lasts, "a test", NOW + HOUR), milliseconds(NOW))
    assert (over.alert_id, over.state, over.revision) == (lasts.alert_id, "CLEARED", 3)
