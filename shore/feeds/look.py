"""Decide which part of the feeds must be compared after a batch of changes, and bound what that reads.

A batch has new records and events, and the containers whose bookings changed (``CHANGE``). Its keys, the containers and
their times, are collected on the driver; they become the literals by which Delta skips files.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, LongType, StringType, StructType, TimestampType

from shore.feeds.at_sea import SEEN
from shore.tables.bands import IN_TIME
from shore.tables.model import EPOCH, LAST, TIME, time_of
from topologies.model import Grain

BOX: Final = "equipment_reference"
MOST_LITERALS: Final = 1_000  # containers in a condition; more are joined

RECORD: Final = (
    StructType()
    .add("kind", StringType())  # readings, alerts, custody
    .add("log", StringType())
    .add("log_offset", LongType())
    .add(BOX, StringType())
    .add("device_date_time", TimestampType())  # of an alert and a grant: the event's time
    .add("received_date_time", TimestampType())
    .add("late", BooleanType())
    .add("payload", BinaryType())
)
"""Records that are copied into feeds."""

CHANGE: Final = StructType([*RECORD.fields, *StructType().add("event_id", StringType()).fields])
"""The rows of a batch: rows of ``RECORD``; rows of kind ``bookings``, each a container whose booking changed; rows of
kind ``events``, with the ship's IMO number as ``equipment_reference`` in an event of a ship; rows of kinds
``alerts_ashore`` and ``digests``, each a container that shore has found an alert about, or that a digest names."""

_COPIED: Final = ("readings", "alerts", "custody")
_MOST_RANGES: Final = 16
_LOOK_BACK: Final = (dt.timedelta(days=2), dt.timedelta(days=60), None)
"""How far back to search for the reading before a container's first new one, step by step until one is found."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Device times from ``first`` to ``last``, both inclusive."""

    first: dt.datetime
    last: dt.datetime


@dataclass(frozen=True, slots=True)
class Look:
    """The part of the feeds that is compared.

    Args:
        whole: Containers all of whose records are compared; None: everything, movements too.
        news: Other records (``RECORD``) that may be due.
        seen: The containers of ``news``, and their device times there.
        granted: Containers all of whose custody grants are compared: a new one may decide which others are believed.
        since: Containers whose hours are made again, and from when on.
        moved: Containers whose milestones are made again.
        events: Column ``event_id``: the movements that are made again.
        alarmed: Containers whose alerts that shore has found are compared.
        digested: Containers whose newest digest is compared, and from when on digests and readings count.
        told: Those of ``digested`` that have new digests and nothing else: an earlier digest that stands is replaced by
            a newer one, and never retracted.
        ledgers: Site kinds, and streams of owner codes, that decide which ledger entries are believed; None: all are.
    """

    whole: frozenset[str] | None = frozenset()
    news: DataFrame | None = None
    seen: Mapping[str, TimeRange] = field(default_factory=dict)
    granted: frozenset[str] = frozenset()
    since: Mapping[str, dt.datetime] = field(default_factory=dict)
    moved: frozenset[str] = frozenset()
    events: DataFrame | None = None
    alarmed: frozenset[str] = frozenset()
    digested: Mapping[str, dt.datetime] = field(default_factory=dict)
    told: frozenset[str] = frozenset()
    ledgers: tuple[Mapping[str, str], Mapping[str, str]] | None = None

    @property
    def compares_all(self) -> bool:
        return self.whole is None

    @property
    def named(self) -> frozenset[str]:
        """All containers that are compared in any way."""
        found = self.boxes | self.seen.keys() | self.granted | self.since.keys()
        return found | self.moved | self.alarmed | self.digested.keys()

    @property
    def aging(self) -> tuple[str, ...]:
        """The tables of which it counts what retention may have deleted."""
        if self.compares_all or self.digested:
            return ("readings", "digests")
        return ("readings",) if self.boxes or self.since else ()

    @property
    def boxes(self) -> frozenset[str]:
        """The containers that are compared as a whole."""
        return self.whole or frozenset()


EVERYTHING: Final = Look(whole=None)


class Key(NamedTuple):
    """What a batch has of one container or ship.

    Args:
        first, last: The device times of its rows; None where they have none.
        in_time: The first plausible device time (``IN_TIME``).
        reached: The newest time of its readings as digests have it (``shore.feeds.at_sea.SEEN``).
    """

    kind: str
    box: str
    first: dt.datetime | None
    last: dt.datetime | None
    in_time: dt.datetime | None
    reached: dt.datetime | None = None


def keys_of(batch: DataFrame) -> list[Key]:
    """Return the keys of a batch of ``CHANGE``."""
    time = F.col("device_date_time")
    times = {"first": F.min(time), "last": F.max(time), "in_time": F.min(F.when(F.expr(IN_TIME), time))}
    times["reached"] = F.max(F.expr(SEEN))
    box = F.coalesce(BOX, F.lit("")).alias(BOX)  # an event may name neither container nor ship
    rows = batch.groupBy("kind", box).agg(*(F.unix_micros(each).alias(name) for name, each in times.items()))
    return [Key(row["kind"], row[BOX], *(_time(row[name]) for name in times)) for row in rows.collect()]


@dataclass(frozen=True, slots=True)
class AtSea:
    """The containers that may have digests in feeds which no reading has reached yet, and the times between which these
    are. Customers with bookings of different times may have different digests."""

    times: dict[str, TimeRange]

    @classmethod
    def of(cls, feeds: DataFrame) -> AtSea:
        """Return what rows of table ``feeds`` say."""
        last = F.max_by(F.struct("retracts", "device_date_time"), "feed_offset").alias("last")
        newest = feeds.where(F.col("log").startswith("digests/")).groupBy("customer", BOX).agg(last)
        time = F.unix_micros("last.device_date_time")
        standing = newest.where("not last.retracts").groupBy(BOX)
        rows = standing.agg(F.min(time).alias("first"), F.max(time).alias("last")).collect()
        return cls({row[BOX]: TimeRange(_time(row["first"]) or EPOCH, _time(row["last"]) or LAST) for row in rows})

    def look_up(self, keys: Sequence[Key], feeds: DataFrame) -> None:
        """Read from table ``feeds`` which digests stand of the containers of a batch whose readings may have reached
        one, but not all."""
        reached = _reached(keys)
        unsure = [box for box, each in self._of(reached).items() if each.first <= reached[box] < each.last]
        if unsure:
            standing = self.of(of_boxes(feeds, unsure)).times
            for box in unsure:
                del self.times[box]
            self.times.update(standing)

    def note(self, keys: Sequence[Key]) -> None:
        """Take in a batch that has been delivered."""
        reached = _reached(keys)
        for box, known in self._of(reached).items():
            if reached[box] >= known.last:
                del self.times[box]
            elif reached[box] >= known.first:
                self.times[box] = TimeRange(reached[box], known.last)
        told = [key for key in keys if key.kind == "digests"]
        for box, new in _times(key for key in told if key.last and reached.get(key.box, EPOCH) < key.last).items():
            known = self.times.get(box, new)
            self.times[box] = TimeRange(min(known.first, new.first), max(known.last, new.last))
        self.times.update({key.box: TimeRange(EPOCH, LAST) for key in keys if key.kind == "bookings"})

    def _of(self, boxes: Collection[str]) -> dict[str, TimeRange]:
        return {box: self.times[box] for box in boxes if box in self.times}


def look_of(
    batch: DataFrame,
    keys: Sequence[Key],
    inputs: Mapping[str, DataFrame],
    periods: DataFrame,
    grains: Collection[Grain],
    ledgers: tuple[Mapping[str, str], Mapping[str, str]] | None = None,
    at_sea: Mapping[str, TimeRange] | None = None,
) -> Look:
    """Return the part of the feeds that must be compared after a batch.

    Args:
        batch: Rows of ``CHANGE``.
        keys: The batch's keys.
        inputs: Tables ``readings`` and ``events``; read only where they are needed.
        periods: From ``shore.feeds.periods.periods``.
        grains: The kinds of feeds that there are; none where no customer has one.
        at_sea: ``AtSea.times``; None: there are no digests.
    """
    kinds = (*_COPIED, "bookings", "events", "alerts_ashore", "digests")
    of_kind = {kind: [key for key in keys if key.kind == kind] for kind in kinds}
    whole = frozenset(key.box for key in of_kind["bookings"])
    copied = [key for kind in _COPIED for key in of_kind[kind] if key.box not in whole] if grains else []
    seen = _times(copied)  # an alert that cannot be read has no time, and is no news
    since, moved = dict[str, dt.datetime](), frozenset[str]()
    if "coarse" in grains:
        firsts = {key.box: key.in_time for key in of_kind["readings"] if key.in_time and key.box not in whole}
        since = _first_hours(inputs, periods, firsts) if firsts else since
        moved = _moved(inputs, {key.box for key in of_kind["events"]}) if of_kind["events"] else moved
    events = None
    if "movements" in grains and of_kind["events"]:
        events = batch.where("kind = 'events'").select("event_id").distinct()
    digested, told = dict[str, dt.datetime](), frozenset[str]()
    if "detailed" in grains and at_sea is not None:
        digested, told = _digested(inputs, periods, of_kind, at_sea)
    return Look(
        whole=whole,
        news=batch.where(F.col("kind").isin(*_COPIED)).select(*RECORD.names) if seen else None,
        seen=seen,
        granted=frozenset(key.box for key in copied if key.kind == "custody" and "detailed" in grains),
        since=since,
        moved=moved,
        events=events,
        alarmed=frozenset(key.box for kind in ("alerts", "alerts_ashore") for key in of_kind[kind]),
        digested=digested,
        told=told,
        ledgers=ledgers,
    )


def _digested(
    inputs: Mapping[str, DataFrame],
    periods: DataFrame,
    of_kind: Mapping[str, Sequence[Key]],
    at_sea: Mapping[str, TimeRange],
) -> tuple[dict[str, dt.datetime], frozenset[str]]:
    """Return ``Look.digested`` and ``Look.told``: digests and readings count since the first new digest; for a
    container whose readings have reached a digest, since the newest of them; for one whose booking changed, since its
    newest reading, or without any, since its first booking."""
    found: dict[str, dt.datetime] = {}
    if whole := frozenset(key.box for key in of_kind["bookings"]):
        begins = of_boxes(periods.where("grain = 'detailed'"), whole)
        begins = begins.groupBy(BOX).agg(F.min(F.expr("array_min(spans.valid_from)")).alias("_begin"))
        newest = of_boxes(inputs["readings"], whole).groupBy(BOX).agg(F.max(F.expr(SEEN)).alias("_seen"))
        rows = begins.join(newest, on=BOX, how="left")
        since = F.unix_micros(F.coalesce("_seen", "_begin")).alias("since")
        times = {row[BOX]: _time(row["since"]) for row in rows.select(BOX, since).collect()}
        found = {box: _in_feed(time) for box, time in times.items() if time is not None}
    reached = _reached(of_kind["readings"])
    begin = {box: time for box, time in reached.items() if box in at_sea and time >= at_sea[box].first}
    told = frozenset(key.box for key in of_kind["digests"] if key.first is not None) - begin.keys() - whole
    for key in of_kind["digests"]:
        if key.first is not None:
            begin[key.box] = min(key.first, begin.get(key.box, key.first))
    return {box: _in_feed(time) for box, time in begin.items() if box not in whole} | found, told


def _reached(keys: Iterable[Key]) -> dict[str, dt.datetime]:
    return {key.box: key.reached for key in keys if key.kind == "readings" and key.reached is not None}


def _times(keys: Iterable[Key]) -> dict[str, TimeRange]:
    found: dict[str, TimeRange] = {}
    for key in keys:
        if key.first is not None and key.last is not None:
            known = found.get(key.box, TimeRange(key.first, key.last))
            found[key.box] = TimeRange(min(known.first, key.first), max(known.last, key.last))
    return found


def _first_hours(
    inputs: Mapping[str, DataFrame], periods: DataFrame, firsts: Mapping[str, dt.datetime]
) -> dict[str, dt.datetime]:
    """Per container with a coarse feed: the last hour with readings before that of the first new reading; if there is
    none, the hour of that reading."""
    coarse = of_boxes(periods.where("grain = 'coarse'"), firsts).select(BOX).distinct().collect()
    hours = {row[BOX]: _hour(firsts[row[BOX]]) for row in coarse if row[BOX] in firsts}
    found: dict[str, dt.datetime] = {}
    for span in _LOOK_BACK:
        left = {box: hour for box, hour in hours.items() if box not in found}
        if not left:
            break
        readings = of_boxes(inputs["readings"], left).where(IN_TIME)
        readings = readings.where(F.col("device_date_time") < F.lit(max(left.values())))
        if span is not None:
            readings = readings.where(F.col("device_date_time") >= F.lit(min(left.values()) - span))
        begins = pa.table({BOX: list(left), "_hour": pa.array(list(left.values()), TIME)})
        before = readings.join(F.broadcast(readings.sparkSession.createDataFrame(begins)), on=BOX)
        last = F.unix_micros(F.max("device_date_time")).alias("last")
        rows = before.where("device_date_time < _hour").groupBy(BOX).agg(last).collect()
        found |= {row[BOX]: _hour(time_of(row["last"])) for row in rows}
    return hours | found


def _moved(inputs: Mapping[str, DataFrame], names: Collection[str]) -> frozenset[str]:
    """The containers among these names, and those that were ever loaded on the ships among them."""
    ships = sorted(name for name in names if name.isdecimal())
    boxes = frozenset(names) - frozenset(ships)
    if not ships:
        return boxes
    loaded = inputs["events"].where(
        F.col("vessel_imo_number").isin(ships) & (F.col("equipment_event_type_code") == "LOAD")
    )
    return boxes | {row[BOX] for row in loaded.select(BOX).where(f"{BOX} is not null").distinct().collect()}


def _time(micros: int | None) -> dt.datetime | None:
    return None if micros is None else time_of(micros)


def _hour(time: dt.datetime) -> dt.datetime:
    return time.replace(minute=0, second=0, microsecond=0)


def time_ranges(times: Iterable[TimeRange]) -> list[TimeRange]:
    """Return at most ``_MOST_RANGES`` ranges that cover all of these times, in the milliseconds that feeds have. With
    one range, a single late reading would make table ``feeds`` be read back to its time."""
    merged: list[TimeRange] = []
    for each in sorted(times, key=lambda one: one.first):
        first, last = _in_feed(each.first), _in_feed(each.last)
        if merged and first - merged[-1].last <= dt.timedelta(hours=1):
            merged[-1] = TimeRange(merged[-1].first, max(last, merged[-1].last))
        else:
            merged.append(TimeRange(first, last))
    while len(merged) > _MOST_RANGES:
        gaps = [after.first - before.last for before, after in pairwise(merged)]
        at = gaps.index(min(gaps))
        merged[at : at + 2] = [TimeRange(merged[at].first, merged[at + 1].last)]
    return merged


def _in_feed(time: dt.datetime) -> dt.datetime:
    """The time that a record of a feed has: whole milliseconds since 1970."""
    return max(EPOCH, time.replace(microsecond=time.microsecond // 1000 * 1000))


def is_of_boxes(boxes: Collection[str]) -> Column:
    """Return the condition that a row is about one of these containers. For more than ``MOST_LITERALS`` it is a range
    that contains them all."""
    if len(boxes) <= MOST_LITERALS:
        return F.col(BOX).isin(sorted(boxes))
    return F.col(BOX).between(min(boxes), max(boxes))


def of_boxes(rows: DataFrame, boxes: Collection[str] | None, column: Column | None = None) -> DataFrame:
    """Return the rows of these containers; all rows where ``boxes`` is None."""
    if boxes is None:
        return rows
    column = F.col(BOX) if column is None else column
    if len(boxes) <= MOST_LITERALS:
        return rows.where(column.isin(sorted(boxes)))
    names = F.broadcast(rows.sparkSession.createDataFrame(pa.table({"_box": sorted(boxes)})))
    return rows.where(column.between(min(boxes), max(boxes))).join(names, F.col("_box") == column, "left_semi")


def without_boxes(rows: DataFrame, boxes: Collection[str]) -> DataFrame:
    if not boxes:
        return rows
    if len(boxes) <= MOST_LITERALS:
        return rows.where(~F.col(BOX).isin(sorted(boxes)))
    names = F.broadcast(rows.sparkSession.createDataFrame(pa.table({"_box": sorted(boxes)})))
    return rows.join(names, F.col("_box") == F.col(BOX), "left_anti")
