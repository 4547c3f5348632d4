"""Microseconds of CPU for the alert rules of a reading. No broker.

    python -m benchmarks.detection [--detection-boxes 2000] [--detection-readings 100] [--yard-boxes 20000] [--rounds 5]

Prints a table and writes ``build/bench/detection.json``: ``detection_us`` is the mean of the mixed load (best round),
``cases`` has the others, and ``yard_us`` the mixed load in the yard of a port, where the readings move the clock by
which silence is judged. The load: chilled boxes of several commodities, each with a booking; one reading in a hundred
says that it defrosts; mixed: one box in a hundred is out of band, one in a thousand tilts. ``classify_us`` is what
making, checking and decoding the same messages costs before, for comparison; it is in neither of the two.
"""

from __future__ import annotations

import argparse
import datetime as dt
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarks.harbour import boxes
from benchmarks.harness import Figures, Say, main
from edge.alerts.engine import AlertEngine
from edge.ingest.classifier import Classifier
from edge.messages import ReadingMessage
from fairlead.records.booking import Booking
from fairlead.records.reading import Device, GeoLocation
from fairlead.records.ship import Position
from topologies.loader.load import load

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
EVERY = dt.timedelta(minutes=15)
SHIP = "duck-star"
PORT = "singapore"
YARD_READINGS = 12  # of each box: three hours
COMMODITIES = ("apples", "bananas", "chilled-beef", "cut-flowers", "pharmaceuticals", "seed-potatoes")


def payload(number: str, box: int, turn: int, case: str) -> bytes:
    """A reading as a reefer publishes it."""
    out = case == "out of band" or (case == "mixed" and box % 100 == 0)
    tilted = case == "mixed" and box % 1000 == 1
    body: dict[str, Any] = {
        "equipmentReference": number,
        "device": {
            "deviceId": f"d{box}",
            "bootId": 1,
            "sequence": turn,
            "deviceDateTime": (START + turn * EVERY).isoformat(),
        },
        "measurements": {
            "supplyTemperature": 9.0 if out else 4.1,
            "returnTemperature": 4.6,
            "ambientTemperature": 24.0,
            "cargoProbe1Temperature": 4.3,
            "relativeHumidity": 88.0,
        },
        "setpoints": {"temperature": 4.0},
        "reeferSettings": {"isDefrosting": (box + turn) % 100 == 0},
        "geoLocation": {"latitude": -30.0 + 0.05 * turn, "longitude": 155.0},
        "motion": {"tiltDegrees": 60.0 if tilted else 3.0, "peakG": 1.1},
    }
    return msgspec.json.encode(body)


def engine_of(numbers: Sequence[str], *, ashore: bool = False) -> AlertEngine:
    """An engine that knows a booking of every box."""
    engine = AlertEngine(PORT if ashore else SHIP, ashore=ashore)
    for index, number in enumerate(numbers):
        engine.booked(
            Booking(
                booking_reference=f"B{index}",
                customer="ducks",
                equipment_reference=number,
                commodity=COMMODITIES[index % len(COMMODITIES)],
                setpoint_temperature=4.0,
                valid_from=START - dt.timedelta(days=1),
            )
        )
    return engine


def position(turn: int) -> Position:
    device = Device(device_id="gps", boot_id=1, sequence=turn, device_date_time=START + turn * EVERY)
    return Position(
        vessel_imo_number="9074729",
        device=device,
        geo_location=GeoLocation(latitude=-30.0 + 0.05 * turn, longitude=155.0),
        speed_over_ground=12.0,
        navigation_status=0,
    )


def run(
    numbers: Sequence[str], turns: Sequence[Sequence[ReadingMessage]], *, ashore: bool = False
) -> tuple[float, int]:
    """(microseconds of CPU per reading, alerts) of one voyage, or of the same time in a yard, through a new engine."""
    engine, alerts = engine_of(numbers, ashore=ashore), 0
    start = time.process_time()
    for turn, messages in enumerate(turns):
        at = int((START + turn * EVERY).timestamp() * 1000)
        if not ashore:
            engine.ship_reported(position(turn), at, at)
        for message in messages:
            alerts += len(engine.judge_reading(message, message.log, at))
    return (time.process_time() - start) * 1e6 / sum(map(len, turns)), alerts


def turns_of(numbers: Sequence[str], readings: int, case: str) -> list[list[ReadingMessage]]:
    """The messages of all boxes, interval by interval."""
    classify = Classifier(load("big-blue"), SHIP).classify
    turns = []
    for turn in range(readings):
        messages = []
        for index, number in enumerate(numbers):
            topic = f"fairlead/v1/containers/{number}/readings"
            message = classify(topic, payload(number, index, turn, case), int(START.timestamp() * 1000) + 10**9)
            if not isinstance(message, ReadingMessage):
                raise RuntimeError(f"the benchmark's own reading was refused: {message}")
            messages.append(message)
        turns.append(messages)
    return turns


def measure(options: argparse.Namespace, say: Say) -> Figures:
    count, readings = options.detection_boxes, options.detection_readings
    numbers = boxes(count)
    cases: dict[str, dict[str, float]] = {}
    cost = 0.0
    for case in ("quiet", "out of band", "mixed"):
        began = time.process_time()
        turns = turns_of(numbers, readings, case)
        cost = (time.process_time() - began) * 1e6 / (count * readings)
        best = min(run(numbers, turns) for _ in range(options.rounds))
        cases[case] = {"us": best[0], "alerts": best[1]}
    yard = boxes(options.yard_boxes)
    turns = turns_of(yard, YARD_READINGS, "mixed")
    ashore = min(run(yard, turns, ashore=True) for _ in range(options.rounds))
    return {
        "detection_us": cases["mixed"]["us"],
        "yard_us": ashore[0],
        "yard_boxes": options.yard_boxes,
        "yard_alerts": ashore[1],
        "target_us": 20,
        "cases": cases,
        "classify_us": cost,
        "boxes": count,
        "readings": readings,
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--detection-boxes", type=int, default=2000)
    parser.add_argument("--detection-readings", type=int, default=100, help="of each box")
    parser.add_argument("--yard-boxes", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5, help="of detection; the best counts")


if __name__ == "__main__":
    main("detection", {"detection": measure}, __doc__, add_options)
