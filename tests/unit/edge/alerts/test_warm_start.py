"""Reading the past for an alert engine that starts: how far back, in which order, and what becomes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import MagicMock

import pytest

from edge.alerts.engine import AlertEngine
from edge.alerts.warm_start import DEEPEST, DEPTH, deep_enough, readings_of, recall_readings, sure_from_ms
from edge.holdings import Holdings
from edge.logwriter import records
from edge.logwriter.tail_reader import LogTail
from edge.messages import MessageId
from edge.site_logs import booking_logs
from edge.strays.store import StrayIndex
from fairlead.custody.view import CustodyView
from fairlead.kafka.convention import marker_record
from fairlead.kafka.protocol.errors import CorruptBatch, WireError, broker_error
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import TP
from fairlead.records.alert import Alert
from fairlead.records.custody import CustodyEntry
from tests.support.edge.detecting import FALL, HOUR, MINUTE, NEIGHBOURS, ms, new_record, position
from tests.support.edge.samples import BOX, BOX_LOG, NOW, topology
from tests.support.raised_alerts import RaisedAlerts
from topologies.loader.load import load

OFF: dict[str, Any] = {"setpoints": {"temperature": 4.0}, "isPowered": False}
OTHER = NEIGHBOURS[0]
OTHER_LOG = f"containers.{OTHER}"
STRAYS = "strays.star"


def stored(record: NewRecord, offset: int) -> Record:
    return Record(offset, record.timestamp_ms, record.key, record.value, tuple(record.headers))


class Logs:
    """The ship's logs in memory, in place of ``edge.logwriter.tail_reader.TailReader``."""

    def __init__(self, **logs: list[NewRecord]) -> None:
        self.logs = {name: [stored(each, n) for n, each in enumerate(log)] for name, log in logs.items()}
        self.asked: list[tuple[str, int]] = []
        self.error: WireError = broker_error(3)  # for a log that is not here

    async def read(self, topic: str, depth: int) -> LogTail:
        self.asked.append((topic, depth))
        if topic not in self.logs:
            raise self.error
        log = self.logs[topic]
        floor = max(0, len(log) - depth)
        return LogTail(0, floor, len(log), log[floor:])

    async def records(self, topic: str, start: int, end: int) -> AsyncIterator[Record]:
        for record in self.logs[topic][start:end]:
            yield record


def holdings(*held: str) -> Holdings:
    view = CustodyView()
    found = Holdings("star", view)
    for log in held:
        view.apply(
            CustodyEntry(
                log=log,
                term=2,
                marker_offset=0,
                from_site="tokyo",
                to_site="star",
                event="LOAD",
                event_id="e",
                event_date_time=NOW,
                marker_batch=b"",
                granted_by="tokyo",
                granted_date_time=NOW,
            )
        )
        found.hold(log, 2)
    return found


def writers(waiting: dict[str, list[int]] | None = None, end: int = 0) -> Any:
    found = MagicMock(alerts=RaisedAlerts())
    index = found.strays.index = StrayIndex()
    found.strays.log = STRAYS
    for topic, offsets in (waiting or {}).items():
        for offset in offsets:
            index.add(topic, offset, MessageId("d1", 1, offset))
    index.end = end
    return found


def put(found: Any) -> list[Alert]:
    return list(found.alerts.raised())


def started() -> AlertEngine:
    engine = AlertEngine("star")
    engine.ship_reported(position(), ms(0), ms(0))
    return engine


async def test_a_condition_that_began_before_the_restart_goes_on_after_it() -> None:
    """A condition that began before the restart continues after it."""
    log = [new_record(n, n * 10 * MINUTE, **OFF) for n in range(3)]
    engine, found = started(), writers()
    await recall_readings(engine, found, holdings(BOX_LOG), Logs(**{BOX_LOG: log}))  # type: ignore[arg-type]
    assert put(found) == []
    [(next_one, _)] = readings_of(BOX_LOG, [stored(new_record(3, 30 * MINUTE, **OFF), 3)])
    [alert] = engine.judge_reading(next_one, BOX_LOG, next_one.device_ms)
    assert alert.alert_id == f"POWER_LOST.{BOX}.d1.1.0"


async def test_an_alert_whose_reading_alone_was_stored_is_raised_from_the_log() -> None:
    """If only the reading was stored before a crash, its alert is raised from the log at the start."""
    engine, found = started(), writers()
    await recall_readings(engine, found, holdings(BOX_LOG), Logs(**{BOX_LOG: [new_record(0, 0, **FALL)]}))  # type: ignore[arg-type]
    [alert] = put(found)
    assert (alert.kind, alert.causes[0].log) == ("OVERBOARD", BOX_LOG)


async def test_what_happened_before_the_site_had_the_box_is_not_judged_again() -> None:
    """A condition of the time at another site begins anew at this one, after a restart as without one."""
    before = [new_record(n, n * 30 * MINUTE, **OFF) for n in range(4)]
    taken_over = marker_record(b"{}", timestamp_ms=ms(100 * MINUTE))
    here = [new_record(n, n * 30 * MINUTE, **OFF) for n in (4, 5)]
    engine, found = started(), writers()
    logs = Logs(**{BOX_LOG: [*before, taken_over, *here]})
    await recall_readings(engine, found, holdings(BOX_LOG), logs)  # type: ignore[arg-type]
    [alert] = put(found)
    assert alert.alert_id == f"POWER_LOST.{BOX}.d1.1.4"


async def test_a_yard_recalls_no_strays_of_other_sites_boxes() -> None:
    """A port's engine does not take up readings of a box that another site has."""
    strays = [records.stray(OTHER_LOG, new_record(n, n * 30 * MINUTE, number=OTHER, **OFF)) for n in range(3)]
    engine, found = AlertEngine("star", ashore=True), writers({OTHER_LOG: [0, 1, 2]}, end=3)
    await recall_readings(engine, found, holdings(BOX_LOG), Logs(**{STRAYS: strays, BOX_LOG: []}))  # type: ignore[arg-type]
    assert put(found) == [] and not engine.ship.aboard


async def test_strays_come_after_what_the_log_has_and_only_those_that_wait() -> None:
    """Readings that wait for custody are read after the log, and only those that are not in it yet."""
    strays = [
        records.stray(BOX_LOG, new_record(0, 0, **FALL)),  # drained into the log long ago
        records.stray(OTHER_LOG, new_record(0, 0, number=OTHER, motion={"freeFallSeconds": 1.0})),
        records.stray(OTHER_LOG, new_record(1, 60, number=OTHER, motion={"immersed": True})),
    ]
    engine, found = started(), writers({OTHER_LOG: [1, 2]}, end=3)
    await recall_readings(engine, found, holdings(), Logs(**{STRAYS: strays}))  # type: ignore[arg-type]
    [alert] = put(found)
    assert (alert.equipment_reference, alert.causes[0].log) == (OTHER, STRAYS)


async def test_a_box_is_expected_to_report_also_if_its_last_readings_were_strays_before() -> None:
    """The site holds the log; the strays of it are about to be drained, or were and still stand in the index."""
    readings = [new_record(n, n * 15 * MINUTE) for n in range(4)]
    strays = [records.stray(BOX_LOG, each) for each in readings]
    engine, found = started(), writers({BOX_LOG: [0, 1, 2, 3]}, end=4)
    logs = Logs(**{BOX_LOG: readings[:2], STRAYS: strays})
    await recall_readings(engine, found, holdings(BOX_LOG), logs)  # type: ignore[arg-type]
    alerts = [alert for hours in range(1, 12) for alert in engine.ship_reported(position(), ms(hours * HOUR))]
    assert [(alert.kind, alert.state, alert.causes[0].sequence) for alert in alerts] == [("SILENCE", "OPENED", 3)]


async def test_what_was_open_for_a_box_that_left_is_ended() -> None:
    """At the start, open alerts of a box that has left the ship are cleared."""
    engine = started()
    [(seen, _)] = readings_of(BOX_LOG, [stored(new_record(0, 0, **FALL), 0)])
    [opened] = engine.judge_reading(seen, BOX_LOG, ms(0))
    again, found = started(), writers()
    again.restore(opened)
    await recall_readings(again, found, holdings(), Logs())  # type: ignore[arg-type]
    assert [(alert.alert_id, alert.state) for alert in put(found)] == [(opened.alert_id, "CLEARED")]


async def test_a_box_whose_log_is_on_its_way_to_the_ship_has_not_left_it() -> None:
    """A box whose log is about to come to the ship does not count as gone."""
    engine = started()
    [(seen, _)] = readings_of(BOX_LOG, [stored(new_record(0, 0, **FALL), 0)])
    [opened] = engine.judge_reading(seen, STRAYS, ms(0))
    again, found, custody = started(), writers(), holdings(BOX_LOG)
    custody.mark_broken(BOX_LOG)
    again.restore(opened)
    await recall_readings(again, found, custody, Logs())  # type: ignore[arg-type]
    assert put(found) == []


async def test_a_log_is_read_deeper_only_where_its_readings_are_close_together() -> None:
    """More of a log is read only where its readings are close together."""
    close = [new_record(n, n * MINUTE) for n in range(1000)]
    apart = [new_record(n, n * HOUR, number=OTHER) for n in range(100)]
    logs = Logs(**{BOX_LOG: close, OTHER_LOG: apart})
    await recall_readings(started(), writers(), holdings(BOX_LOG, OTHER_LOG), logs)  # type: ignore[arg-type]
    assert logs.asked == [(BOX_LOG, DEPTH), (OTHER_LOG, DEPTH), (BOX_LOG, DEEPEST)]


@pytest.mark.parametrize("error", [broker_error(3, TP(OTHER_LOG)), CorruptBatch("damaged")], ids=["away", "damaged"])
async def test_a_log_that_cannot_be_read_stops_nobody(error: WireError) -> None:
    """A log that cannot be read does not stop the start of the engine."""
    found = writers()
    logs = Logs(**{BOX_LOG: [new_record(0, 0, **FALL)]})
    logs.error = error
    await recall_readings(started(), found, holdings(OTHER_LOG, BOX_LOG), logs)  # type: ignore[arg-type]
    assert [alert.equipment_reference for alert in put(found)] == [BOX]


def test_markers_and_what_cannot_be_read_are_no_readings() -> None:
    """Custody markers and records that cannot be decoded are skipped."""
    marker = marker_record(b"{}", timestamp_ms=ms(0))
    odd = [marker, NewRecord(b"{", b"k", (), timestamp_ms=0), NewRecord(None, b"k", (), timestamp_ms=0)]
    assert list(readings_of(BOX_LOG, [stored(each, n) for n, each in enumerate(odd)])) == []


def test_a_whole_log_is_deep_enough() -> None:
    """A log that is read from its beginning is never read further."""
    assert deep_enough(LogTail(0, 0, 1, [stored(new_record(0, 0), 0)]), reach_ms=HOUR * 1000)
    assert not deep_enough(LogTail(0, 5, 6, [stored(new_record(5, 0), 5)]), reach_ms=HOUR * 1000)


def test_the_depth_is_that_of_the_longest_dwell() -> None:
    """The engine reads back at least as far as the longest dwell time."""
    assert started().reach_ms >= 4 * HOUR * 1000


def test_a_ship_follows_the_bookings_that_a_link_brings_aboard() -> None:
    """A ship follows the bookings that a link brings aboard."""
    assert booking_logs(topology(), "star") == ()
    assert booking_logs(load("big-blue"), "los-angeles") == (
        "bookings.los-angeles",
        "bookings.tokyo",
        "bookings.singapore",
        "bookings.sydney",
    )


def test_the_beginning_of_a_tail_is_remembered_but_not_judged() -> None:
    """The first readings that are read back are remembered, but not judged."""
    tail = [stored(new_record(n, n * HOUR), n) for n in range(100, 120)]
    first = tail[0].timestamp_ms
    assert sure_from_ms(LogTail(0, 100, 120, tail), reach_ms=5 * HOUR * 1000) == first + 5 * HOUR * 1000
    assert sure_from_ms(LogTail(0, 100, 120, tail), reach_ms=50 * HOUR * 1000) == first + 19 * HOUR * 1000 // 2
    assert sure_from_ms(LogTail(100, 100, 120, tail), reach_ms=HOUR * 1000) == 0
    assert sure_from_ms(LogTail(0, 0, 0, []), reach_ms=HOUR * 1000) == 0
