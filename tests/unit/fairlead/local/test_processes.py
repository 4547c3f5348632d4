"""Child processes and their pid files: only what is surely ours is touched."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fairlead.errors import UnavailableError
from fairlead.local import processes
from fairlead.local.workers import Workers
from tests.support.waits import until

WATCHES_ITS_PID_FILE = """import os, signal, time
def end(*_):
    print("recorded" if os.path.exists("it.pid") else "not recorded", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(600)
"""
SLEEP = "import time; time.sleep(600)  # marker-of-this-test"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., psutil.Process]]:
    """Starts ``python -c CODE``; whatever still runs is killed after the test."""
    started: list[psutil.Process] = []

    def make(code: str = SLEEP, name: str = "it", marker: str = "time.sleep(600)") -> psutil.Process:
        command = [sys.executable, "-c", code]
        log = tmp_path / f"{name}.log"
        process = processes.start(tmp_path / f"{name}.pid", command, cwd=tmp_path, log=log, marker=marker)
        started.append(process)
        until(lambda: bool(process.cmdline()))  # the kernel shows it a moment after the program has begun
        return process

    yield make
    for process in started:
        if process.is_running():
            process.kill()


def test_started_in_its_own_session_and_found(tmp_path: Path, run: Callable[..., psutil.Process]) -> None:
    process = run()
    assert processes.find(tmp_path / "it.pid") == process
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    processes.stop([tmp_path / "it.pid"])
    assert not process.is_running()
    assert not (tmp_path / "it.pid").exists()
    processes.stop([tmp_path / "it.pid"])  # again is no error


def test_an_ended_process_is_not_found(tmp_path: Path, run: Callable[..., psutil.Process]) -> None:
    process = run()
    process.kill()
    until(lambda: processes.find(tmp_path / "it.pid") is None)
    until(lambda: processes.exit_code(tmp_path / "it.pid") == -signal.SIGKILL)  # for a moment it is neither


@pytest.mark.parametrize(
    "change",
    [
        {"marker": "another program"},
        {"started": 12.5},
        {"pid": os.getpid()},  # reused by somebody who was started at another time
    ],
)
def test_somebody_elses_process_is_left_alone(
    tmp_path: Path, run: Callable[..., psutil.Process], change: dict[str, object]
) -> None:
    process, pid_file = run(), tmp_path / "it.pid"
    recorded = processes.read(pid_file)
    assert recorded is not None
    pid_file.write_text(json.dumps({**dataclasses.asdict(recorded), **change}))
    assert processes.find(pid_file) is None
    processes.stop([pid_file])
    processes.kill(pid_file)
    assert process.is_running()


def test_a_process_that_has_the_pid_of_an_ended_child_is_found_and_stopped(
    tmp_path: Path, run: Callable[..., psutil.Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels use pids again: a pid file of another program's process may name the pid of a child that ended."""
    ended, process = run(), run(name="other")
    processes.stop([tmp_path / "it.pid"])
    children: dict[int, Any] = vars(processes)["_children"]
    long_ago = dataclasses.replace(children[ended.pid], started=1.0)
    monkeypatch.setitem(children, process.pid, long_ago)
    assert processes.find(tmp_path / "other.pid") == process
    assert processes.exit_code(tmp_path / "other.pid") is None
    processes.stop([tmp_path / "other.pid"])
    assert not process.is_running()


@pytest.mark.parametrize("content", ["", "17", "{}", '{"pid": "x"}', "\0\0"])
def test_a_damaged_pid_file_is_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / "it.pid").write_text(content)
    assert processes.find(tmp_path / "it.pid") is None


@pytest.mark.parametrize("grace", [0.2, 0.0])
def test_who_does_not_stop_is_killed(tmp_path: Path, run: Callable[..., psutil.Process], grace: float) -> None:
    process = run(STUBBORN)
    until(lambda: "deaf" in (tmp_path / "it.log").read_text())
    processes.stop([tmp_path / "it.pid"], grace=grace)
    assert not process.is_running()


def test_a_process_that_is_told_to_stop_has_no_pid_file_any_more(
    tmp_path: Path, run: Callable[..., psutil.Process]
) -> None:
    """A voyage starts a worker again that ended while its pid file is there: nobody must find such a worker."""
    run(WATCHES_ITS_PID_FILE)
    until(lambda: "ready" in (tmp_path / "it.log").read_text())
    processes.stop([tmp_path / "it.pid"], forget_first=True)
    assert (tmp_path / "it.log").read_text().split("\n")[1] == "not recorded"


@pytest.mark.parametrize("forget_first", [False, True])
def test_after_an_interrupted_stop_what_still_runs_is_found(
    tmp_path: Path, run: Callable[..., psutil.Process], monkeypatch: pytest.MonkeyPatch, forget_first: bool
) -> None:
    process = run(STUBBORN)
    until(lambda: "deaf" in (tmp_path / "it.log").read_text())

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(processes, "_gone", interrupt)
        with pytest.raises(KeyboardInterrupt):
            processes.stop([tmp_path / "it.pid"], forget_first=forget_first)
    assert processes.find(tmp_path / "it.pid") == process


def test_a_paused_process_stops_too(tmp_path: Path, run: Callable[..., psutil.Process]) -> None:
    process = run()
    process.suspend()
    processes.stop([tmp_path / "it.pid"], grace=10)
    assert not process.is_running()


def test_without_a_pid_file_nothing_goes_on(tmp_path: Path) -> None:
    (tmp_path / ".it.pid.new").symlink_to("/dev/full")
    before = {child.pid for child in psutil.Process().children()}
    command = [sys.executable, "-c", SLEEP]
    with pytest.raises(UnavailableError, match="is full"):
        processes.start(tmp_path / "it.pid", command, cwd=tmp_path, log=tmp_path / "log", marker="sleep")
    assert {child.pid for child in psutil.Process().children()} == before


def test_a_worker_runs_until_stopped(tmp_path: Path) -> None:
    workers = Workers(tmp_path, module="http.server")
    log = tmp_path / "run" / "bridge.tokyo.log"
    try:
        worker = workers.start("bridge.tokyo", ["0"], ready=lambda: log.exists())
        assert worker.running and worker.log == log
        assert workers.start("bridge.tokyo", ["0"]).pid == worker.pid  # a second start leaves it alone
        assert workers.names() == workers.of_site("tokyo") == ["bridge.tokyo"]
        assert workers.of_site("sydney") == []
    finally:
        workers.stop()
    assert workers.all() == []


def test_a_worker_that_ends_says_why(tmp_path: Path) -> None:
    workers = Workers(tmp_path, module="no_such_module")
    with pytest.raises(UnavailableError, match=r"(?s)bridge\.tokyo ended while starting: .*No module named") as caught:
        workers.start("bridge.tokyo", ["--site", "tokyo"], ready=lambda: False)
    assert str(tmp_path / "run" / "bridge.tokyo.log") in caught.value.hint
    assert [worker.running for worker in workers.all()] == [False]


def test_a_worker_that_is_never_ready_is_stopped(tmp_path: Path) -> None:
    workers = Workers(tmp_path, module="http.server")
    with pytest.raises(UnavailableError, match=r"not ready after 0 s and was stopped"):
        workers.start("bridge.tokyo", ["0"], ready=lambda: False, timeout=0.3)
    assert workers.all() == []
