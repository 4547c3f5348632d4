"""The generated table is one that ingest could have left."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
from deltalake import DeltaTable

from benchmarks.shore.generated import generate, numbers
from fairlead.names import is_container_number
from shore.tables.readings import READINGS


def test_every_file_holds_a_stretch_of_time_of_all_boxes(tmp_path: Path) -> None:
    location = str(tmp_path / "readings")
    generate(location, 1_005, boxes=10, file_rows=250)
    dataset = DeltaTable(location).to_pyarrow_dataset()
    table = dataset.to_table()
    assert table.num_rows == 1_000  # a hundred of each box
    assert table.schema.names == READINGS.schema.names
    assert len({(row["log"], row["log_offset"]) for row in table.select(["log", "log_offset"]).to_pylist()}) == 1_000
    assert sorted(set(table["equipment_reference"].to_pylist())) == numbers(10)
    assert [f.count_rows() for f in dataset.get_fragments()] == [250] * 4
    assert pc.sum(table["is_defrosting"]).as_py() > 0
    assert table["supply_temperature"].null_count == 0
    assert all(is_container_number(number) for number in numbers(10))
