"""Bytes of the digests that a large ship sends over its satellite: 2,000 boxes, every 15 minutes. No broker.

    python -m benchmarks.digest [--digest-boxes 2000] [--digest-hours 24]

One ship at sea, whose boxes the simulator's physics read every 15 minutes, and the alert engine that its bridge has.
``bytes_mean`` and ``bytes_max`` are of a digest's batch as Kafka stores it and links copy it: one record, zstd.
``value_bytes_mean`` is before compression, ``json_bytes_mean`` what the same content takes as compressed JSON.
``make_ms`` is the CPU to make and encode one digest, ``read_ms`` to decode it. The target is held against the largest.
"""

from __future__ import annotations

import argparse
import datetime as dt
import statistics
import time
from typing import Any

from benchmarks.harness import Figures, Say, main
from edge.alerts.digest import DigestMaker, record_of
from edge.alerts.engine import AlertEngine
from edge.ingest.classifier import Classifier
from edge.messages import ReadingMessage, ShipMessage
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord, encode_batch
from fairlead.records import encode
from fairlead.records.digest import Digest, decode_digest
from fairlead.records.reading import milliseconds
from fairlead.records.ship import Position
from simulators.fleet.commodities import COMMODITIES
from simulators.fleet.scenario_file import parse
from simulators.steps import Publish
from simulators.voyage.voyage import Voyage
from topologies.loader.load import load

TARGET_BYTES = 20_000
EVERY = dt.timedelta(minutes=15)
SHIP, IMO = "duck-star", "9074729"
SCENARIO = """
name: day-at-sea
topology: minimal
booking_office: tokyo
start: 2026-07-01T00:00:00Z
reading_interval: 5m
ships:
  duck-star:
    first_arrival: 2h
    calls: [{ port: tokyo, stay: 4h, at_sea: 30h }, { port: tokyo, stay: 1h }]
cargo:
"""
LOT = "  {0}: {{ owner: BIGU, commodity: {0}, containers: 1, route: [tokyo, duck-star, tokyo], gate_in: 1h }}\n"


def voyage(containers: int, **changes: Any) -> Voyage:
    """The voyage of one ship; ``changes`` are fields of its scenario."""
    text = SCENARIO + "".join(LOT.format(name) for name in sorted(COMMODITIES))
    scenario = parse(text, "day-at-sea").model_copy(update=changes).adjusted(containers=containers)
    return Voyage(scenario, load("minimal", env={}), seed=7)


def sail(containers: int, hours: float) -> list[tuple[Digest, float]]:
    """Return the digests of a ship at sea from its departure on, each with the milliseconds of CPU to make it."""
    made = voyage(containers, reading_interval=EVERY, ship_interval=EVERY)
    sails = made.plan.timetables[SHIP].calls[0].departs
    until = sails + dt.timedelta(hours=hours)
    classify = Classifier(load("minimal", env={}), SHIP).classify
    engine, maker = AlertEngine(SHIP), DigestMaker(IMO, 0, 0.0)
    digests: list[tuple[Digest, float]] = []
    for step in made.steps():
        if not isinstance(step, Publish) or step.site != SHIP:
            continue
        if step.sim_time >= until:
            break
        now_ms = milliseconds(step.sim_time)
        match classify(step.topic, step.payload, now_ms):
            case ReadingMessage() as message:
                engine.judge_reading(message, message.log, now_ms)
            case ShipMessage(report=Position() as report, device_ms=at_ms):
                engine.ship_reported(report, at_ms, now_ms)
        if step.sim_time >= sails and maker.is_due(engine.ship.at_ms, 0):
            began = time.process_time()
            digest = maker.make(engine.ship, now_ms, 0)
            if digest is not None:
                record_of(digest)
                maker.confirm(digest)
                digests.append((digest, 1000 * (time.process_time() - began)))
    return digests


def stored(record: NewRecord) -> int:
    """Return the bytes of a record's batch in Kafka, as a ship's bridge compresses it."""
    return len(encode_batch([record], producer_id=1, epoch=1, sequence=1, codec=Codec.ZSTD))


def measure(options: argparse.Namespace, say: Say) -> Figures:
    digests = sail(options.digest_boxes, options.digest_hours)
    say(f"{len(digests)} digests")
    records = [record_of(digest) for digest, _ in digests]
    sizes = [stored(record) for record in records]
    plain = [stored(_as_json(record, digest)) for record, (digest, _) in zip(records, digests, strict=True)]
    began = time.process_time()
    for record in records:
        decode_digest(record.value or b"")
    read = time.process_time() - began
    boxes: list[int] = [len(digest.boxes) for digest, _ in digests]
    found: dict[str, Any] = {
        "digests": len(digests),
        "boxes_mean": round(statistics.fmean(boxes)),
        "bytes_mean": round(statistics.fmean(sizes)),
        "bytes_max": max(sizes),
        "bytes_per_box": round(sum(sizes) / sum(boxes), 2),
        "value_bytes_mean": round(statistics.fmean(len(record.value or b"") for record in records)),
        "json_bytes_mean": round(statistics.fmean(plain)),
        "make_ms": round(statistics.fmean(ms for _, ms in digests), 2),
        "read_ms": round(1000 * read / len(records), 2),
        "target": {"bytes_max": TARGET_BYTES},
    }
    return found


def _as_json(record: NewRecord, digest: Digest) -> NewRecord:
    return NewRecord(encode(digest), record.key, timestamp_ms=record.timestamp_ms)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--digest-boxes", type=int, default=2_000)
    parser.add_argument("--digest-hours", type=float, default=24.0)


if __name__ == "__main__":
    main("digest", {"digest": measure}, __doc__, add_options)
