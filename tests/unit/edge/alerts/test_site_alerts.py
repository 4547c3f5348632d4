from __future__ import annotations

import datetime as dt
from typing import Any
from unittest.mock import MagicMock

import pytest

from edge.alerts.site_alerts import SiteAlerts, strays_waiting
from edge.messages import MessageId
from edge.strays.store import StrayIndex, WaitingEvent
from fairlead.records.alert import Alert
from tests.support.raised_alerts import RaisedAlerts

LOG = "containers.BIGU1000005"


@pytest.fixture
def writers() -> Any:
    made = MagicMock()
    made.alerts = RaisedAlerts("tokyo")
    made.strays.index = StrayIndex()
    made.strays.events = {}
    made.strays.log = "strays.tokyo"
    return made


def of_strays(writers: Any) -> SiteAlerts:
    return SiteAlerts("tokyo", writers, [strays_waiting(writers, limit=60)])


def raised(writers: Any) -> list[Alert]:
    return list(writers.alerts.raised())


def test_one_alert_per_log_until_its_strays_are_gone(writers: Any) -> None:
    """Readings that wait too long for custody raise one alert per log, which clears when none waits any more."""
    age = of_strays(writers)
    for offset, received in enumerate((1_000, 5_000)):
        writers.strays.index.add(LOG, offset, MessageId("d", 1, offset), received)
    age.update_alerts(60_999)
    assert raised(writers) == []
    age.update_alerts(61_000)
    age.update_alerts(65_000)
    [opened] = raised(writers)
    assert (opened.kind, opened.state, opened.severity) == ("STRAYS_WAITING", "OPENED", "WARNING")
    assert (opened.equipment_reference, opened.event_date_time.timestamp()) == ("BIGU1000005", 1.0)
    assert "2 readings" in opened.evidence[0].detail

    again = of_strays(writers)  # after a restart it continues with its open alerts
    again.restore(opened)
    again.update_alerts(70_000)
    assert len(raised(writers)) == 1
    writers.strays.index.drained(LOG, upto=2)
    again.update_alerts(71_000)
    again.update_alerts(72_000)
    [_, cleared] = raised(writers)
    assert (cleared.state, cleared.alert_id) == ("CLEARED", opened.alert_id)
    assert (opened.revision, cleared.revision) == (0, 1), "the id and the revision name a state"
    assert cleared.event_date_time.timestamp() == 71.0, "it ended when none waited any more"

    last = of_strays(writers)
    for alert in (opened, cleared):
        last.restore(alert)
    last.update_alerts(80_000)
    assert len(raised(writers)) == 2


def test_an_event_that_waits_too_long_raises_the_same_alert(writers: Any) -> None:
    """An event that waits too long for custody raises the same alert."""
    age = of_strays(writers)
    writers.strays.events[LOG] = [WaitingEvent(0, "e1", dt.datetime(2026, 3, 1, tzinfo=dt.UTC), 1_000)]
    age.update_alerts(60_999)
    assert raised(writers) == []
    age.update_alerts(61_000)
    [opened] = raised(writers)
    assert (opened.kind, opened.state, opened.equipment_reference) == ("STRAYS_WAITING", "OPENED", "BIGU1000005")
    assert "0 readings and 1 events" in opened.evidence[0].detail
    writers.strays.events.clear()
    age.update_alerts(62_000)
    assert [alert.state for alert in raised(writers)] == ["OPENED", "CLEARED"]


def test_of_a_reading_and_an_event_the_older_one_counts(writers: Any) -> None:
    """The older of a waiting reading and a waiting event decides about the alert."""
    age = of_strays(writers)
    writers.strays.index.add(LOG, 0, MessageId("d", 1, 0), 5_000)
    writers.strays.events[LOG] = [WaitingEvent(1, "e1", dt.datetime(2026, 3, 1, tzinfo=dt.UTC), 1_000)]
    age.update_alerts(61_000)
    writers.strays.events.clear()  # the reading has not waited too long yet
    age.update_alerts(62_000)
    age.update_alerts(65_000)
    assert [alert.state for alert in raised(writers)] == ["OPENED", "CLEARED", "OPENED"]
