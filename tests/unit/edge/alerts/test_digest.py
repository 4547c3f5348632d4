"""What the digests of a ship say: the boxes that changed, as the alert engine knows them, when they are due."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from edge.alerts.digest import INTERVAL_S, WHOLE_EVERY, DigestMaker, DigestSender, record_of
from edge.logwriter import retry
from edge.logwriter.tail_reader import LogTail, TailReader
from edge.logwriter.writer import LogWriter
from fairlead.kafka.protocol.errors import LEADER_NOT_AVAILABLE, broker_error
from fairlead.records.digest import Digest, DigestBox, decode_digest
from fairlead.records.reading import moment_of
from fairlead.waiting import in_background
from tests.support.edge.detecting import HOUR, MINUTE, NEIGHBOURS, Voyage, booking, message, ms
from tests.support.edge.samples import BOX, IMO
from tests.support.kafka.fake_broker import until

OTHER = NEIGHBOURS[0]
QUARTER = int(INTERVAL_S)


def chilled(supply: float = 4.1, **more: Any) -> dict[str, Any]:
    return {
        "setpoints": {"temperature": 4.0},
        "measurements": {"supplyTemperature": supply, "returnTemperature": 4.56},
        **more,
    }


class Reporting(Voyage):
    """A voyage whose ship makes a digest whenever one is due; ``stores``: whether Kafka takes them."""

    def __init__(self, made_ms: int = 0) -> None:
        super().__init__()
        self.maker = DigestMaker(IMO, made_ms, 0.0)
        self.stores = True

    def digest(self, after_s: int, *, host_s: float = 0.0) -> Digest | None:
        """Return the digest after a report of the ship's position; None if none is due or nothing changed."""
        self.ship(after_s)
        if not self.maker.is_due(self.engine.ship.at_ms, host_s):
            return None
        digest = self.maker.make(self.engine.ship, ms(after_s), host_s)
        if digest is not None and self.stores:
            self.maker.confirm(digest)
        return digest


def told(digest: Digest | None) -> dict[str, DigestBox]:
    assert digest is not None
    decoded = decode_digest(record_of(digest).value or b"")
    return {box.equipment_reference: box for box in decoded.boxes}


def test_a_digest_has_what_the_newest_reading_says() -> None:
    star = Reporting()
    star.see(0, **chilled())
    star.see(60, **chilled(isPowered=False, motion={"doorOpen": True}))
    star.see(30, number=OTHER)
    digest = star.digest(120)
    assert digest is not None
    assert (digest.whole, digest.as_of_date_time, digest.vessel_imo_number) == (True, moment_of(ms(120)), IMO)
    chill, dry = told(digest)[BOX], told(digest)[OTHER]
    assert (chill.reading_date_time, dry.reading_date_time) == (moment_of(ms(60)), moment_of(ms(30)))
    assert (chill.setpoint_temperature, chill.supply_temperature, chill.return_temperature) == (4.0, 4.1, 4.56)
    assert (chill.is_connected_to_power_source, chill.is_powered, chill.door_open) == (True, False, True)
    assert (dry.setpoint_temperature, dry.in_band) == (None, None), "a dry box is heard, and nothing is judged"


def test_only_boxes_that_changed_are_in_the_next_one() -> None:
    star = Reporting()
    star.see(0, **chilled())
    star.see(0, number=OTHER, **chilled())
    assert told(star.digest(60)).keys() == {BOX, OTHER}
    star.see(QUARTER, **chilled())
    assert star.digest(QUARTER) is None, "not due: the last one was 14 minutes ago"
    digest = star.digest(QUARTER + 60)
    assert told(digest).keys() == {BOX}
    assert digest is not None
    assert not digest.whole
    assert star.digest(3 * QUARTER) is None, "nothing changed"


def test_a_digest_that_is_not_stored_does_not_count() -> None:
    star = Reporting()
    star.see(0, **chilled())
    star.digest(60)
    star.see(MINUTE, **chilled(4.2))
    star.stores = False
    assert told(star.digest(QUARTER + 60)).keys() == {BOX}
    star.stores = True
    assert told(star.digest(2 * QUARTER + 60))[BOX].supply_temperature == 4.2


def test_after_six_hours_all_boxes_are_told_again() -> None:
    star = Reporting()
    star.see(0, number=OTHER, **chilled())
    whole = []
    for turn in range(WHOLE_EVERY + 1):
        star.see(turn * QUARTER, **chilled())
        digest = star.digest(turn * QUARTER)
        assert digest is not None
        whole.append(digest.whole)
        assert (OTHER in told(digest)) is digest.whole
    assert whole == [True, *[False] * (WHOLE_EVERY - 1), True]


def test_the_band_follows_the_booking_and_open_alerts_are_counted() -> None:
    star = Reporting()
    star.engine.booked(booking(commodity="pharmaceuticals"))
    star.see(0, **chilled(4.0))
    assert told(star.digest(0))[BOX].in_band is True
    star.every(15 * MINUTE, 6 * HOUR, start_s=15 * MINUTE, **chilled(12.0))
    box = told(star.digest(6 * HOUR))[BOX]
    assert (box.in_band, box.open_alerts, box.worst_severity) == (
        False,
        1,
        star.engine.ship.aboard[BOX].open["TEMPERATURE"].severity,
    )
    star.see(6 * HOUR + 60, **chilled(20.0, reeferSettings={"isDefrosting": True}))
    box = told(star.digest(7 * HOUR))[BOX]
    assert (box.in_band, box.is_disturbed, box.open_alerts) == (None, True, 1), "a defrost is not judged"


def test_a_clock_that_is_ahead_counts_as_the_moment_of_receipt() -> None:
    star = Reporting()
    star.see(0, **chilled())
    ahead = ms(90)
    late = message(1, 4 * MINUTE, **chilled())
    star.engine.judge_reading(late, late.log, ahead)
    assert told(star.digest(2 * MINUTE))[BOX].reading_date_time == moment_of(ahead)


def test_a_box_that_has_left_is_not_told_any_more() -> None:
    star = Reporting()
    star.see(0, **chilled())
    star.see(0, number=OTHER, **chilled())
    star.digest(60)
    star.engine.forget(OTHER)
    star.see(QUARTER, **chilled())
    assert told(star.digest(QUARTER + 60)).keys() == {BOX}
    star.see(2 * QUARTER, number=OTHER, **chilled())
    assert told(star.digest(3 * QUARTER)).keys() == {OTHER}, "it is back"


@pytest.mark.parametrize(("made_s", "first_s"), [(0, 15 * MINUTE), (-10 * MINUTE, 5 * MINUTE), (-HOUR, 0)])
def test_a_restart_goes_on_from_the_time_of_the_last_digest(made_s: int, first_s: int) -> None:
    star = Reporting(ms(made_s))
    star.see(0, **chilled())
    due = [after_s for after_s in range(0, HOUR, MINUTE) if star.digest(after_s) is not None]
    assert due == [first_s], "after a restart all boxes are told, then nothing changes"


def test_without_positions_the_hosts_clock_counts() -> None:
    star = Reporting()
    star.see(0, **chilled())
    maker, ship = star.maker, star.engine.ship
    assert not maker.is_due(ship.at_ms, INTERVAL_S - 1)
    assert maker.is_due(ship.at_ms, INTERVAL_S)
    digest = maker.make(ship, ms(QUARTER), INTERVAL_S)
    assert digest is not None
    assert digest.as_of_date_time == moment_of(ms(QUARTER))
    assert not maker.is_due(ship.at_ms, INTERVAL_S + 1)


async def test_a_log_of_digests_without_a_leader_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not end the bridge: the ship's readings need no digest."""
    monkeypatch.setattr(retry, "FIRST_DELAY", 0.0)
    read = AsyncMock(side_effect=[broker_error(LEADER_NOT_AVAILABLE), LogTail(0, 0, 0)])
    writer, tails = cast(LogWriter[int], AsyncMock()), cast(TailReader, SimpleNamespace(read=read))
    star = Reporting()
    star.see(0, **chilled())
    async with in_background(DigestSender(IMO, star.engine.ship, writer, tails).run()) as sending:
        await until(lambda: sending.done() or read.await_count == 2)
        assert not sending.done(), sending
