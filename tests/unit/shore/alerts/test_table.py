"""``alerts_ashore`` made anew from ``readings``, without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from shore.alerts.machine import advance, expire
from shore.alerts.rules import COLUMNS, FORGET_MS, AlertReading
from shore.paths import TablePaths
from shore.tables.alerts_ashore import ALERTS_ASHORE, comparable, compared, everything, table_of
from shore.tables.readings import READINGS
from tests.unit.shore.alerts.logs import LOG, at, every, reading

OTHER = "yellow.TESU0000015"


def row(log: str, r: AlertReading) -> dict[str, Any]:
    values = dict(zip(COLUMNS, r, strict=True))
    return values | {"log": log, "equipment_reference": log.split(".")[1], "device_date_time": at(r)}


def store(paths: TablePaths, rows: Sequence[dict[str, Any]]) -> None:
    write_deltalake(
        paths.table("readings"), pa.Table.from_pylist(list(rows), schema=READINGS.plain_schema), mode="append"
    )


def test_it_follows_from_readings_log_by_log_in_the_order_of_offsets(tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    READINGS.create(paths.table("readings"))
    assert everything(paths).num_rows == 0
    warm, silent = every(10, 130, supply_temperature=9.0), [*every(10, 60), reading(500)]
    store(paths, [row(LOG, r) for r in warm[7:]] + [row(OTHER, r) for r in silent])
    store(paths, [row(LOG, r) for r in warm[:7]])
    unreadable = dict.fromkeys(READINGS.plain_schema.names) | {"log": LOG, "log_offset": 45}
    store(paths, [unreadable])
    expected = table_of([*advance(LOG, None, warm)[1], *advance(OTHER, None, silent)[1]])
    assert expected.num_rows == 3
    assert everything(paths).equals(expected)
    assert compared(expected).equals(expected)


def test_fractions_of_a_millisecond_are_cut_off(tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    READINGS.create(paths.table("readings"))
    warm = every(10, 130, supply_temperature=9.0)
    more = dt.timedelta(microseconds=999)
    store(paths, [row(LOG, r) | {"device_date_time": at(r) + more} for r in warm])
    assert everything(paths).equals(table_of(advance(LOG, None, warm)[1]))


@pytest.mark.parametrize("then", ["nothing", "delayed", "left"])
@pytest.mark.parametrize("column", [name for name in ALERTS_ASHORE.plain_schema.names if name != "alert_id"])
def test_a_value_of_a_silence_that_only_time_tells_is_compared_too(tmp_path: Path, then: str, column: str) -> None:
    paths = TablePaths.of(tmp_path)
    READINGS.create(paths.table("readings"))
    before = every(10, 60)
    after = {"nothing": [], "delayed": [reading(70)], "left": [reading(300, term=3)]}[then]
    store(paths, [row(LOG, r) for r in [*before, *after]])
    box, found = advance(LOG, None, before)
    assert box is not None
    opened = expire(LOG, box, box.due_ms, watched=True)
    found += opened.states
    found += advance(LOG, opened.box, after)[1]
    table = table_of(found)
    assert [each["reason"] for each in table.to_pylist()] == ["fault", *([then] if after else [])]
    there, must = comparable(paths, table, everything(paths))
    assert there.num_rows == table.num_rows
    assert there.equals(must)
    kind = table.schema.field(column).type
    changed = [_other(value, kind) for value in table[column].to_pylist()]
    forged = table.set_column(table.schema.get_field_index(column), table.schema.field(column), pa.array(changed, kind))
    there, must = comparable(paths, forged, everything(paths))
    assert not there.equals(must)


def test_a_forgotten_box_is_left_out(tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    READINGS.create(paths.table("readings"))
    store(paths, [row(LOG, r) for r in every(10, 60)])
    box, _ = advance(LOG, None, every(10, 60))
    assert box is not None
    opened = expire(LOG, box, box.due_ms, watched=True)
    assert opened.box is not None
    ended = expire(LOG, opened.box, opened.box.at_ms + FORGET_MS, watched=True)
    there, must = comparable(paths, table_of([*opened.states, *ended.states]), everything(paths))
    assert there.num_rows == must.num_rows == 0


def _other(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return value + dt.timedelta(seconds=1)
    if pa.types.is_string(kind):
        return f"{value}X"
    return (value or 0) + 1
