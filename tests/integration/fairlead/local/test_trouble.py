"""Starting under bad conditions gives a clear message, and leaves nothing half-started behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fairlead.errors import UnavailableError
from fairlead.kafka.admin import create_logs, require_answer
from fairlead.local import kafka, ports
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.local.state import LocalState, SiteState, write_state
from tests.support.waits import PATIENCE, until

pytestmark = [pytest.mark.long, pytest.mark.integration]
SITES = ("one", "two")
UP = """
import sys
from pathlib import Path
from fairlead.local.sites import LocalSites, SiteSpec
try:
    LocalSites(Path(sys.argv[1])).up([SiteSpec(name) for name in sys.argv[2:]], on_progress=print)
except KeyboardInterrupt:
    sys.exit(130)
"""


def start_up(folder: Path, *sites: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", UP, str(folder), *sites]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)  # noqa: S603


def running(folder: Path) -> set[int]:
    """Return every process whose command line names the folder, except this test's own ``up``."""
    found = set()
    for process in psutil.process_iter(["pid", "cmdline"]):
        line = process.info["cmdline"] or []
        if any(str(folder) in word for word in line) and UP not in line and process.info["pid"] != os.getpid():
            found.add(process.info["pid"])
    return found


@pytest.mark.parametrize("moment", ["at once", "one runs", "all run"])
def test_ctrl_c_leaves_nothing_behind(fresh: LocalSites, moment: str) -> None:
    """Ctrl-C during the start leaves no process behind."""
    pids = {"at once": 0, "one runs": 1, "all run": 4}[moment]
    up = start_up(fresh.folder, *SITES)
    until(lambda: (fresh.folder / "state.json").exists() and len(list(fresh.folder.glob("run/*.pid"))) >= pids)
    up.send_signal(signal.SIGINT)
    time.sleep(0.05)
    up.send_signal(signal.SIGINT)  # an impatient second one does not stop the cleaning up
    assert up.wait(PATIENCE) in (130, -signal.SIGINT)  # at the second one the interpreter may be exiting already
    assert running(fresh.folder) == set()
    fresh.up([SiteSpec(name) for name in SITES])  # another try succeeds
    assert all(site.kafka_up and site.mqtt_up for site in fresh.status().values())


def test_sites_survive_the_terminal_and_a_second_up_finds_them(fresh: LocalSites) -> None:
    first, second = start_up(fresh.folder, *SITES), start_up(fresh.folder, *SITES)
    assert (first.wait(PATIENCE), second.wait(PATIENCE)) == (0, 0)
    before = running(fresh.folder)
    assert len(before) == 4
    with pytest.raises(ProcessLookupError):
        os.killpg(first.pid, signal.SIGHUP)  # nothing of the terminal's session is left to be killed
    fresh.up([SiteSpec(name) for name in SITES])
    assert running(fresh.folder) == before


def test_an_up_that_was_killed_is_taken_over(fresh: LocalSites) -> None:
    """A new ``up`` takes over after one that was killed."""
    up = start_up(fresh.folder, "one")
    until(lambda: len(list(fresh.folder.glob("run/*.pid"))) == 2)
    up.kill()
    up.wait()
    half = running(fresh.folder)
    fresh.up([SiteSpec("one")])
    assert running(fresh.folder) == half
    require_answer(fresh.kafka("one", "admin"))


def test_what_cannot_start_says_why_and_takes_the_others_down(fresh: LocalSites) -> None:
    """If one site cannot start, the error says why, and the others are stopped."""
    bad = SiteSpec("two", properties={"num.io.threads": "nonsense"})
    with pytest.raises(UnavailableError, match=r"(?s)two's Kafka ended while starting: .*num\.io\.threads"):
        fresh.up([SiteSpec("one"), bad])
    assert running(fresh.folder) == set()


def test_what_ran_before_goes_on_when_another_cannot_start(fresh: LocalSites) -> None:
    """Sites that ran before keep running when another cannot start."""
    fresh.up([SiteSpec("one")])
    before = running(fresh.folder)
    with pytest.raises(UnavailableError):
        fresh.up([SiteSpec("one"), SiteSpec("two", properties={"num.io.threads": "nonsense"})])
    assert running(fresh.folder) == before


def test_a_port_in_use_names_the_port_and_the_process(fresh: LocalSites) -> None:
    fresh.up([SiteSpec("one")])
    port = fresh.status()["one"].kafka_port
    create_logs(fresh.kafka("one", "admin"), {"test.kept": {}})
    fresh.down()
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind((ports.HOST, port))
        thief.listen()
        with pytest.raises(UnavailableError, match=rf"port {port} \(Kafka\) by .*\(pid {os.getpid()}\)") as caught:
            fresh.up([SiteSpec("one")])
    assert caught.value.hint.endswith(f"fairlead down one --topology {fresh.folder.name} --purge")
    assert running(fresh.folder) == set()
    fresh.up([SiteSpec("one")])
    assert fresh.status()["one"].kafka_port == port
    assert create_logs(fresh.kafka("one", "admin"), {"test.kept": {}}) == set()


def test_a_site_without_data_moves_to_other_ports(fresh: LocalSites) -> None:
    with socket.socket() as thief:
        thief.bind((ports.HOST, 0))
        thief.listen()
        taken = thief.getsockname()[1]
        state = SiteState(kafka_port=taken, controller_port=taken + 1, mqtt_port=taken + 2, cluster_id="c" * 22)
        write_state(fresh.folder / "state.json", LocalState(sites={"one": state}))
        fresh.up([SiteSpec("one")])
    assert fresh.status()["one"].kafka_port != taken
    require_answer(fresh.kafka("one", "admin"))


def test_a_broker_that_hangs_is_not_called_ready(fresh: LocalSites, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.up([SiteSpec("one")])
    broker = psutil.Process(fresh.status()["one"].pids["kafka"])
    monkeypatch.setattr(kafka, "READY_TIMEOUT", 3.0)
    broker.suspend()
    try:
        with pytest.raises(UnavailableError, match=rf"one's Kafka runs \(pid {broker.pid}\) but does not answer"):
            fresh.up([SiteSpec("one")])
    finally:
        broker.resume()


def test_a_full_disk_is_said_before_anything_starts(fresh: LocalSites, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(fresh.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=50 << 20))
    with pytest.raises(UnavailableError, match=r"has 50 MB free and 200 MB are needed"):
        fresh.up([SiteSpec(name) for name in SITES])
    assert fresh.status() == {}
    assert running(fresh.folder) == set()


def test_a_disk_that_fills_while_starting_stops_what_was_started(fresh: LocalSites) -> None:
    properties = fresh.folder / "sites" / "one" / "kafka" / ".server.properties.new"
    properties.parent.mkdir(parents=True)
    properties.symlink_to("/dev/full")
    with pytest.raises(UnavailableError, match="is full"):
        fresh.up([SiteSpec(name) for name in SITES])
    assert running(fresh.folder) == set()


def test_purge_of_one_site_keeps_the_other(fresh: LocalSites) -> None:
    fresh.up([SiteSpec(name) for name in SITES])
    fresh.down(["one"], purge=True)
    assert set(fresh.status()) == {"two"}
    assert fresh.status()["two"].kafka_up
    assert not (fresh.folder / "sites" / "one").exists()
    with pytest.raises(UnavailableError, match="one was never started"):
        fresh.kafka("one", "admin")
    fresh.down(purge=True)
    assert [path.name for path in fresh.folder.iterdir()] == [".lock"]


def test_down_finds_processes_without_a_state_file(fresh: LocalSites) -> None:
    fresh.up([SiteSpec("one")])
    (fresh.folder / "state.json").write_text("damaged")
    fresh.down(purge=True)
    assert running(fresh.folder) == set()
