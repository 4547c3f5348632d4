"""Which rows of ``alerts_ashore`` follow from a log's readings, and which can be compared."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from shore.alerts.machine import advance, expire
from shore.alerts.rules import FORGET_MS
from shore.tables.alerts_ashore import ALERTS_ASHORE, comparable_rows, compared, table_of
from tests.support.shore.logs import LOG, every, reading


def test_what_follows_from_readings_is_compared() -> None:
    warm, silent = every(10, 130, supply_temperature=9.0), [*every(10, 60), reading(500)]
    for readings, count in ((warm, 1), (silent, 2)):
        table = table_of(advance(LOG, None, readings)[1])
        there, must = comparable_rows(LOG, table, readings)
        assert there.equals(must) and there.equals(table) and there.num_rows == count
        assert compared(table).equals(table)
        there, must = comparable_rows(LOG, table.slice(0, 0), readings)
        assert (there.num_rows, must.equals(table)) == (0, True)
        there, must = comparable_rows(LOG, table, [])
        assert (there.equals(table), must.num_rows) == (True, 0)


@pytest.mark.parametrize("then", ["nothing", "delayed", "left"])
@pytest.mark.parametrize("column", [name for name in ALERTS_ASHORE.plain_schema.names if name != "alert_id"])
def test_a_value_of_a_silence_that_only_time_tells_is_compared_too(then: str, column: str) -> None:
    before = every(10, 60)
    after = {"nothing": [], "delayed": [reading(70)], "left": [reading(300, term=3)]}[then]
    box, found = advance(LOG, None, before)
    assert box is not None
    opened = expire(LOG, box, box.due_ms, watched=True)
    found += opened.states
    found += advance(LOG, opened.box, after)[1]
    table = table_of(found)
    assert [each["reason"] for each in table.to_pylist()] == ["fault", *([then] if after else [])]
    there, must = comparable_rows(LOG, table, [*before, *after])
    assert there.num_rows == table.num_rows
    assert there.equals(must)
    kind = table.schema.field(column).type
    changed = [_other(value, kind) for value in table[column].to_pylist()]
    forged = table.set_column(table.schema.get_field_index(column), table.schema.field(column), pa.array(changed, kind))
    there, must = comparable_rows(LOG, forged, [*before, *after])
    assert not there.equals(must)


def test_a_forgotten_box_is_left_out() -> None:
    box, _ = advance(LOG, None, every(10, 60))
    assert box is not None
    opened = expire(LOG, box, box.due_ms, watched=True)
    assert opened.box is not None
    ended = expire(LOG, opened.box, opened.box.at_ms + FORGET_MS, watched=True)
    there, must = comparable_rows(LOG, table_of([*opened.states, *ended.states]), every(10, 60))
    assert there.num_rows == must.num_rows == 0


def _other(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return value + dt.timedelta(seconds=1)
    if pa.types.is_string(kind):
        return f"{value}X"
    return (value or 0) + 1
