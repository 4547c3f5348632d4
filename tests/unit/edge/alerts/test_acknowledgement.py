"""Alerts acknowledged by a person: noted once, by whom, in all later states; the rules go on as if nothing happened."""

from __future__ import annotations

import datetime as dt
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest

from edge.alerts.engine import AlertEngine
from edge.alerts.operator import answer_body, chosen, order_for
from edge.alerts.site_alerts import SiteAlerts, strays_waiting
from edge.messages import MessageId
from edge.strays.store import StrayIndex
from fairlead.errors import RefusedError
from fairlead.records import decoder, encode
from fairlead.records.alert import Alert, AlertOrder
from tests.support.edge.detecting import FALL, HOUR, MINUTE, Voyage, ms
from tests.support.edge.samples import NOW
from tests.support.raised_alerts import RaisedAlerts

OFF: dict[str, Any] = {"setpoints": {"temperature": 4.0}, "isPowered": False}


def ack(alert: Alert, why: str = "a man is on his way") -> AlertOrder:
    order = order_for(alert, why, NOW, acknowledge=True)
    assert decoder(AlertOrder).decode(encode(order)) == order
    return order


def test_all_later_states_say_who_has_acknowledged_the_alert() -> None:
    voyage = Voyage()
    [opened] = voyage.every(15 * MINUTE, 30 * MINUTE, **OFF)
    order = ack(opened)
    [seen] = voyage.engine.acknowledge(order, ms(0))
    assert (seen.alert_id, seen.state, seen.revision, seen.severity) == (opened.alert_id, "UPDATED", 1, "ALARM")
    assert (seen.acknowledged_by, seen.acknowledged_date_time) == (order.ordered_by, NOW)
    assert (seen.evidence, seen.event_date_time) == (opened.evidence, opened.event_date_time)
    assert voyage.engine.acknowledge(order, ms(0)) == []  # the order is read again at every start
    [ended] = voyage.see(HOUR, setpoints={"temperature": 4.0})
    assert (ended.state, ended.revision, ended.acknowledged_by) == ("CLEARED", 2, order.ordered_by)
    assert ended.acknowledgement == "a man is on his way"
    assert voyage.engine.acknowledge(order, ms(0)) == []


def test_an_acknowledged_alert_stays_so_after_a_restart_and_can_still_be_cleared() -> None:
    voyage = Voyage()
    voyage.ship()
    [opened] = voyage.see(0, **FALL)
    [seen] = voyage.engine.acknowledge(ack(opened), ms(0))
    again = AlertEngine("star")
    for alert in (opened, seen):
        again.restore(alert)
    assert again.acknowledge(ack(opened), ms(0)) == []
    [ended] = again.dismiss(order_for(seen, "seen on deck", NOW), ms(0))
    assert (ended.state, ended.acknowledged_by) == ("CLEARED", seen.acknowledged_by)


def test_an_order_for_another_alert_does_nothing_and_an_earlier_bridge_clears_nothing() -> None:
    """A bridge that does not know acknowledgements sees an order about no alert."""
    voyage = Voyage()
    [opened] = voyage.every(15 * MINUTE, 30 * MINUTE, **OFF)
    order = ack(opened)
    assert order.alert_id == ""
    assert voyage.engine.dismiss(order, ms(0)) == []
    other = ack(Voyage().every(10 * MINUTE, 30 * MINUTE, name="d2", **OFF)[0])
    assert voyage.engine.acknowledge(other, ms(0)) == []


def test_what_cannot_be_acknowledged_is_refused_before_an_order_is_written() -> None:
    voyage = Voyage()
    [opened] = voyage.every(15 * MINUTE, 30 * MINUTE, **OFF)
    order = ack(opened, "")  # no reason is needed
    assert chosen([opened], opened.alert_id, "star", acknowledge=True) == opened
    [seen] = voyage.engine.acknowledge(order, ms(0))
    assert answer_body(opened, order, seen)["outcome"] == "acknowledged"
    earlier = msgspec.structs.replace(seen, acknowledged_date_time=NOW - dt.timedelta(hours=1))
    assert answer_body(opened, order, earlier)["outcome"] == "over"  # another person was faster
    with pytest.raises(RefusedError, match="acknowledged already"):
        chosen([opened, seen], opened.alert_id, "star", acknowledge=True)


def test_an_alert_about_the_site_is_acknowledged_and_ends_with_its_cause() -> None:
    """Alerts that nobody may clear by hand may be acknowledged; their end comes after the acknowledgement."""
    writers = MagicMock(alerts=RaisedAlerts("tokyo"))
    writers.strays.index, writers.strays.events, writers.strays.log = StrayIndex(), {}, "strays.tokyo"
    log = "containers.BIGU1000005"
    writers.strays.index.add(log, 0, MessageId("d", 1, 0), 1_000)
    site = SiteAlerts("tokyo", writers, [strays_waiting(writers, limit=60)])
    site.update_alerts(61_000)
    [opened] = writers.alerts.raised()
    order = ack(opened)
    site.apply_order(order)
    site.apply_order(order)
    writers.strays.index.drained(log, upto=1)
    site.update_alerts(71_000)
    told = [(each.state, each.revision, each.acknowledged_by) for each in writers.alerts.raised()]
    assert told == [("OPENED", 0, ""), ("UPDATED", 1, order.ordered_by), ("CLEARED", 2, order.ordered_by)]


@pytest.mark.parametrize("acknowledge", [True, False])
def test_nobody_acknowledges_or_clears_what_shore_has_found(acknowledge: bool) -> None:
    [opened] = Voyage().every(15 * MINUTE, 30 * MINUTE, **OFF)
    found = msgspec.structs.replace(opened, raised_at="shore")
    with pytest.raises(RefusedError, match="shore has found alert"):
        chosen([found], found.alert_id, "los-angeles", acknowledge=acknowledge)
