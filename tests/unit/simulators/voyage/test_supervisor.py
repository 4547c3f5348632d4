from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from fairlead.errors import UnavailableError
from fairlead.local.workers import Workers
from simulators.voyage import services
from simulators.voyage.supervisor import Supervisor
from tests.support.waits import until
from topologies.context import Context

NAME = "bridge.tokyo"


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path, module="http.server")  # runs until it is stopped
    yield made
    made.stop()


def pid(workers: Workers) -> int | None:
    return next((worker.pid for worker in workers.all() if worker.name == NAME), None)


def test_a_killed_worker_is_started_again(workers: Workers) -> None:
    told: list[str] = []
    with Supervisor(workers, on_end=lambda end: told.append(f"{end.name} {end.how}")) as supervisor:
        supervisor.start(NAME, ["0"])
        first = pid(workers)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        until(lambda: pid(workers) not in (None, first))
        supervisor.check()
        assert [(end.name, end.code) for end in supervisor.ends] == [(NAME, -signal.SIGKILL)]
        assert told == [f"{NAME} was killed by SIGKILL"]
    assert workers.all() == []  # and it is over


def test_a_worker_stopped_by_another_command_stays_stopped(workers: Workers) -> None:
    with Supervisor(workers) as supervisor:
        supervisor.start(NAME, ["0"])
        workers.stop([NAME])
        with pytest.raises(UnavailableError, match=r"bridge\.tokyo was stopped by another command"):
            while True:
                supervisor.check()
        assert workers.all() == []


def test_a_worker_that_keeps_failing_is_given_up(tmp_path: Path) -> None:
    workers = Workers(tmp_path, module="no_such_module")
    with Supervisor(workers, tries=3) as supervisor:
        supervisor.start(NAME, [])
        until(lambda: len(supervisor.ends) == 3)
        with pytest.raises(UnavailableError, match=r"(?s)bridge\.tokyo has ended 3 times in a row: .*No module named"):
            while True:
                supervisor.check()
        assert {end.code for end in supervisor.ends} == {1}


@pytest.mark.parametrize(("name", "needed"), [("board.tokyo", False), ("replicate.tokyo", True)])
def test_a_voyage_fails_for_a_worker_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, needed: bool
) -> None:
    monkeypatch.setattr(services, "_await_ready", lambda _: None)
    workers = Workers(tmp_path, module="no_such_module")
    workers.start(name, [])
    until(lambda: not workers.all()[0].running)
    context = cast(Context, SimpleNamespace(folder=tmp_path))
    settings = services.SailSettings(speed=None, patience=60, elsewhere=True)
    with (
        services.background_workers(context, settings, {}, proxied=False) as check,
        pytest.raises(UnavailableError, match="has ended") if needed else nullcontext(),
    ):
        check()
