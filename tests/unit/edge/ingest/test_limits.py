"""One device sends too much: messages over its limit are kept as dead letters or dropped with an alert; no other device
is affected.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from edge.alerts.engine import AlertEngine
from edge.alerts.site_alerts import SiteAlerts
from edge.ingest import limits
from edge.ingest.classifier import Classifier
from edge.ingest.dead_letters import DeadLetters
from edge.ingest.limits import Decision, DeviceLimits
from edge.ingest.router import MessageRouter
from edge.metrics import Metrics
from edge.mqtt.session import Delivery
from fairlead.records import decoder
from fairlead.records.edge import DeadLetter
from tests.support.acknowledging import AckSession
from tests.support.edge.samples import BOX, BOX_LOG, IMO, NOW_MS, event, reading, readings_topic, topology
from tests.support.raised_alerts import RaisedAlerts

OTHER = "BIGU1000010"
MINUTE = 60_000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BURST_MESSAGES", 5)
    monkeypatch.setattr(limits, "LETTERS", 3)


def counted(made: DeviceLimits, topic: str, times: int, now_ms: int = NOW_MS) -> list[Decision]:
    return [made.check(topic, reading(n), now_ms) for n in range(times)]


def test_a_burst_is_taken_then_some_letters_are_kept_and_the_rest_is_dropped() -> None:
    """A burst is accepted; over the limit some messages become dead letters, and the rest is dropped."""
    made = DeviceLimits("tokyo")
    found = counted(made, readings_topic(), 10)
    assert found == [Decision.TAKE] * 5 + [Decision.LETTER] * 3 + [Decision.DROP] * 2
    assert made.dropped == 2
    assert counted(made, readings_topic(OTHER), 5) == [Decision.TAKE] * 5


def test_a_device_that_keeps_to_its_rate_is_never_limited() -> None:
    """A device that keeps to its rate is never limited."""
    made = DeviceLimits("tokyo")
    counted(made, readings_topic(), 6)
    for second in range(1, 100):
        now_ms = NOW_MS + 1000 * second
        assert counted(made, readings_topic(), 5, now_ms) == [Decision.TAKE] * 5


def test_large_messages_are_limited_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BURST_BYTES", 1000)
    made = DeviceLimits("tokyo")
    assert [made.check(readings_topic(), bytes(400), NOW_MS) for _ in range(3)] == [
        Decision.TAKE,
        Decision.TAKE,
        Decision.LETTER,
    ]
    assert made.check(readings_topic(), bytes(400), NOW_MS + 10_000) is Decision.TAKE


def test_a_clock_that_is_set_back_gives_nothing_and_takes_nothing() -> None:
    """A clock that is set back neither adds to the allowance nor removes from it."""
    made = DeviceLimits("tokyo")
    assert counted(made, readings_topic(), 5, NOW_MS) == [Decision.TAKE] * 5
    assert made.check(readings_topic(), b"", NOW_MS - 3_600_000) is Decision.LETTER


def test_after_a_clock_that_is_set_back_a_device_that_keeps_to_its_rate_is_not_limited() -> None:
    """The allowance grows again at once after the clock is set back, not when it reaches its former time."""
    made = DeviceLimits("tokyo")
    counted(made, readings_topic(), 5)
    back_ms = NOW_MS - 60 * MINUTE
    assert counted(made, readings_topic(), 1, back_ms) == [Decision.LETTER]
    for second in range(1, 10):
        assert counted(made, readings_topic(), 5, back_ms + 1000 * second) == [Decision.TAKE] * 5


def test_after_a_clock_that_is_set_back_letters_are_kept_again_a_day_later() -> None:
    """The quota of dead letters is renewed a day after the clock is set back."""
    made = DeviceLimits("tokyo")
    counted(made, readings_topic(), 10)
    back_ms = NOW_MS - 60 * MINUTE
    assert counted(made, readings_topic(), 1, back_ms) == [Decision.DROP]
    found = counted(made, readings_topic(), 8, back_ms + 24 * 60 * MINUTE)
    assert found == [Decision.TAKE] * 5 + [Decision.LETTER] * 3


def test_after_a_clock_that_is_set_back_the_alert_is_cleared_in_ten_minutes() -> None:
    made, writers = DeviceLimits("tokyo"), MagicMock(alerts=RaisedAlerts("tokyo"))
    alerts = SiteAlerts("tokyo", writers, [made.source()])
    counted(made, readings_topic(), 6)
    alerts.update_alerts(NOW_MS)
    back_ms = NOW_MS - 60 * MINUTE
    alerts.update_alerts(back_ms)
    alerts.update_alerts(back_ms + 9 * MINUTE)
    assert [alert.state for alert in writers.alerts.raised()] == ["OPENED"]
    alerts.update_alerts(back_ms + 10 * MINUTE)
    assert [alert.state for alert in writers.alerts.raised()] == ["OPENED", "CLEARED"]


def test_after_a_restart_an_open_alert_stays_for_ten_minutes_without_a_message_over_the_limit() -> None:
    """A bridge that has just started cannot say that there was none for ten minutes."""
    made, writers = DeviceLimits("tokyo"), MagicMock(alerts=RaisedAlerts("tokyo"))
    counted(made, readings_topic(), 10)
    SiteAlerts("tokyo", writers, [made.source()]).update_alerts(NOW_MS)
    again, restarted = RaisedAlerts("tokyo"), DeviceLimits("tokyo")
    alerts = SiteAlerts("tokyo", MagicMock(alerts=again), [restarted.source()])
    for opened in writers.alerts.raised():
        alerts.restore(opened)
    alerts.update_alerts(NOW_MS + 5 * MINUTE)
    counted(restarted, readings_topic(), 6, NOW_MS + 12 * MINUTE)
    alerts.update_alerts(NOW_MS + 14 * MINUTE)
    assert again.raised() == []
    alerts.update_alerts(NOW_MS + 15 * MINUTE)
    assert [(each.alert_id, each.state) for each in again.raised()] == [
        (each.alert_id, "CLEARED") for each in writers.alerts.raised() if "/dropped" in each.alert_id
    ]
    alerts.update_alerts(NOW_MS + 22 * MINUTE)
    assert {each.alert_id for each in again.raised()} == {each.alert_id for each in writers.alerts.raised()}


def test_after_a_clock_that_is_set_back_the_log_still_tells_of_drops(caplog: pytest.LogCaptureFixture) -> None:
    made = DeviceLimits("tokyo")
    counted(made, readings_topic(), 10)
    back_ms = NOW_MS - 60 * MINUTE
    counted(made, readings_topic(), 1, back_ms)
    caplog.clear()
    counted(made, readings_topic(), 6, back_ms + MINUTE)
    assert "DROPPED" in caplog.text


@pytest.mark.parametrize("topic", ["fairlead/v1/events", "fairlead/v1/bookings", f"fairlead/v1/replays/1/{BOX_LOG}"])
def test_topics_that_publishers_share_have_no_limit(topic: str) -> None:
    """Topics that several publishers share have no limit."""
    assert set(counted(DeviceLimits("tokyo"), topic, 100)) == {Decision.TAKE}


def test_letters_are_kept_again_on_the_next_day() -> None:
    """The quota of dead letters is renewed on the next day."""
    made = DeviceLimits("tokyo")
    counted(made, readings_topic(), 10)
    day = NOW_MS + 24 * 60 * MINUTE
    assert counted(made, readings_topic(), 10, day) == [Decision.TAKE] * 5 + [Decision.LETTER] * 3 + [Decision.DROP] * 2


def test_topics_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of topics that the limiter remembers is bounded."""
    monkeypatch.setattr(limits, "_REMEMBERED", 10)
    made = DeviceLimits("tokyo")
    for number in range(100):
        made.check(f"fairlead/v1/containers/{number}/readings", b"", NOW_MS)
    assert len(made._buckets) <= 10  # noqa: SLF001


@pytest.fixture(autouse=True)
def same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """All messages are received at ``NOW_MS``, however long the machine takes."""
    monkeypatch.setattr("edge.ingest.router.time", Mock(time_ns=lambda: NOW_MS * 1_000_000))


class Site:
    """Tokyo's router, and where it put each message."""

    def __init__(self) -> None:
        self.writers: Any = MagicMock()
        self.metrics = Metrics()
        self.session = AckSession()
        self.writers.metrics = self.metrics
        engine = AlertEngine("tokyo", ashore=True)
        letters = DeadLetters(self.writers, engine)
        self.router = MessageRouter(Classifier(topology(), "tokyo"), self.writers, MagicMock(), letters, engine)
        self._mids = 0

    def publish(self, topic: str, payload: bytes) -> None:
        self._mids += 1
        self.router.route_message(Delivery(topic, payload, False, self.session.order.received(self._mids)))

    def letters(self) -> list[DeadLetter]:
        decode = decoder(DeadLetter).decode
        return [decode(call.args[0].record.value) for call in self.writers.letters.enqueue.call_args_list]

    def readings(self) -> int:
        return int(self.writers.box.return_value.enqueue.call_count)


def test_what_is_over_the_limit_is_kept_whole_and_then_acknowledged_and_counted() -> None:
    """A message over the limit is kept whole as a dead letter, then acknowledged and counted."""
    site = Site()
    for number in range(10):
        site.publish(readings_topic(), reading(number))
    site.publish(readings_topic(OTHER), reading(0, number=OTHER))
    letters = site.letters()
    assert site.readings() == 6
    assert [(letter.reason, letter.payload) for letter in letters] == [("flood", reading(n)) for n in (5, 6, 7)]
    assert readings_topic() in letters[0].detail
    assert site.metrics.flood_dropped == 2
    assert site.metrics.received == 11
    for call in (*site.writers.box.return_value.enqueue.call_args_list, *site.writers.letters.enqueue.call_args_list):
        call.args[0].ack.finish_part()
    assert site.session.acknowledged == list(range(1, 12))  # drops delay no acknowledgement


def test_a_flood_of_messages_that_cannot_be_used_is_limited_too() -> None:
    """A flood of invalid messages is limited, too."""
    site = Site()
    for _ in range(10):
        site.publish(readings_topic(), b"{")
    reasons = [letter.reason for letter in site.letters()]
    assert reasons == ["malformed-json"] * 5 + ["flood"] * 3
    assert site.metrics.flood_dropped == 2


def test_events_are_never_limited() -> None:
    site = Site()
    for number in range(20):
        site.publish("fairlead/v1/events", event("DEPA", event_id=f"e{number}", vesselIMONumber=IMO))
    assert site.writers.events.enqueue.call_count == 20


def test_the_alert_names_the_device_and_says_when_messages_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    made, writers = DeviceLimits("tokyo"), MagicMock(alerts=RaisedAlerts("tokyo"))
    raised = writers.alerts.raised
    alerts = SiteAlerts("tokyo", writers, [made.source()])

    counted(made, readings_topic(), 6)
    alerts.update_alerts(NOW_MS)
    [opened] = raised()
    assert (opened.kind, opened.state, opened.equipment_reference) == ("DEVICE_FLOOD", "OPENED", BOX)
    assert "device d1" in opened.evidence[0].detail
    counted(made, readings_topic(), 4)
    alerts.update_alerts(NOW_MS + 1000)
    [_, dropped] = raised()
    assert "are dropped, 2 so far" in dropped.evidence[0].detail
    assert "DROPPED" in caplog.text
    alerts.update_alerts(NOW_MS + 9 * MINUTE)
    assert len(raised()) == 2
    alerts.update_alerts(NOW_MS + 10 * MINUTE)
    assert [alert.state for alert in raised()] == ["OPENED", "OPENED", "CLEARED", "CLEARED"]
