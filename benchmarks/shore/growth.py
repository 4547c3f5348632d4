"""Part ``growth``: what a trigger of each derived query costs with a history of 1, 10 and 100 days.

2,000 boxes send four readings an hour, on 20 ships that send a position every ten minutes. One day is made, and the
jobs compute all tables of it. Each length of the history has a copy of these tables. There earlier days are put before
it, in raw and in derived tables alike: copies of that day, moved back in time. No query sees this as new (such
commits change no data in Delta's words), so all that grows is what a query might read. Then half of the next day comes
in twelve commits, which the jobs read at once. Tables are compacted before it and after it, as ``fairlead shore run``
compacts them. From then on some minutes of readings, positions and alerts are appended, and every job reads them once
(``--once``), by itself, in one Spark session: CPU seconds of the JVM, Spark's Python workers and this process, of the
best of several triggers.

Then the jobs run at the longest history as ``fairlead shore run`` runs them, in a session that lasts, all at once and
at their intervals, while rows come each minute.

``ratio_worst`` is the largest ratio of a job's CPU at the longest history to that at the shortest. ``cores_used`` is
what the running jobs use of a core, without the appends of the rows that come. ``follows_within_seconds`` is the
longest time from the commit of such rows until every job has read them, and what follows from them.
"""

from __future__ import annotations

import argparse
import datetime as dt
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Final

import psutil
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

import shore
from benchmarks.harbour import boxes
from benchmarks.harness import Say
from benchmarks.processes import cpu_seconds
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.names import is_imo_number
from fairlead.records import encode
from fairlead.records.custody import CustodyEntry
from shore.delta.commit import conform, create_tables
from shore.delta.lake import Lake
from shore.jobs.checkpoint import read_checkpoint, table_end
from shore.jobs.runner import JOBS as RUN
from shore.maintenance import compact, maintenance_session, plan_compaction
from shore.paths import TablePaths
from shore.session import close, spark
from shore.tables import TABLES
from topologies.model import DEFAULT_STREAMS, Customer, InsertPoint, Shore, Site, SiteKind, Stream, Topology

DAY: Final = dt.timedelta(days=1)
LAST_DAY: Final = dt.datetime(2026, 6, 10, tzinfo=dt.UTC)
JOBS: Final = ("histories", "conditions", "ships", "quality", "containers_now", "alerts_now")
RATIO: Final = 1.3
CORES: Final = 0.6
FOLLOWS: Final = 60
_SHIPS: Final = 20
_WARM_UP: Final = 8  # minutes
_IMO_NUMBERS: Final = tuple(islice(filter(is_imo_number, map(str, range(9_000_000, 10_000_000))), _SHIPS))
_PORTS: Final = (("tokyo", "JPTYO"), ("singapore", "SGSIN"), ("sydney", "AUSYD"))
_GROWING: Final = (
    "readings",
    "positions",
    "alerts",
    "events",
    "conditions",
    "mkt",
    "excursions",
    "excursion_parts",
    "quality",
    "dock_movements",
    "port_calls",
    "voyages",
    "alerts_now",
)
"""Tables with rows for each day; the others have rows for each box, booking or ship."""
FED: Final = ("readings", "positions", "alerts", "booking_changes")
"""Tables with new rows each minute."""
_NAMES: Final = ("alert_id", "event_id", "excursion_id")
"""Columns whose values name a row for ever: those of a copied day get the day as a suffix."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--growth-boxes", type=int, default=2_000)
    parser.add_argument("--growth-days", default="1,10,100", help="lengths of the history, separated by commas")
    parser.add_argument("--growth-minutes", type=int, default=8, help="for which the jobs run at their intervals")
    parser.add_argument(
        "--growth-triggers", type=int, default=4, help="of each job at each length; the first is warm-up"
    )


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """CPU seconds of a trigger by job and length of history, and the worst ratio."""
    lengths = sorted(int(days) for days in options.growth_days.split(","))
    with tempfile.TemporaryDirectory(prefix="fairlead-growth-", ignore_cleanup_errors=True) as name:
        growth = _Growth(Path(name), options.growth_boxes, say)
        try:
            return growth.measure(lengths, options.growth_triggers, options.growth_minutes)
        finally:
            growth.close()


class _Growth:
    """The tables of one benchmark, of the length of history that is measured now, and how far they reach back."""

    def __init__(self, folder: Path, count: int, say: Say) -> None:
        self._folder, self._say = folder / "filled", say
        self._lake = Lake(spark(folder), TablePaths.of(self._folder))
        self._boxes = boxes(count)
        self._topology = _topology(count)
        self._minute = 0  # of readings appended after the last day
        self._filled: dict[str, int] = {}  # versions of the tables with one day

    def measure(self, lengths: Sequence[int], triggers: int, minutes: int) -> dict[str, Any]:
        paths = self._lake.paths
        create_tables(self._lake.spark, {paths.table(name): table for name, table in TABLES.items()})
        self._fill()
        filled = self._folder
        found: dict[str, dict[str, Any]] = {job: {} for job in JOBS}
        for days in lengths:
            self._folder = filled.with_name(f"{days}-days")
            shutil.copytree(filled, self._folder)
            self._lake = Lake(self._lake.spark, TablePaths.of(self._folder))
            self._reach_back(days)
            self._compact()
            self._until_noon()
            for nth in range(triggers):
                self._append_minutes(2)
                for job in JOBS:
                    cpu, seconds = self._run([job])
                    if nth:  # the first has what was compiled for another history
                        known = found[job].get(str(days))
                        if known is None or cpu < known["cpu_seconds"]:
                            found[job][str(days)] = {"cpu_seconds": round(cpu, 2), "seconds": round(seconds, 2)}
            self._say(f"{days} days: { {job: each[str(days)] for job, each in found.items()} }")
        first, last = str(lengths[0]), str(lengths[-1])
        ratios = {job: round(each[last]["cpu_seconds"] / each[first]["cpu_seconds"], 2) for job, each in found.items()}
        self.close()
        self._lake = Lake(spark(filled.parent, lasting=True), self._lake.paths)
        following = self._follow(minutes)
        return {
            "boxes": len(self._boxes),
            "days": list(lengths),
            "readings": self._lake.read("readings").count(),
            "triggers": found,
            "ratios": ratios,
            "ratio_worst": max(ratios.values()),
            **following,
            "target": {"ratio_worst": RATIO, "cores_used": CORES, "follows_within_seconds": FOLLOWS},
        }

    def close(self) -> None:
        close(self._lake.spark)

    def _run(self, jobs: Sequence[str]) -> tuple[float, float]:
        """Run jobs over what is new; gives CPU seconds and seconds."""
        before, began = cpu_seconds(psutil.Process()), time.perf_counter()
        endpoint = KafkaEndpoint("tokyo", (("127.0.0.1", 9),))  # these jobs read tables only
        shore.run(self._topology, endpoint, self._folder, jobs, once=True, session=self._lake.spark)
        return cpu_seconds(psutil.Process()) - before, time.perf_counter() - began

    def _follow(self, minutes: int) -> dict[str, float]:
        """Run the jobs beside rows that come each minute. The first ``_WARM_UP`` minutes do not count."""
        stop = threading.Event()
        endpoint = KafkaEndpoint("tokyo", (("127.0.0.1", 9),))
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(
                shore.run, self._topology, endpoint, self._folder, JOBS, session=self._lake.spark, stop=stop
            )
            try:
                for _ in range(_WARM_UP):
                    self._append_and_wait(1, running)
                before, began, appended, longest, ended = cpu_seconds(psutil.Process()), time.monotonic(), 0, 0.0, 0.0
                while (ended := time.monotonic() - began) < 60 * minutes:
                    new = int(ended / 60) + 1 - appended
                    longest = max(longest, self._append_and_wait(new, running))
                    appended += new
                    time.sleep(max(0.0, began + 60 * appended - time.monotonic()))
                used = cpu_seconds(psutil.Process()) - before
            finally:
                stop.set()
            running.result()
        before = cpu_seconds(psutil.Process())
        for _ in range(minutes):
            self._append_minutes(1)
        used -= (cpu_seconds(psutil.Process()) - before) / minutes * appended
        return {"cores_used": round(used / ended, 2), "follows_within_seconds": round(longest, 1)}

    def _append_and_wait(self, minutes: int, running: Future[Any]) -> float:
        """Append what comes in some minutes; return the seconds until every job has read it and committed its batch."""
        self._append_minutes(minutes)
        began = time.monotonic()
        ends = {name: table_end(self._lake.paths, name).version for name in FED}
        while not all(self._has_read(job, ends) for job in JOBS):
            if running.done():
                running.result()
            time.sleep(0.5)
        return time.monotonic() - began

    def _has_read(self, job: str, ends: Mapping[str, int]) -> bool:
        """Whether a job has read these tables so far. ``has_read_all`` would also wait for commits without rows, which
        a running query does not read."""
        checkpoint, inputs = read_checkpoint(self._lake.paths, job), RUN[job].inputs
        return (
            checkpoint is not None
            and not checkpoint.under_way
            and all(
                position.version >= ends.get(name, 0) for name, position in zip(inputs, checkpoint.tables, strict=True)
            )
        )

    def _fill(self) -> None:
        """One day of everything, and all that follows from it."""
        moments = self._moments(LAST_DAY, 0, 96)
        self._append("readings", self._readings(moments))
        self._append("positions", self._positions(LAST_DAY, 144))
        self._append("alerts", self._alerts(LAST_DAY))
        self._append("events", self._events(LAST_DAY))
        self._append("booking_changes", self._bookings())
        self._append("custody_entries", self._entries())
        cpu, seconds = self._run(JOBS)
        self._filled = {name: DeltaTable(self._lake.paths.table(name)).version() for name in TABLES}
        self._say(f"one day of {len(self._boxes):,} boxes filled in {seconds:.0f} s, {cpu:.0f} CPU-s")

    def _reach_back(self, days: int) -> None:
        """Put copies of the last day before it."""
        for name in _GROWING:
            table = TABLES[name]
            times = [field.name for field in table.spark_schema.fields if isinstance(field.dataType, TimestampType)]
            first = self._lake.spark.read.format("delta").option("versionAsOf", self._filled[name])
            rows = first.load(self._lake.paths.table(name)).persist()
            for begin in range(1, days, 10):
                back = self._lake.spark.range(begin, min(begin + 10, days), numPartitions=2).withColumnRenamed(
                    "id", "back"
                )
                copies = rows.crossJoin(F.broadcast(back))
                for time_ in times:
                    copies = copies.withColumn(time_, F.col(time_) - F.make_dt_interval(F.col("back").cast("int")))
                for key in (key for key in _NAMES if key in table.plain_schema.names):
                    copies = copies.withColumn(key, F.concat_ws("~", key, "back"))
                if "log_offset" in table.plain_schema.names:
                    copies = copies.withColumn("log_offset", F.col("log_offset") - 1_000 * F.col("back"))
                copies = copies.repartitionByRange(10, "back", *table.cluster_by[:1]).sortWithinPartitions(
                    "back", *table.cluster_by[:1]
                )
                writer = conform(copies, table).write.format("delta").mode("append").option("dataChange", "false")
                writer.save(self._lake.paths.table(name))
            rows.unpersist()
        self._say(f"{days} days: {self._lake.read('readings').count():,} readings")

    def _compact(self) -> None:
        session = maintenance_session(self._lake.spark)
        for step in plan_compaction(self._lake.paths, now=LAST_DAY + DAY):
            if step.why:
                self._say(f"{step.table}: {step.why}")
                compact(session, self._lake.paths, step)

    def _until_noon(self) -> None:
        """Half of the day after the last one, read and compacted."""
        self._minute = 0
        for _ in range(12):
            self._append_minutes(60)
        self._run(JOBS)
        self._compact()

    def _append_minutes(self, minutes: int) -> None:
        """What comes in so many minutes after the last day: readings of some boxes, positions, an alert."""
        since, self._minute = self._minute, self._minute + minutes
        begin = LAST_DAY + DAY
        rows = self._readings(self._moments(begin, since // 15, self._minute // 15 + 1))
        in_time = F.col("device_date_time").between(
            F.lit(begin + dt.timedelta(minutes=since)), F.lit(begin + dt.timedelta(minutes=self._minute))
        )
        self._append("readings", rows.where(in_time))
        ships = self._positions(begin, 144)
        at = F.col("device_date_time") == F.lit(begin + dt.timedelta(minutes=self._minute // 10 * 10))
        self._append("positions", ships.where(at).withColumn("log_offset", F.col("log_offset") + 1_000_000 + since))
        alerts = self._alerts(begin).limit(2)
        self._append("alerts", alerts.withColumn("alert_id", F.concat("alert_id", F.lit(f"-{self._minute}"))))
        changed = self._bookings().limit(2).withColumn("record_date_time", F.lit(begin).cast("timestamp"))
        self._append("booking_changes", changed.withColumn("log_offset", F.col("log_offset") + 1_000_000 + since))

    def _append(self, name: str, rows: DataFrame) -> None:
        conform(rows, TABLES[name]).coalesce(1).write.format("delta").mode("append").save(self._lake.paths.table(name))

    def _moments(self, begin: dt.datetime, since: int, until: int) -> DataFrame:
        """A row for each box and quarter of an hour: ``i``, ``t``, ``box``, ``at``."""
        names = self._lake.spark.createDataFrame([(i, box) for i, box in enumerate(self._boxes)], "i long, box string")
        quarters = self._lake.spark.range(since, until).withColumnRenamed("id", "t")
        seconds = F.col("t") * 900 + F.col("i") * 7919 % 900
        at = F.lit(begin) + F.make_dt_interval(secs=seconds.cast("decimal(18,6)"))
        return names.crossJoin(quarters).withColumn("at", at)

    def _readings(self, moments: DataFrame) -> DataFrame:
        noise = F.pmod(F.hash("i", "t"), F.lit(10)) / 10
        setpoint = F.element_at(F.array(*map(F.lit, (-18.0, 2.0, 5.0, 13.0))), (F.col("i") % 4 + 1).cast("int"))
        warm = F.when(F.col("i") % 100 == 0, 6.0).otherwise(0.0)  # one box of a hundred is out of band
        day = F.when(F.col("at") < F.lit(LAST_DAY + DAY), 0).otherwise(96)
        columns: dict[str, Column] = {
            "log": F.concat(F.lit("containers."), "box"),
            "log_offset": F.col("t") + day + 1,
            "term": F.lit(1),
            "equipment_reference": F.col("box"),
            "device_id": F.concat(F.lit("dev-"), "box"),
            "boot_id": F.lit(1),
            "sequence": F.col("t") + day,
            "device_date_time": F.col("at"),
            "supply_temperature": setpoint + noise + warm,
            "return_temperature": setpoint + noise + warm + 0.5,
            "ambient_temperature": 20 + noise,
            "relative_humidity": 85 + noise,
            "setpoint_temperature": setpoint,
            "is_defrosting": F.lit(False),
            "is_connected_to_power_source": F.lit(True),
            "is_powered": F.lit(True),
            "latitude": F.lit(35.0) - noise,
            "longitude": F.lit(139.0) - noise,
            "door_open": F.lit(False),
            "received_date_time": F.col("at") + F.make_dt_interval(secs=F.lit(2)),
            "late": F.lit(False),
            "payload": F.concat(F.lit('{"equipmentReference":"'), "box", F.lit('","t":'), "t", F.lit("}")).cast(
                "binary"
            ),
        }
        return moments.select(*(column.alias(name) for name, column in columns.items()))

    def _positions(self, begin: dt.datetime, count: int) -> DataFrame:
        ships = self._lake.spark.range(_SHIPS).withColumnRenamed("id", "ship")
        moments = ships.crossJoin(self._lake.spark.range(count).withColumnRenamed("id", "t"))
        imo = F.array(*map(F.lit, _IMO_NUMBERS))[F.col("ship")]
        return moments.select(
            F.concat(F.lit("ships."), imo, F.lit(".location")).alias("log"),
            (F.col("t") + 1).alias("log_offset"),
            imo.alias("vessel_imo_number"),
            (F.lit(begin) + F.make_dt_interval(mins=(F.col("t") * 10).cast("int"))).alias("device_date_time"),
            (F.lit(30.0) - F.col("t") * 0.02).alias("latitude"),
            (F.lit(140.0) + F.col("ship") * 0.1).alias("longitude"),
            F.lit(18.0).alias("speed_over_ground"),
            F.lit(0).alias("navigation_status"),
        )

    def _alerts(self, begin: dt.datetime) -> DataFrame:
        rows = [
            (f"alerts.{_ship(nth)}", nth + 1, f"a{nth}", "TEMPERATURE", "WARNING", "OPENED", 0, box, _ship(nth), at, at)
            for nth, box in enumerate(self._boxes[:20])
            for at in [begin + dt.timedelta(minutes=nth)]
        ]
        return self._lake.spark.createDataFrame(
            rows,
            "log string, log_offset long, alert_id string, kind string, severity string, state string, revision int, "
            "equipment_reference string, raised_at string, event_date_time timestamp, raised_date_time timestamp",
        )

    def _events(self, begin: dt.datetime) -> DataFrame:
        rows = [
            (
                f"events.{_PORTS[0][0]}",
                2 * nth + leaves + 1,
                f"e{nth}-{leaves}",
                "TRANSPORT",
                at,
                at,
                code,
                port,
                _imo(nth),
            )
            for nth in range(_SHIPS)
            for leaves, code in enumerate(("ARRI", "DEPA"))
            for at in [begin + dt.timedelta(hours=2 + 6 * leaves, minutes=nth)]
            for port in [_PORTS[nth % len(_PORTS)][1]]
        ]
        return self._lake.spark.createDataFrame(
            rows,
            "log string, log_offset long, event_id string, event_type string, event_created_date_time timestamp, "
            "event_date_time timestamp, transport_event_type_code string, un_location_code string, "
            "vessel_imo_number string",
        )

    def _bookings(self) -> DataFrame:
        begin = LAST_DAY - 400 * DAY
        rows = [
            ("bookings.tokyo", nth + 1, f"B{nth}", f"customer-{nth % 200}", box, "CONFIRMED", begin, begin)
            for nth, box in enumerate(self._boxes)
        ]
        return self._lake.spark.createDataFrame(
            rows,
            "log string, log_offset long, booking_reference string, customer string, equipment_reference string, "
            "status string, valid_from timestamp, record_date_time timestamp",
        )

    def _entries(self) -> DataFrame:
        begin = LAST_DAY - 400 * DAY
        rows = [
            (f"custody.{_ship(nth)}", nth + 1, _entry(box, _ship(nth), begin)) for nth, box in enumerate(self._boxes)
        ]
        found = self._lake.spark.createDataFrame(rows, "log string, log_offset long, payload binary")
        body = F.col("payload").cast("string")
        entry_log = F.get_json_object(body, "$.log").alias("entry_log")
        return found.select("log", "log_offset", "payload", F.lit("grant").alias("entry_type"), entry_log)


def _entry(box: str, site: str, at: dt.datetime) -> bytes:
    """A ledger's entry by which a site opened the log of a box."""
    return encode(
        CustodyEntry(
            log=f"containers.{box}",
            term=1,
            marker_offset=0,
            from_site=None,
            to_site=site,
            event="GTIN",
            event_id=f"open-{box}",
            event_date_time=at,
            granted_date_time=at,
            granted_by=site,
            marker_batch=b"",
        )
    )


def _imo(nth: int) -> str:
    return _IMO_NUMBERS[nth % _SHIPS]


def _ship(nth: int) -> str:
    return f"ship-{nth % _SHIPS:02d}"


def _topology(count: int) -> Topology:
    ports = {name: Site(kind=SiteKind.PORT, unlocode=code) for name, code in _PORTS}
    ships = {_ship(nth): Site(kind=SiteKind.SHIP, title=f"MV {nth}", imo=_imo(nth)) for nth in range(_SHIPS)}
    return Topology(
        name="growth",
        sites=ports | ships,
        streams=DEFAULT_STREAMS | {"containers": Stream(insert_point=InsertPoint.MOVES, owners=("BIGU",))},
        customers={f"customer-{nth}": Customer(feed_at="tokyo") for nth in range(min(200, count))},
        shore=Shore(at="tokyo"),
    )
