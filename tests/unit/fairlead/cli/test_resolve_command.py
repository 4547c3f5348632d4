"""``fairlead link resolve`` before it reaches any site: options, names, and what is known."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fairlead.cli.app import app
from fairlead.errors import ConfigurationError, FairleadError, UnavailableError, UnknownNameError

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return lambda *arguments: CliRunner().invoke(app, ["link", "resolve", *arguments, "--yes", "--topology", "two-way"])


def failed(result: Result, kind: type[FairleadError]) -> FairleadError:
    assert isinstance(result.exception, kind), result.exception
    return result.exception


def test_options_that_contradict_each_other(run: Run) -> None:
    error = failed(run("a.b", "--site", "east", "--skip", "--retry"), ConfigurationError)
    assert error.what == "--skip and --retry contradict each other"


def test_a_site_that_is_not_there(run: Run) -> None:
    assert failed(run("a.b", "--site", "eaast"), UnknownNameError).fields["nearest"] == "east"


def test_a_site_whose_replicator_never_ran_here(run: Run) -> None:
    error = failed(run("a.b", "--site", "east"), UnavailableError)
    assert "nothing is known about its logs" in error.what
    assert error.hint


def test_no_log_is_in_trouble(run: Run, tmp_path: Path) -> None:
    snapshot = {"at": "2026-03-01T00:00:00+00:00", "pid": os.getpid(), "links": [], "logs": {}}
    file = tmp_path / "two-way" / "run" / "replicator.east.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(snapshot))
    error = failed(run("events.east", "--site", "east"), ConfigurationError)
    assert error.what == "events.east is in no trouble at east, nor is any other log"


def test_a_log_that_is_not_in_trouble_is_told_from_those_that_are(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = {"state": "diverged", "cause": "c", "since": "2026-03-01T00:00:00+00:00", "link": None, "what_to_do": ""}
    snapshot = {"at": "2026-03-01T00:00:00+00:00", "pid": os.getpid(), "links": [], "logs": {"events.east": trouble}}
    file = tmp_path / "two-way" / "run" / "replicator.east.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(snapshot))
    monkeypatch.setattr("topologies.endpoints.EndpointResolver.kafka", lambda *_: pytest.fail("no site is to be asked"))
    error = failed(run("events.eaast", "--site", "east"), UnknownNameError)
    assert error.fields["nearest"] == "events.east"
    assert isinstance(failed(run("events.east/x", "--site", "east"), ConfigurationError), ConfigurationError)
