"""The named views give the same rows in Spark as in DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from shore import joins
from shore.read import sql
from shore.tables import TABLES
from tests.support.delta_rs import create
from tests.support.ledgers import entry
from tests.support.shore.fleet import Fleet, alert, at, change, ledger, position, reading
from tests.support.shore.raw_records import make_custody

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]

FUNCTIONS = {
    "readings_with_bookings": joins.readings_with_bookings,
    "readings_with_positions": joins.readings_with_positions,
    "alerts_with_custody": joins.alerts_with_custody,
    "device_gaps": joins.device_gaps,
}


def test_both_engines_give_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    assert set(FUNCTIONS) == set(joins.VIEWS)
    fleet = Fleet(tmp_path)
    create(TABLES["custody"], fleet.paths.table("custody"))
    entries = (entry(1, 0, "tokyo", "GTIN"), entry(2, 2, "star", "LOAD"), entry(3, 40, "marlin", "LOAD"))
    fleet.add(
        custody_entries=[ledger(i, each) for i, each in enumerate(entries)],
        positions=[position(i, 10 + i / 2, (i * 1.5, (170 + 2 * i + 180) % 360 - 180)) for i in range(12)]
        + [position(i, 10 + i * 0.9, (-i, i), ship="9321483") for i in range(12)]
        + [position(90, 12, (9.0, 9.0))],
        readings=[reading(i, 9 + i / 7) for i in range(60)] + [reading(70, 60, sequence=72)],
        booking_changes=[
            change(1, 0),
            change(2, 11, valid_to=at(14)),
            change(3, 0, booking_reference="B2"),
            change(4, 12, status="CANCELLED", valid_from=at(12), valid_to=at(13)),
            change(5, 12, booking_reference="B2", status="CANCELLED", valid_from=at(16)),
        ],
        alerts=[alert(i, 9 + i) for i in range(6)],
    )
    make_custody(fleet.paths)
    for name, function in FUNCTIONS.items():
        there = function(spark, fleet.paths).toArrow()
        here = sql(tmp_path, f"select * from {name}")  # noqa: S608  # our own names
        assert there.schema.names == here.schema.names
        assert ordered(there.to_pylist()) == ordered(here.to_pylist()), name
        assert here.num_rows > 0, name
    booked = "select count(*) filter (where {}) from readings_with_bookings where booking_reference is not null"
    for left in ("valid_from = timestamptz '2026-03-01 13:00Z'", "valid_to = timestamptz '2026-03-01 16:00Z'"):
        (row,) = sql(tmp_path, booked.format(left)).to_pylist()
        assert min(row.values()) > 0, left  # on either side of the cancelled times


def ordered(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return sorted rows with floats rounded, as the engines may differ in the last digit."""
    plain = [tuple(round(v, 9) if isinstance(v, float) else v for v in row.values()) for row in rows]
    return sorted(plain, key=repr)
