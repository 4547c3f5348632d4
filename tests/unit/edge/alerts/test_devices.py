"""Alerts about devices themselves: a wrong clock, two devices on one container, a device that changes its container."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.alerts.engine import AlertEngine, default_rules
from edge.alerts.operator import order_for
from edge.alerts.rules import devices
from edge.messages import ReadingMessage
from fairlead.names import container_check_digit
from fairlead.records.alert import Alert, Cause
from tests.support.edge.detecting import HOUR, MINUTE, NEIGHBOURS, message, ms
from tests.support.edge.router_harness import RouterHarness
from tests.support.edge.samples import BOX, NOW, reading, readings_topic
from tests.unit.edge.alerts.restarting import CRASHES, Ship, said

STEP = 15 * MINUTE
OTHER = NEIGHBOURS[0]


class Aboard:
    """Feed readings of any device for any box, received at the time of measurement by default."""

    def __init__(self) -> None:
        self.engine = AlertEngine("star")
        self.alerts: list[Alert] = []
        self.now = 0
        self._sequences: dict[str, int] = {}

    def hear(self, device: str, number: str = BOX, *, after: int = STEP, behind: int = 0) -> list[Alert]:
        """Receive a reading. ``behind``: seconds by which the device's clock, or the reading itself, lags behind the
        receipt.
        """
        self.now += after
        self._sequences[device] = self._sequences.get(device, -1) + 1
        seen = message(self._sequences[device], self.now - behind, number=number, name=device)
        alerts = self.engine.judge_reading(seen, seen.log, ms(self.now))
        self.alerts += alerts
        return alerts

    def told(self) -> list[tuple[str, str, str]]:
        return [(alert.kind, alert.equipment_reference, alert.state) for alert in self.alerts]


def test_a_device_that_takes_over_from_another_is_no_conflict() -> None:
    """A device that replaces another one on a container is no conflict."""
    aboard = Aboard()
    for device in ("old", "old", "new", "new", "new"):
        aboard.hear(device)
    assert aboard.alerts == []


def test_two_devices_on_one_container_are_a_conflict_until_only_one_reports() -> None:
    """Two devices that report for one container raise an alert until only one reports."""
    aboard = Aboard()
    for device in ("one", "two"):
        assert aboard.hear(device) == []
    [opened] = aboard.hear("one")
    assert (opened.kind, opened.severity, opened.state) == ("DEVICE_CONFLICT", "WARNING", "OPENED")
    assert opened.alert_id == f"DEVICE_CONFLICT.{BOX}.two.1.0"
    assert opened.evidence[0].detail == "two and one both report for this container"
    assert [(cause.device_id, cause.sequence) for cause in opened.causes] == [("two", 0), ("one", 1)]
    for device in ("two", "one", "two"):
        assert aboard.hear(device) == []
    quiet = [alert for _ in range(20) for alert in aboard.hear("one")]
    assert [(alert.alert_id, alert.state) for alert in quiet] == [(opened.alert_id, "CLEARED")]
    assert 4 * HOUR * 1000 < quiet[0].event_date_time.timestamp() * 1000 - ms(6 * STEP) <= 4 * HOUR * 1000 + STEP * 1000
    aboard.hear("two")
    [again] = aboard.hear("one")
    assert again.state == "OPENED" and again.alert_id != opened.alert_id


def cleared(aboard: Aboard, alert: Alert) -> None:
    """Let a person clear an alert."""
    [ended] = aboard.engine.dismiss(order_for(alert, "known", NOW), ms(aboard.now))
    assert (ended.alert_id, ended.state) == (alert.alert_id, "CLEARED")


def test_a_conflict_that_was_cleared_by_hand_is_told_again_only_as_a_new_one() -> None:
    """A conflict that goes on raises no alert after its dismissal; with a third device, or after a pause, it does."""
    aboard = Aboard()
    [opened] = [alert for device in ("one", "two", "one") for alert in aboard.hear(device)]
    aboard.hear("two")
    cleared(aboard, opened)
    assert [alert for _ in range(20) for device in ("one", "two") for alert in aboard.hear(device)] == []
    aboard.hear("three")
    [third] = [alert for device in ("two", "three") for alert in aboard.hear(device)]
    assert (third.kind, third.state) == ("DEVICE_CONFLICT", "OPENED")
    cleared(aboard, third)
    assert [alert for _ in range(20) for alert in aboard.hear("two")] == []
    [again] = [alert for device in ("three", "two") for alert in aboard.hear(device)]
    assert again.state == "OPENED" and len({opened.alert_id, third.alert_id, again.alert_id}) == 3


def test_a_clock_whose_alert_was_cleared_by_hand_is_told_again_only_after_it_was_right() -> None:
    """A clock that stays ahead raises no alert after its dismissal; it does if it was right in between."""
    aboard = Aboard()
    [opened] = aboard.hear("one", behind=-HOUR)
    cleared(aboard, opened)
    assert [alert for _ in range(8) for alert in aboard.hear("one", behind=-HOUR)] == []
    assert aboard.hear("one") == []
    [again] = aboard.hear("one", behind=-HOUR)
    assert (again.kind, again.state, again.alert_id != opened.alert_id) == ("CLOCK", "OPENED", True)


@pytest.mark.parametrize("paused", [False, True])
def test_a_conflict_that_was_cleared_by_hand_is_no_news_after_a_restart_much_later(paused: bool) -> None:
    """The dismissal holds although the conflict began before the oldest reading that is read again.

    It does not hold if these readings show that there was a pause.
    """
    readings = [message(n, n * STEP, name=("one", "two")[n % 2]) for n in range(60)]
    before = AlertEngine("star")
    [opened] = [alert for seen in readings[:11] for alert in before.judge_reading(seen, seen.log, seen.device_ms)]
    [ended] = before.dismiss(order_for(opened, "known", NOW), ms(10 * STEP))
    tail = readings[-28:]
    if paused:
        tail[4:22] = [message(n, n * STEP, name="one") for n in range(36, 54)]
    engine = AlertEngine("star")
    for alert in (opened, ended):
        engine.restore(alert)
    raised = [
        alert
        for n, seen in enumerate(tail)
        for alert in engine.recall(seen, seen.log, ms(0), received_ms=seen.device_ms, sure=n >= 14)
    ]
    next_one = message(60, 60 * STEP, name="one")
    raised += engine.judge_reading(next_one, next_one.log, next_one.device_ms)
    assert [alert.kind for alert in raised] == (["DEVICE_CONFLICT"] if paused else [])


@pytest.mark.parametrize("stored", ["never", "before", "since"])
def test_a_clock_that_is_refused_and_whose_alert_was_cleared_by_hand_is_no_news_after_a_restart(stored: str) -> None:
    """Refused readings are in no log that is read again. A reading stored since then had the right time; where none was
    stored in this stay, the alert may be that of an earlier one."""
    cause = Cause(log="deadletters.star", offset=-1, device_id="one", boot_id=1, sequence=5)
    before = AlertEngine("star")
    [opened] = before.refused(BOX, cause, "2090", ms(HOUR))
    [ended] = before.dismiss(order_for(opened, "known", NOW), ms(HOUR))
    engine = AlertEngine("star")
    for alert in (opened, ended):
        engine.restore(alert)
    if stored != "never":
        at = 0 if stored == "before" else 2 * HOUR
        seen = message(2, at, name="one")
        assert engine.recall(seen, seen.log, ms(at), received_ms=ms(at)) == []
    again = engine.refused(BOX, msgspec.structs.replace(cause, sequence=7), "2090", ms(3 * HOUR))
    assert [alert.kind for alert in again] == ([] if stored == "before" else ["CLOCK"])


def test_a_clock_that_is_refused_after_its_alert_was_cleared_by_hand_is_told() -> None:
    """Its readings are dead letters now, and nobody watches the container."""
    aboard = Aboard()
    [opened] = aboard.hear("one", behind=-HOUR)
    cleared(aboard, opened)
    cause = Cause(log="", offset=-1, device_id="one", boot_id=9, sequence=9)
    later = ms(aboard.now + 90 * 24 * HOUR)
    [refused] = aboard.engine.refused(BOX, cause, "2090", later)
    assert refused.kind == "CLOCK"
    cleared(aboard, refused)
    assert aboard.engine.refused(BOX, cause, "2090", later) == []  # the same


def test_another_device_with_a_wrong_clock_is_told_after_an_alert_was_cleared_by_hand() -> None:
    aboard = Aboard()
    [opened] = aboard.hear("one", behind=-HOUR)
    cleared(aboard, opened)
    [other] = aboard.hear("two", after=24 * HOUR, behind=-HOUR)
    assert other.kind == "CLOCK"
    cleared(aboard, other)
    for _ in range(6):
        assert [
            alert for each in ("one", "two") for alert in aboard.hear(each, behind=-HOUR) if alert.kind == "CLOCK"
        ] == []


def test_a_clock_that_is_wrong_in_a_later_stay_is_told_although_it_was_cleared_by_hand_in_an_earlier_one() -> None:
    ship = Ship()
    ship.take(message(0, HOUR), "none", ms(0))
    [opened] = ship.alerts
    ship.append(ship.engine.dismiss(order_for(opened, "known", NOW), ms(0)))
    del ship.stored[:]
    ship.restart()
    ship.take(message(5_000, 180 * 24 * HOUR + HOUR), "none", ms(180 * 24 * HOUR))
    assert [each.state for each in ship.alerts] == ["OPENED", "CLEARED", "OPENED"]


def test_a_conflict_shows_also_when_one_of_the_clocks_is_behind() -> None:
    """Two devices on one container raise an alert also when one of their clocks is behind.

    The rules go by the newer device; the readings of the other one are always late, and must be noticed.
    """
    aboard = Aboard()
    aboard.hear("slow", behind=20 * MINUTE)
    aboard.hear("right")
    [opened] = aboard.hear("slow", after=30 * MINUTE, behind=20 * MINUTE)
    assert opened.kind == "DEVICE_CONFLICT"


def test_what_an_old_device_had_kept_is_no_conflict() -> None:
    """Stored readings of a replaced device, sent later, are no conflict."""
    aboard = Aboard()
    aboard.hear("old")
    aboard.hear("new", after=5 * STEP)
    for _ in range(3):
        assert aboard.hear("old", after=1, behind=4 * STEP) == []
    assert aboard.hear("new") == []


def test_a_repeated_reading_of_the_old_device_is_no_conflict() -> None:
    """A reading of the replaced device that is sent again is no conflict."""
    engine = AlertEngine("star")
    old, new = message(5, 0, name="old"), message(0, STEP, name="new")
    for at, seen in enumerate((old, new, old, new)):
        assert engine.judge_reading(seen, seen.log, ms(at * STEP)) == []


def test_a_device_that_changes_its_container_is_told_once() -> None:
    """A device that changes its container raises one alert."""
    aboard = Aboard()
    aboard.hear("own", OTHER, after=STEP)
    for _ in range(3):
        aboard.hear("d", BOX)
    assert aboard.hear("d", OTHER) == []  # one reading may be a mistake; both are stored anyway
    [opened] = [alert for alert in aboard.hear("d", OTHER) if alert.kind == "DEVICE_MOVED"]
    assert (opened.equipment_reference, opened.severity, opened.state) == (OTHER, "WARNING", "OPENED")
    assert opened.alert_id == f"DEVICE_MOVED.{OTHER}.d.1.2"
    assert BOX in opened.evidence[0].detail
    assert [alert for _ in range(5) for alert in aboard.hear("d", OTHER)] == []
    for _ in range(2):
        aboard.hear("replacement", BOX)
    [ended] = [alert for alert in aboard.hear("d", OTHER) if alert.kind == "DEVICE_MOVED"]
    assert (ended.alert_id, ended.state) == (opened.alert_id, "CLEARED")
    assert ended.evidence[0].detail == f"{BOX} has another device"


def test_a_device_that_returns_to_its_container_ends_the_alert() -> None:
    aboard = Aboard()
    for number in (BOX, OTHER, OTHER):
        aboard.hear("d", number)
    aboard.hear("d", BOX)
    assert aboard.told() == [("DEVICE_MOVED", OTHER, "OPENED")]
    from tests.support.edge.detecting import position

    [ended] = aboard.engine.ship_reported(position(), ms(aboard.now), ms(aboard.now))
    assert (ended.kind, ended.state, ended.evidence[0].detail) == (
        "DEVICE_MOVED",
        "CLEARED",
        f"it reports for {BOX} again",
    )


def test_a_device_that_goes_ashore_with_one_container_and_comes_back_on_another_is_no_news() -> None:
    """A device that goes ashore with one container and comes back on another raises no alert."""
    aboard = Aboard()
    aboard.hear("d", BOX)
    aboard.engine.forget(BOX)
    for _ in range(3):
        assert aboard.hear("d", OTHER) == []


def test_a_gateway_that_gives_its_own_id_for_all_containers_tells_nothing() -> None:
    """A gateway that sends its own id as the device of all containers raises no alerts."""
    aboard = Aboard()
    for _ in range(4):
        for number in NEIGHBOURS:
            aboard.hear("gateway", number)
    assert aboard.alerts == []


def test_device_ids_without_end_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unlimited number of device ids does not fill the memory."""
    monkeypatch.setattr(devices, "MOST_DEVICES", 20)
    aboard = Aboard()
    [rule] = [rule for rule in default_rules() if isinstance(rule, devices.DeviceMovedRule)]
    aboard.engine = AlertEngine("star", [rule])
    aboard.hear("d", OTHER)
    for n in range(200):
        aboard.hear(f"garbage-{n}", BOX)
    assert len(rule._heard_in) <= 20  # noqa: SLF001
    for _ in range(2):
        aboard.hear("d", BOX)
    assert aboard.told() == [("DEVICE_MOVED", BOX, "OPENED")]


def test_an_id_that_a_whole_yard_shares_costs_no_more_than_any_other() -> None:
    """The rule looks at a few of the containers that share an id, not at all of them."""
    rule = devices.DeviceMovedRule()
    engine = AlertEngine("tokyo", [rule], ashore=True)
    tens = [f"BIGU{nth:06d}" for nth in range(40)]
    for turn in range(2):
        for ten in tens:
            seen = message(turn, turn * STEP, number=ten + container_check_digit(ten), name="gateway")
            assert engine.judge_reading(seen, seen.log, ms(turn * STEP)) == []
    assert {device: len(known) for device, known in rule._heard_in.items()} == {"gateway": 8}  # noqa: SLF001


def test_a_clock_that_is_ahead_is_told_and_ends_when_it_is_right() -> None:
    """A device clock that is ahead raises an alert, which clears when the clock is right."""
    aboard = Aboard()
    aboard.hear("d")
    [opened] = aboard.hear("d", behind=-40 * MINUTE)
    assert (opened.kind, opened.state) == ("CLOCK", "OPENED")
    assert opened.evidence[0].detail == "the device's clock is 40 min ahead of the site's"
    assert opened.event_date_time == dt.datetime.fromtimestamp(ms(aboard.now) / 1000, dt.UTC)
    assert aboard.hear("d", behind=-41 * MINUTE) == []
    [ended] = aboard.hear("d", after=HOUR)
    assert (ended.alert_id, ended.state) == (opened.alert_id, "CLEARED")


def test_readings_that_are_late_say_nothing_about_the_clock() -> None:
    """Late readings raise no alert about the device's clock."""
    aboard = Aboard()
    for _ in range(20):
        aboard.hear("d", after=1, behind=24 * HOUR)
    assert aboard.alerts == []


def test_a_clock_so_far_off_that_readings_are_refused_is_told_once_and_ends() -> None:
    """A clock so wrong that readings are refused raises one alert, which clears afterwards."""
    harness = RouterHarness("star")
    now = dt.datetime.now(dt.UTC)
    lost = [
        harness.take(readings_topic(), reading(n, at=now.replace(year=1990 + 60 * (n % 2), day=1))) for n in range(3)
    ]
    assert lost == ["deadletters.star"] * 3
    assert harness.engine is not None
    opened = harness.engine.ship.aboard[BOX].open["CLOCK"]
    assert opened.alert_id == f"CLOCK.{BOX}.d1.1.0" and opened.causes[0].log == "deadletters.star"
    assert "this container is not watched" in opened.evidence[0].detail
    assert harness.take(readings_topic(), reading(3, at=now)).startswith(("containers.", "strays."))
    assert "CLOCK" not in harness.engine.ship.aboard[BOX].open


steps = st.lists(
    st.tuples(
        st.sampled_from([BOX, OTHER]),
        st.sampled_from(["d1", "d2", "d3"]),
        st.sampled_from([0, 0, 0, -40 * MINUTE, 2 * HOUR]),
        st.sampled_from(["none", "none", "none", *CRASHES]),
    ),
    max_size=30,
)


def sailed(story: list[tuple[str, str, int, str]], *, crashing: bool) -> list[Alert]:
    ship = Ship()
    for n, (number, device, behind, crash) in enumerate(story):
        seen: ReadingMessage = message(n, n * STEP - behind, number=number, name=device)
        ship.take(seen, crash if crashing else "none", ms(n * STEP))
    return ship.alerts


@given(steps)
def test_an_alert_engine_that_crashes_says_of_devices_what_one_says_that_does_not(
    story: list[tuple[str, str, int, str]],
) -> None:
    """With crashes anywhere, the alerts about devices are the same as without."""
    assert said(sailed(story, crashing=True)) == said(sailed(story, crashing=False))
