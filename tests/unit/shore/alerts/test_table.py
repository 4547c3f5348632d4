"""``alerts_ashore`` made anew from ``readings``, without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from shore.alerts.box import COLUMNS, Reading
from shore.alerts.machine import advance
from shore.places import Places
from shore.tables.alerts_ashore import compared, everything, table_of
from shore.tables.readings import READINGS
from tests.unit.shore.alerts.logs import LOG, at, every, reading

OTHER = "yellow.TESU0000015"


def row(log: str, r: Reading) -> dict[str, Any]:
    values = dict(zip(COLUMNS, r, strict=True))
    return values | {"log": log, "equipment_reference": log.split(".")[1], "device_date_time": at(r)}


def store(places: Places, rows: Sequence[dict[str, Any]]) -> None:
    write_deltalake(
        places.table("readings"), pa.Table.from_pylist(list(rows), schema=READINGS.plain_schema), mode="append"
    )


def test_it_follows_from_readings_log_by_log_in_the_order_of_offsets(tmp_path: Path) -> None:
    places = Places.of(tmp_path)
    READINGS.create(places.table("readings"))
    assert everything(places).num_rows == 0
    warm, silent = every(10, 130, supply_temperature=9.0), [*every(10, 60), reading(500)]
    store(places, [row(LOG, r) for r in warm[7:]] + [row(OTHER, r) for r in silent])
    store(places, [row(LOG, r) for r in warm[:7]])
    unreadable = dict.fromkeys(READINGS.plain_schema.names) | {"log": LOG, "log_offset": 45}
    store(places, [unreadable])
    expected = table_of([*advance(LOG, None, warm)[1], *advance(OTHER, None, silent)[1]])
    assert expected.num_rows == 3
    assert everything(places).equals(expected)
    assert compared(expected).equals(expected)


def test_fractions_of_a_millisecond_are_cut_off(tmp_path: Path) -> None:
    places = Places.of(tmp_path)
    READINGS.create(places.table("readings"))
    warm = every(10, 130, supply_temperature=9.0)
    more = dt.timedelta(microseconds=999)
    store(places, [row(LOG, r) | {"device_date_time": at(r) + more} for r in warm])
    assert everything(places).equals(table_of(advance(LOG, None, warm)[1]))
