"""Part ``once``: ``fairlead shore run --once`` over a first voyage of 60 boxes, and again with one new reading.

A site has the logs of a voyage of 25 days: 120 readings of each box, a booking and a grant of custody for each, two
customers, a ship's positions every half hour, and its port calls. Shore runs in a process of its own, as the command
does, so that the start of Python and Spark counts: over everything with no tables there, then with one new reading. The
CPU is that of the process, the JVM and Spark's Python workers.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from pydantic import SecretStr

from benchmarks.harbour import SITE, boxes, log_of, reading_body, topology
from benchmarks.harness import Say
from benchmarks.shore.site import BenchmarkSite, fresh
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import marker_record
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from fairlead.records import encode, headers
from fairlead.records.booking import Booking
from fairlead.records.custody import CustodyEntry
from fairlead.records.event import Event, EventMetadata, EventPayload, TransportEventType
from topologies.model import DEFAULT_STREAMS, Customer, Shore, Site, SiteKind, Topology

BEGIN: Final = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
FIRST_SECONDS, AGAIN_SECONDS = 45.0, 20.0
_SHIP, _IMO = "star", "9074729"
_EVERY: Final = dt.timedelta(hours=5)  # between two readings of a box: 120 in 25 days
_RECORDS: Final = 500  # in one append


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once-boxes", type=int, default=60)
    parser.add_argument("--once-readings", type=int, default=120, help="of each box")


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Seconds and CPU seconds of both runs."""
    numbers = boxes(options.once_boxes)
    with fresh(options.once_boxes) as site, tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        asyncio.run(_append(site, _voyage(numbers, options.once_readings)))
        say(f"{len(numbers) * options.once_readings:,} readings of {len(numbers)} boxes are in their logs")
        first = _run(site.endpoint, Path(folder))
        say(f"first run: {first}")
        asyncio.run(_append(site, {log_of(numbers[0]): [_reading(numbers[0], options.once_readings)]}))
        again = _run(site.endpoint, Path(folder))
        say(f"with one new reading: {again}")
    return {
        "boxes": len(numbers),
        "readings": len(numbers) * options.once_readings,
        "first": first,
        "again": again,
        "first_run_seconds": first["seconds"],
        "one_reading_seconds": again["seconds"],
        "target": {"first_run_seconds": FIRST_SECONDS, "one_reading_seconds": AGAIN_SECONDS},
    }


def _run(endpoint: KafkaEndpoint, folder: Path) -> dict[str, float]:
    """Shore in a process of its own."""
    given = {"bootstrap": list(endpoint.bootstrap), "user": endpoint.user, "folder": str(folder)}
    password = endpoint.password.get_secret_value() if endpoint.password else ""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(  # noqa: S603  # this module, by this Python
        [sys.executable, "-m", "benchmarks.shore.once", json.dumps(given)],
        env={**os.environ, "BENCH_PASSWORD": password},
        check=True,
    )
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1)}


def _shore(given: dict[str, Any]) -> None:
    """What the process does."""
    import shore

    bootstrap = tuple((host, port) for host, port in given["bootstrap"])
    endpoint = KafkaEndpoint(SITE, bootstrap, given["user"], SecretStr(os.environ["BENCH_PASSWORD"]))
    shore.run(_topology(), endpoint, Path(given["folder"]), once=True)


def _topology() -> Topology:
    small = topology()
    return small.model_copy(
        update={
            "sites": small.sites | {_SHIP: Site(kind=SiteKind.SHIP, title="MV Star", imo=_IMO)},
            "streams": DEFAULT_STREAMS | small.streams,
            "customers": {name: Customer(feed_at=SITE) for name in ("ducks", "geese")},
            "shore": Shore(at=SITE),
        }
    )


def _voyage(numbers: Sequence[str], readings: int) -> dict[str, list[NewRecord]]:
    found = {log_of(box): [_reading(box, nth) for nth in range(readings)] for box in numbers}
    found[f"bookings.{SITE}"] = [_booking(nth, box) for nth, box in enumerate(numbers)]
    found[f"custody.{SITE}"] = [_grant(box, 1, None, SITE, 0) for box in numbers] + [
        _grant(box, 2, SITE, _SHIP, 48) for box in numbers
    ]
    found[f"events.{SITE}"] = [_call("ARRI", 24), _call("DEPA", 60)]
    found[f"ships.{_IMO}.location"] = [_position(nth) for nth in range(25 * 48)]
    return found


def _reading(box: str, nth: int) -> NewRecord:
    at = BEGIN + nth * _EVERY + dt.timedelta(seconds=int(box[4:10]) % 900)
    body = reading_body(box, nth, at.isoformat())
    body["measurements"] |= {"supplyTemperature": 4.0 + nth % 9, "returnTemperature": 5.0 + nth % 7}
    received = ((headers.RECEIVED, str(_ms(at) + 1_500).encode()),)
    return NewRecord(msgspec.json.encode(body), box.encode(), received, timestamp_ms=_ms(at))


def _booking(nth: int, box: str) -> NewRecord:
    value = Booking(
        booking_reference=f"B{nth}",
        customer=("ducks", "geese")[nth % 2],
        equipment_reference=box,
        valid_from=BEGIN - dt.timedelta(days=1),
    )
    return NewRecord(encode(value), f"B{nth}".encode(), timestamp_ms=_ms(BEGIN))


def _grant(box: str, term: int, before: str | None, site: str, hours: int) -> NewRecord:
    at = BEGIN + dt.timedelta(hours=hours)
    value = CustodyEntry(
        log=log_of(box),
        term=term,
        marker_offset=term - 1,
        from_site=before,
        to_site=site,
        event="GTIN" if before is None else "LOAD",
        event_id=f"{box}-{term}",
        event_date_time=at,
        granted_date_time=at,
        granted_by=SITE,
        marker_batch=b"",
    )
    return NewRecord(encode(value), log_of(box).encode(), timestamp_ms=_ms(at))


def _call(code: TransportEventType, hours: int) -> NewRecord:
    at = BEGIN + dt.timedelta(hours=hours)
    metadata = EventMetadata(
        event_id=f"{code}-1", event_created_date_time=at, event_type="TRANSPORT", publisher="benchmark"
    )
    payload = EventPayload(
        event_date_time=at,
        transport_event_type_code=code,
        un_location_code="JPTYO",
        vessel_imo_number=_IMO,
    )
    return NewRecord(encode(Event(metadata=metadata, payload=payload)), code.encode(), timestamp_ms=_ms(at))


def _position(nth: int) -> NewRecord:
    at = BEGIN + nth * dt.timedelta(minutes=30)
    body = {
        "vesselIMONumber": _IMO,
        "device": {"deviceId": "ais", "bootId": 1, "sequence": nth, "deviceDateTime": at.isoformat()},
        "geoLocation": {"latitude": 35.6 - nth * 0.02, "longitude": 139.8 + nth * 0.01},
        "speedOverGround": 14.0,
        "navigationStatus": 0,
    }
    return NewRecord(msgspec.json.encode(body), _IMO.encode(), timestamp_ms=_ms(at))


def _ms(at: dt.datetime) -> int:
    return int(at.timestamp() * 1000)


async def _append(site: BenchmarkSite, logs: dict[str, list[NewRecord]]) -> None:
    """Make the logs that are not there, and append."""
    async with await Cluster.open(site.endpoint, client_id="bench", request_timeout=120) as cluster:
        missing = sorted(set(logs) - set(await cluster.topics(list(logs), refresh=True)))
        if missing:
            await asyncio.to_thread(create_logs, site.endpoint, {log: {} for log in missing})
            await cluster.wait_writable(missing, timeout=600)
        appender = Appender(cluster)
        for log in missing:
            await appender.ensure_open(TP(log), marker_record(b"opened for the benchmark", timestamp_ms=0))
        for log, records in logs.items():
            for begin in range(0, len(records), _RECORDS):
                await appender.append(TP(log), records[begin : begin + _RECORDS])
        await appender.close()


if __name__ == "__main__":
    _shore(json.loads(sys.argv[1]))
