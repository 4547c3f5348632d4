"""Readings, and a check of the hourly tables that follow from them."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from shore.paths import TablePaths
from shore.tables import TABLES
from tests.support.oracle import conditions as whole

T0 = dt.datetime(2026, 3, 1, 22, tzinfo=dt.UTC)
DERIVED = {
    "conditions": whole.conditions,
    "mkt": whole.mkt,
    "excursion_parts": whole.excursion_parts,
    "excursions": whole.excursions,
}
Row = dict[str, Any]


def reading(box: str, minute: float, supply: float | None = 4.0, **more: Any) -> Row:
    """Return a good reading of a box so many minutes after ``T0``."""
    return {
        "log": f"containers.{box}",
        "log_offset": int(minute * 60) + 10**9,
        "equipment_reference": box,
        "device_id": "d",
        "boot_id": 1,
        "sequence": int(minute * 60),
        "device_date_time": T0 + dt.timedelta(minutes=minute),
        "supply_temperature": supply,
        "setpoint_temperature": 4.0,
        "is_powered": True,
        "is_connected_to_power_source": True,
        "latitude": 35.0 + minute / 1000,
        "longitude": 139.0,
    } | more


def check(paths: TablePaths) -> None:
    """Check that every derived table is as it must be, and has no NaN."""
    for name, everything in DERIVED.items():
        stored, expected = stored_rows(paths, name), by_key(name, everything(paths))
        assert [key(name, row) for row in stored] == [key(name, row) for row in expected]
        for row, right in zip(stored, expected, strict=True):
            assert {c: row[c] for c in right} == {c: close(v) for c, v in right.items()}, name
            assert not any(isinstance(v, float) and math.isnan(v) for v in row.values())


def stored_rows(paths: TablePaths, name: str) -> list[Row]:
    return by_key(name, DeltaTable(paths.table(name)).to_pyarrow_dataset().to_table())


def close(value: Any) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value


def key(name: str, row: Row) -> tuple[Any, ...]:
    return tuple(row[column] for column in TABLES[name].key)


def by_key(name: str, table: pa.Table) -> list[Row]:
    rows: list[Row] = table.to_pylist()
    return sorted(rows, key=lambda row: key(name, row))
