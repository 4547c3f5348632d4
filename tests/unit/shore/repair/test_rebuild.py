"""Where the checkpoint that ``rebuild`` writes stands in logs of which the tables have no rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from fairlead.kafka.endpoint import KafkaEndpoint
from shore.jobs.checkpoint import read_checkpoint, write_checkpoint
from shore.jobs.runner import JOBS
from shore.paths import TablePaths
from shore.repair import rebuild
from shore.source.offsets import Positions
from shore.storage import Storage
from shore.tables import TABLES
from tests.support.delta_rs import create
from topologies.loader.load import load

OLD, LATE, HALF, NEW = (f"containers.BIGU10000{number}" for number in (10, 26, 31, 47))
ENDS = {LATE: 45, HALF: 55, NEW: 7}
"""Of the tables. Retention has deleted all rows of OLD and, as they were of older times, the last of LATE."""


@pytest.mark.parametrize(
    ("what", "stands"),
    [
        ("retention has deleted rows", {OLD: 40, LATE: 50, HALF: 55, NEW: 7}),
        ("no row was deleted", ENDS),  # a row that is missing then is missing by mistake: read it again
        ("the checkpoint is damaged", ENDS),
        ("the table is gone", {}),
    ],
)
def test_logs_whose_rows_retention_has_deleted_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, stands: Positions
) -> None:
    paths = TablePaths.of(tmp_path)
    for table in TABLES.values():
        create(table, paths.table(table.name))
    write_checkpoint(paths, "readings", {OLD: 40, LATE: 50, HALF: 50}, "{}")
    if what != "no row was deleted":
        Storage(f"{paths.base}/retention").write("readings.json", b'{"kept_since":"2026-03-01T00:00:00Z"}')
    if what == "the checkpoint is damaged":
        (Path(paths.checkpoint("readings")) / "offsets" / "0").write_text("v1\n{")
    if what == "the table is gone":
        shutil.rmtree(paths.table("readings"))
    compared = Mock(return_value=Mock(missing=0, wrong=0))
    for name, fake in {"register": Mock(), "create_tables": Mock(), "find_odd_rows": compared}.items():
        monkeypatch.setattr(rebuild, name, fake)
    has_rows = what != "the table is gone"
    monkeypatch.setattr(rebuild, "ends_of", lambda *_: ENDS if has_rows else {})
    endpoint = KafkaEndpoint("alpha", (("127.0.0.1", 1),))
    rebuild.rebuild_job("readings", JOBS, Mock(paths=paths), load("minimal"), endpoint)
    checkpoint = read_checkpoint(paths, "readings")
    assert checkpoint is not None
    assert checkpoint.positions == stands
    assert compared.call_args.args[-1] == stands  # rows that retention would have kept are added
