"""The alert processor in Spark's own tester, without a JVM: state, timers and what is forgotten."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from shore.alerts.machine import State, advance
from shore.alerts.processor import Detection, Sites, SitesThen, watched
from shore.alerts.rules import COLUMNS, FORGET_MS, HOUR_MS, LOOK_AGAIN_MS, MINUTE_MS, AlertReading, unpack
from shore.paths import TablePaths
from shore.tables.alerts_ashore import compared, table_of
from tests.support.shore.logs import BOX, LOG, T0, T0_MS, every, logs, reading
from tests.support.tables import fill

OTHER = "containers.BIGU0000021"
KEY = 7  # the bucket of both logs
HEARD = T0_MS + 1000 * HOUR_MS
ASHORE = Sites({BOX: "tokyo"}, {"tokyo": HEARD})


class Task:
    """Run the processor batch by batch, as Spark does. ``restart`` makes a new processor, as Spark does for each batch;
    only state and timers carry over."""

    def __init__(self, sites: Sites = ASHORE) -> None:
        self.sites = sites
        self.asked = 0
        self.tester = self._new()

    def _new(self) -> TwsTester:
        # The event time of the job is so far ahead that no row is late for Spark.
        return TwsTester(Detection(self._ask), timeMode="eventTime", eventTimeExtractor=lambda row: 1 << 62)

    def _ask(self, at_ms: int) -> Sites:
        self.asked += 1
        return self.sites

    def batch(self, log: str, readings: Sequence[AlertReading]) -> list[State]:
        return self.batch_of([(log, r) for r in readings])

    def batch_of(self, rows: Sequence[tuple[str, AlertReading]]) -> list[State]:
        return self._states(self.tester.test(KEY, [_row(log, r) for log, r in rows]))

    def watermark(self, at_ms: int) -> list[State]:
        """Begin the next batch, whose watermark is known; return what the expired timers give at its end."""
        fired: Any = self.tester.setWatermark(at_ms)  # a frame only in the other mode
        return self._states(fired)

    def restart(self) -> None:
        """Start again from the stored state and timers."""
        old = self.tester.handle
        self.tester = self._new()
        self.tester.handle.value_states["bucket"].state |= old.value_states["bucket"].state
        self.tester.handle._timers._key_to_timers |= old._timers._key_to_timers  # noqa: SLF001  # no other way in
        self.tester._currentWatermarkMs = old._currentWatermarkMs  # noqa: SLF001
        self.tester.handle.setWatermark(old._currentWatermarkMs)  # noqa: SLF001

    def timers(self) -> list[int]:
        return list(self.tester.handle._timers.listTimers(KEY))  # noqa: SLF001

    def boxes(self) -> set[str]:
        stored = self.tester.peekValueState("bucket", KEY)
        return set(unpack(stored[0]).boxes) if stored else set()

    @staticmethod
    def _states(rows: list[Row]) -> list[State]:
        return [State(**row.asDict()) for row in rows]


def _row(log: str, r: AlertReading) -> Row:
    return Row(log=log, **dict(zip(COLUMNS, r._replace(at_ms=r.at_ms * 1000), strict=True)))


def test_the_rows_of_a_batch_count_in_the_order_of_their_offsets() -> None:
    warm = every(10, 70, supply_temperature=9.0)
    assert Task().batch(LOG, warm[::-1]) == advance(LOG, None, warm)[1] != []


def test_a_bucket_has_one_timer_and_it_is_not_moved_by_each_reading() -> None:
    task = Task()
    task.batch(LOG, [reading(0)])
    assert task.timers() == [T0_MS + 24 * HOUR_MS], "nobody knows yet how often it reports"
    task.batch(LOG, [reading(10)])
    assert task.timers() == [T0_MS + 70 * MINUTE_MS]
    task.batch(LOG, every(10, 60, since=20))
    assert task.timers() == [T0_MS + 70 * MINUTE_MS]
    assert task.watermark(T0_MS + 71 * MINUTE_MS) == []
    assert task.timers() == [T0_MS + 110 * MINUTE_MS], "50 min is when it was last heard"


def test_a_silence_is_told_while_its_site_is_heard_and_ends_with_the_next_reading() -> None:
    task = Task(Sites({BOX: "tokyo"}, {"tokyo": T0_MS + 109 * MINUTE_MS}))
    task.batch(LOG, every(10, 60))
    task.restart()
    assert task.watermark(T0_MS + 2 * HOUR_MS) == [], "tokyo was heard before the box was due, and not since"
    assert task.timers() == [T0_MS + 2 * HOUR_MS + LOOK_AGAIN_MS]
    task.restart()
    task.sites = Sites({BOX: "tokyo"}, {"tokyo": T0_MS + 110 * MINUTE_MS})
    (opened,) = task.watermark(T0_MS + 3 * HOUR_MS)
    assert (opened.kind, opened.state, opened.equipment_reference) == ("SILENCE", "OPENED", BOX)
    assert task.timers() == [T0_MS + 50 * MINUTE_MS + FORGET_MS]
    assert task.asked == 2
    task.restart()
    ended = task.batch(LOG, [reading(240)])
    assert [opened, *ended] == advance(LOG, None, [*every(10, 60), reading(240)])[1]
    assert task.timers() == [T0_MS + 4 * HOUR_MS + 80 * MINUTE_MS], "it has become slower: every 20 min, as it seems"


@pytest.mark.parametrize("holder", ["osaka", None])
def test_no_silence_of_a_box_of_a_silent_site_or_of_nobodys(holder: str | None) -> None:
    task = Task(Sites({BOX: holder}, {"tokyo": HEARD, "osaka": T0_MS, "": HEARD}))
    task.batch(LOG, every(10, 60))
    assert task.watermark(T0_MS + 3 * HOUR_MS) == []
    assert task.timers() == [T0_MS + 3 * HOUR_MS + LOOK_AGAIN_MS]


def test_what_is_known_of_sites_comes_from_containers_now(tmp_path: Path) -> None:
    def row(box: str, holder: str | None, minutes: int | None, **more: str) -> dict[str, Any]:
        time = None if minutes is None else T0 + dt.timedelta(minutes=minutes)
        return {"equipment_reference": box, "holder": holder, "reading_date_time": time, **more}

    rows = [
        row("AAAU0000014", "tokyo", 10, holder_kind="port", custody_event="DISC"),
        row("AAAU0000020", "tokyo", 30, holder_kind="port", custody_event="GTIN"),
        row("AAAU0000035", "star", 90, holder_kind="ship", custody_event="LOAD"),
        row("AAAU0000040", None, 95, custody_event="GTOT"),
        row("AAAU0000056", None, 40),
        row("AAAU0000061", "osaka", None, holder_kind="port", custody_event="GTIN"),
        row("AAAU0000077", "tokyo", 90, holder_kind="port", custody_event="DISC", reading_source="DIGEST"),
    ]
    fill(tmp_path, {"containers_now": rows})
    sites = SitesThen(TablePaths.of(tmp_path).table("containers_now"))(now_ms())
    assert list(sites.holders.values()) == ["tokyo", "tokyo", None, None, "", "osaka", "tokyo"]
    minute = T0_MS // MINUTE_MS
    assert {site: ms // MINUTE_MS - minute for site, ms in sites.clocks.items()} == {"tokyo": 30, "star": 90, "": 40}
    assert watched("ZZZU0000010", T0_MS + 40 * MINUTE_MS, sites), "no ledger names it: as the others of which none does"
    assert not watched("ZZZU0000010", T0_MS + 41 * MINUTE_MS, sites)
    assert not watched("AAAU0000061", T0_MS, sites)


def test_a_repeated_batch_knows_of_sites_what_it_knew_before(tmp_path: Path) -> None:
    def known(minutes: int) -> None:
        box = {"equipment_reference": BOX, "holder": "tokyo", "reading_date_time": T0 + dt.timedelta(minutes=minutes)}
        fill(tmp_path, {"containers_now": [box]})

    known(10)
    location = TablePaths.of(tmp_path).table("containers_now")
    log = Path(location, "_delta_log")
    first, sites = DeltaTable(location).version(), SitesThen(location)
    for version in range(first + 1):
        os.utime(log / f"{version:020}.json", (T0_MS / 1000, T0_MS / 1000))
    known(200)
    assert sites(T0_MS).clocks == {"tokyo": T0_MS + 10 * MINUTE_MS}
    assert sites(now_ms()).clocks == {"tokyo": T0_MS + 200 * MINUTE_MS}
    DeltaTable(location).optimize.compact()
    (old,) = (Path(file) for file in DeltaTable(location, version=first).file_uris())
    old.write_bytes(old.read_bytes()[:-8])  # damaged
    assert sites(T0_MS).clocks == {"tokyo": T0_MS + 200 * MINUTE_MS}
    old.unlink()  # vacuum deletes it
    assert sites(T0_MS).clocks == {"tokyo": T0_MS + 200 * MINUTE_MS}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_news_that_comes_long_after_it_was_measured_is_no_silence() -> None:
    task = Task()
    task.batch(OTHER, [reading(0)])
    task.watermark(T0_MS + 100 * HOUR_MS)
    task.batch(LOG, every(10, 60))  # the first part of a site's backlog
    task.batch(OTHER, [reading(60 * 100)])
    assert task.watermark(T0_MS + 100 * HOUR_MS + 30 * MINUTE_MS) == []
    assert task.batch(LOG, every(10, 120, since=60)) == []


def test_a_container_of_which_nothing_came_for_half_a_year_leaves_no_state() -> None:
    task = Task()
    task.batch(LOG, every(10, 70, is_powered=False))
    states = task.watermark(T0_MS + FORGET_MS + 4 * HOUR_MS)
    assert [(s.equipment_reference, s.kind, s.state) for s in states if s.log == LOG] == [
        (BOX, "POWER_LOST", "CLEARED"),
    ]
    assert task.boxes() == set()
    assert task.tester.peekValueState("bucket", KEY) is None
    assert task.timers() == []
    assert task.batch(LOG, [reading(60 * 24 * 200)]) == []
    assert task.boxes() == {LOG}


def test_a_batch_has_rows_of_many_logs() -> None:
    warm, off = every(10, 70, supply_temperature=9.0), every(10, 70, is_powered=False)
    task = Task()
    mixed = [row for pair in zip(warm, off, strict=True) for row in zip((LOG, OTHER), pair, strict=True)]
    found = task.batch_of(mixed[:6]) + task.batch_of(mixed[6:])
    assert task.boxes() == {LOG, OTHER}
    assert sorted(found) == sorted([*advance(LOG, None, warm)[1], *advance(OTHER, None, off)[1]])


def test_what_is_kept_can_be_read_by_the_next_version() -> None:
    task = Task()
    task.batch(LOG, [reading(0)])
    (stored,) = task.tester.peekValueState("bucket", KEY) or (b"",)
    assert unpack(stored).version == 1


@settings(deadline=None)
@given(
    logs,
    st.sets(st.integers(1, 40), max_size=6),
    st.lists(st.sampled_from([5 * MINUTE_MS, HOUR_MS, 5 * HOUR_MS, 30 * HOUR_MS]), min_size=7, max_size=7),
    st.integers(-5 * HOUR_MS, 50 * HOUR_MS),
)
def test_batches_restarts_and_timers_change_nothing(
    log: list[AlertReading], cuts: set[int], steps: list[int], clock: int
) -> None:
    """This holds for two logs in one task, whose clock other sites may drive ahead of them or behind."""
    task, found, begin, now = Task(), [], 0, T0_MS + clock
    for end, step in zip([*sorted(c for c in cuts if c < len(log)), len(log)], steps, strict=False):
        now += step
        task.restart()
        found += task.batch(LOG, log[begin:end])
        task.batch(OTHER, [reading(end)])
        found += [s for s in task.watermark(now) if s.log == LOG]
        begin = end
    whole = advance(LOG, None, log)[1]
    assert compared(table_of(found)).to_pylist() == compared(table_of(whole)).to_pylist()
