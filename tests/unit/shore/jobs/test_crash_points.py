"""A crash after every write of a batch, and the batch again, as Spark does: the tables are as they must be.

Between two writes nothing is kept, so a crash before one is a crash after the one before it. Without Spark: the jobs'
own functions for a batch. ``tests/integration/shore/test_crashes.py`` has the whole of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from shore.jobs import custody, operations
from shore.paths import TablePaths
from shore.read import table
from shore.tables import TABLES
from shore.tables.operations import OPERATIONS
from tests.support.crashes import crash_everywhere
from tests.support.ledgers import entry
from tests.unit.shore import fleet as story
from tests.unit.shore.raw_records import RECORDS, raw


class Batch:
    """What ``operations.write`` asks of a DataFrame."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        context = SimpleNamespace(getLocalProperty=lambda name: "query-1")
        self.sparkSession = SimpleNamespace(sparkContext=context)  # Spark's name

    def select(self, *names: str) -> Any:
        return SimpleNamespace(toArrow=lambda: self._rows.select(names))


def test_operations(tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    for operation in OPERATIONS:
        TABLES[operation.table.name].create(paths.table(operation.table.name))
    TABLES["custody"].create(paths.table("custody"))
    sent = 0

    def batch(number: int) -> Callable[[], None]:
        nonlocal sent
        moved = msgspec.structs.replace(entry(number + 1, number * 10, "tokyo", "GTIN"), log="containers.BIGU0000016")
        records = raw(*RECORDS, ("custody.tokyo", moved))
        offsets = pc.add(records["offset"], number * 1000)
        rows = records.set_column(records.schema.names.index("offset"), "offset", offsets)
        sent += rows.num_rows
        return lambda: operations.write(cast(Any, Batch(rows)), number, paths)

    def check() -> None:
        keys = [
            key
            for operation in OPERATIONS
            for key in table(tmp_path, operation.table.name).to_table(columns=["log", "log_offset"]).to_pylist()
        ]
        assert len(keys) == len({tuple(key.values()) for key in keys}) == sent
        order = [("log", "ascending"), ("term", "ascending")]
        stored = table(tmp_path, "custody").to_table().sort_by(order)
        assert stored.equals(custody.everything(paths).sort_by(order))

    assert crash_everywhere(batch, check) == len(OPERATIONS) + 1


def test_voyages_bookings_and_boxes(tmp_path: Path) -> None:
    fleet = story.Fleet(tmp_path)

    def batch(number: int) -> Callable[[], None]:
        hour = number * 3.0
        place = (story.TOKYO[0] + number * 0.5, story.TOKYO[1])
        rows: dict[str, list[dict[str, Any]]] = {
            "readings": [story.reading(number * 10, hour), story.reading(number * 10 + 1, hour - 5, story.OTHER)],
            "booking_changes": [story.change(number, hour, status="COMPLETED" if number % 2 else "CONFIRMED")],
            "events": [
                story.docked(number * 10, hour, "DEPA" if number % 2 else "ARRI"),
                story.event(number * 10 + 1, hour - 1, "DISC" if number % 2 else "LOAD", vessel_imo_number=story.STAR),
            ],
            "positions": [story.position(number, hour + 0.5, place, speed=0.0 if number % 2 else 14.0)],
            "alerts": [story.alert(number, hour, alert_id=f"a{number}")],
        }
        fleet.append(rows)
        return lambda: fleet.update(rows)

    def check() -> None:
        assert fleet.differing() == []

    assert crash_everywhere(batch, check) >= len(story.DERIVED)
