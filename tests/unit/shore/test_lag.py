"""The lag of a job is unknown until its first batch is done."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from pydantic import SecretStr

from fairlead.kafka.endpoint import KafkaEndpoint
from shore.lag import job_lags
from shore.paths import TablePaths
from topologies.loader.load import load

NOWHERE = KafkaEndpoint("hq", (("127.0.0.1", 1),), "shore", SecretStr("x"))
_TABLE = '{"sourceVersion":1,"reservoirId":"t-1","reservoirVersion":5,"index":-1,"isStartingVersion":false}'


def begin(folder: Path, job: str, offsets: str) -> None:
    root = folder / "checkpoints" / job
    for name in ("offsets", "commits"):
        (root / name).mkdir(parents=True)
    (root / "metadata").write_text('{"id":"q-1"}')
    (root / "offsets" / "0").write_text(f'v1\n{{"batchWatermarkMs":0,"conf":{{}}}}\n{offsets}')


def test_a_first_batch_that_broke_off_is_no_lag_of_nothing(tmp_path: Path) -> None:
    begin(tmp_path, "alerts", '{"containers":{"A":3}}')
    begin(tmp_path, "quality", _TABLE)
    now = dt.datetime.now(dt.UTC)
    found = job_lags(load("minimal"), NOWHERE, TablePaths.of(tmp_path), ["alerts", "quality", "voyages"], now=now)
    assert {name: lag.records for name, lag in found.items()} == {"alerts": None, "quality": None, "voyages": None}
    assert found["quality"].why == "its first batch is not done yet"
    assert found["voyages"].why == "it has not run yet"
    assert "127.0.0.1" in found["alerts"].why  # its lag needs the logs, and the site is not there
