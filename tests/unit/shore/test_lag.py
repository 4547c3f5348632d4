"""The lag of a job is unknown until its first batch is done."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pydantic import SecretStr

from fairlead.kafka.endpoint import KafkaEndpoint
from shore.lag import Lag, job_lags, sampled
from shore.paths import TablePaths
from tests.support.waits import PATIENCE
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


def test_lags_are_measured_again_after_an_error_of_the_storage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shore.lag.SAMPLE_SECONDS", 0.01)
    answers: Iterator[Exception | dict[str, Lag]] = iter([OSError("a listing timed out"), {"feeds": Lag(records=3)}])
    kept: list[Mapping[str, Lag]] = []
    both = threading.Event()

    def measure() -> Mapping[str, Lag]:
        answer = next(answers, {})
        if isinstance(answer, Exception):
            raise answer
        return answer

    def keep(found: Mapping[str, Lag]) -> None:
        kept.append(found)
        if len(kept) == 2:
            both.set()

    with sampled(measure, keep):
        assert both.wait(PATIENCE)
    assert kept[:2] == [{}, {"feeds": Lag(records=3)}]
    assert "a listing timed out" in caplog.text
