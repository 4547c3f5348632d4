"""If something is wrong, a user gets a clear message and the documented exit code, and nothing stays half-started."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from tests.e2e.conftest import Cli
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.mark.long
def test_a_command_for_sites_that_are_down(cli: Cli) -> None:
    ran = cli("audit", "tokyo", "duck-star", "--topology", "minimal")
    assert ran.code == 4
    assert "fairlead up" in ran.err


@pytest.mark.chaos
def test_a_voyage_goes_on_when_its_replicator_and_its_bridge_are_killed(cli: Cli) -> None:
    folder = cli.home / "report"
    sailing = subprocess.Popen(  # noqa: S603 - our own command
        cli.command("voyage", "run", "minimal", "--report", str(folder)),
        env=cli.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    seen: list[str] = []

    def read_until(words: str) -> None:
        assert sailing.stderr is not None
        for line in sailing.stderr:
            seen.append(line)
            if words in line:
                return
        raise AssertionError("".join(seen))

    read_until("published")
    for command in ("replicate", "bridge"):
        worker = json.loads((cli.home / "minimal" / "run" / f"worker.{command}.all.pid").read_text())
        os.kill(worker["pid"], signal.SIGKILL)
        read_until(f"fairlead {command} was killed by SIGKILL after")
    _, rest = sailing.communicate(timeout=600)
    assert sailing.returncode == 0, "".join(seen) + rest
    assert "is started again; the voyage goes on" in seen[-1]
    report = json.loads((folder / "report.json").read_text())
    assert report["ok"] and report["readings_published"] > 1000
    assert report["readings_lost"] == report["readings_repeated"] == report["logs_differing"] == 0
    assert cli("down", "--purge", "--yes", "--topology", "minimal").code == 0


@pytest.mark.long
def test_ctrl_c_while_sailing_leaves_no_worker(cli: Cli) -> None:
    """A voyage can be paused and resumed from another terminal. Ctrl-C ends its bridges and replicators, and leaves the
    sites up, as after any voyage."""
    assert cli("voyage", "pause").code == 4, "nobody sails"
    sailing = subprocess.Popen(  # noqa: S603 - our own command
        cli.command("voyage", "run", "minimal", "--speed", "3600", "--report", str(cli.home / "never")),
        env=cli.environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert sailing.stderr is not None
    seen = []
    for line in sailing.stderr:
        seen.append(line)
        if "published" in line:
            break
    else:
        raise AssertionError("".join(seen))
    paused = cli("voyage", "pause", "--json")
    assert paused.code == 0, paused.err
    assert paused.json["phase"] == "paused"
    assert paused.json["acknowledged"] == paused.json["published"] > 0
    resumed = cli("voyage", "resume", "minimal")
    assert resumed.code == 0, resumed.err
    assert "harbour goes on" in resumed.out
    os.killpg(sailing.pid, signal.SIGINT)
    _, rest = sailing.communicate(timeout=PATIENCE)
    assert sailing.returncode == 130, "".join(seen) + rest
    status = cli("status", "--json", "--topology", "minimal").json
    assert status["workers"] == []
    assert all(site["kafka"]["up"] for site in status["sites"])
    assert not (cli.home / "never").exists()
