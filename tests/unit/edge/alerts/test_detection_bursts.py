"""Devices that store and forward: a day of readings arrives at once after a silence, and alerts go by the readings' own
times.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from fairlead.records.alert import Alert
from tests.support.edge.detecting import HOUR, MINUTE, NEIGHBOURS, REEFER, Voyage, message, ms
from tests.support.edge.samples import BOX

STEP = 5 * MINUTE
DAY = 24 * HOUR
GOOD = {**REEFER, "measurements": {"supplyTemperature": 4.0}}
WARM = {**REEFER, "measurements": {"supplyTemperature": 9.0}}


class Ship(Voyage):
    """A ship whose boxes reported for two hours; then some went on, and one was silent for a day and stored its
    readings.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at(0, 2 * HOUR, (BOX, *NEIGHBOURS))

    def at(self, start_s: int, end_s: int, numbers: Iterable[str]) -> list[Alert]:
        """Feed live readings of these boxes, and the ship's reports, at a time."""
        alerts: list[Alert] = []
        for now in range(start_s, end_s, STEP):
            alerts += self.ship(now)
            for number in numbers:
                alerts += self.see(now, number=number, **GOOD)
        return alerts

    def silent_day(self) -> list[Alert]:
        """Let the other boxes report for the day."""
        return self.at(2 * HOUR, 2 * HOUR + DAY, NEIGHBOURS)

    def burst(self, warm: range = range(0), *, number: str = BOX, boot_at: int | None = None) -> list[Alert]:
        """Feed all readings stored during the day at once.

        ``warm`` are readings out of band; the device restarts (a new boot) at ``boot_at``.
        """
        alerts: list[Alert] = []
        now = ms(2 * HOUR + DAY)
        start = self.sequences[number] + 1
        for nth in range(DAY // STEP):
            fields = WARM if nth in warm else GOOD
            booted = boot_at is not None and nth >= boot_at
            sequence = nth - boot_at if booted and boot_at is not None else start + nth
            found = message(sequence, 2 * HOUR + nth * STEP, number=number, boot=2 if booted else 1, **fields)
            alerts += self._keep(self.engine.judge_reading(found, found.log, now))
        return alerts


def told(alerts: Iterable[Alert]) -> list[tuple[str, str, int]]:
    """Return kind, state, and the device's seconds since the silence began, for each alert."""
    return [(alert.kind, alert.state, int(alert.event_date_time.timestamp() - ms(2 * HOUR) / 1000)) for alert in alerts]


def test_silence_is_opened_once_and_ends_with_the_first_reading_of_the_burst() -> None:
    """A silence alert opens once, and clears with the first reading of the burst."""
    ship = Ship()
    assert told(ship.silent_day()) == [("SILENCE", "OPENED", -STEP)]
    assert told(ship.burst()) == [("SILENCE", "CLEARED", 0)]
    after = 2 * HOUR + DAY
    assert ship.at(after, after + 2 * HOUR, NEIGHBOURS)[0].kind == "SILENCE"  # its usual interval is still known


def test_silence_is_not_said_again_while_a_burst_comes_in() -> None:
    """While a burst arrives, the box does not count as silent again.

    The ship reports in the middle of the burst; the readings are old, but they arrive now.
    """
    ship = Ship()
    ship.silent_day()
    now = 2 * HOUR + DAY
    ship.ship(now)
    start = ship.sequences[BOX] + 1
    alerts: list[Alert] = []
    for nth in range(DAY // STEP):
        found = message(start + nth, 2 * HOUR + nth * STEP, **GOOD)
        alerts += ship.engine.judge_reading(found, found.log, ms(now))
        alerts += ship.ship(now + nth)
        for number in NEIGHBOURS:
            if nth % 60 == 0:
                alerts += ship.see(now + nth, number=number, **GOOD)
    assert [alert.state for alert in alerts] == ["CLEARED"]


def test_dwell_is_judged_by_when_it_was_measured() -> None:
    """Dwell times go by the time of measurement.

    An hour out of band during the night opens the alert and clears it, although all readings came within a second.
    """
    ship = Ship()
    ship.silent_day()
    found = told(ship.burst(warm=range(100, 124)))  # two hours
    assert found == [
        ("SILENCE", "CLEARED", 0),
        ("TEMPERATURE", "OPENED", 100 * STEP + HOUR),
        ("TEMPERATURE", "CLEARED", 124 * STEP + 15 * MINUTE),
    ]


def test_what_was_out_of_band_for_less_than_its_dwell_is_nothing() -> None:
    """A period out of band that is shorter than its dwell time raises no alert."""
    ship = Ship()
    ship.silent_day()
    assert told(ship.burst(warm=range(100, 112))) == [("SILENCE", "CLEARED", 0)]  # 55 min


def test_a_condition_goes_on_from_before_the_silence() -> None:
    """A condition continues from before the silence: half an hour before it and half an hour in it make an hour."""
    ship = Ship()
    for nth in range(6, 0, -1):
        ship.sequences[BOX] += 1
        live = message(ship.sequences[BOX], 2 * HOUR - nth * 30, **WARM)
        assert ship.engine.judge_reading(live, live.log, ms(2 * HOUR)) == []
    ship.silent_day()
    found = told(ship.burst(warm=range(0, 20)))
    assert ("TEMPERATURE", "OPENED", HOUR) in found or ("TEMPERATURE", "OPENED", HOUR - STEP) in found


def test_a_device_that_has_started_anew_meanwhile() -> None:
    """A device that restarted during the silence is judged as before."""
    ship = Ship()
    ship.silent_day()
    found = told(ship.burst(warm=range(140, 160), boot_at=150))
    assert [kind for kind, _, _ in found] == ["SILENCE", "TEMPERATURE", "TEMPERATURE"]
    assert found[1] == ("TEMPERATURE", "OPENED", 140 * STEP + HOUR)


@pytest.mark.parametrize("repeats", [1, 24, 40])
def test_what_was_sent_before_the_silence_and_comes_again_changes_nothing(repeats: int) -> None:
    """A reading from before the silence that is sent again changes no alert."""
    ship = Ship()
    ship.silent_day()
    last = ship.sequences[BOX]
    for sequence in range(max(0, last - repeats + 1), last + 1):
        again = message(sequence, sequence * STEP, **WARM)  # even with other content
        assert ship.engine.judge_reading(again, again.log, ms(2 * HOUR + DAY)) == []
    assert told(ship.burst()) == [("SILENCE", "CLEARED", 0)]


def test_several_devices_at_the_same_time() -> None:
    """Several devices behind one gateway fall silent: one alert about all of them, and none about single ones as they
    return in turn.
    """
    ship = Ship()
    alerts: list[Alert] = []
    for now in range(2 * HOUR, 2 * HOUR + DAY, STEP):
        alerts += ship.ship(now)
    assert [(alert.equipment_reference, alert.state) for alert in alerts] == [("", "OPENED")]
    found = [alert for number in (BOX, *NEIGHBOURS) for alert in ship.burst(range(30, 50), number=number)]
    assert {alert.kind for alert in found} == {"TEMPERATURE"}
    assert len(found) == 2 * 5
    assert [(alert.equipment_reference, alert.state) for alert in ship.ship(2 * HOUR + DAY + 1)] == [("", "CLEARED")]
