"""What a user gets to see when something is wrong: a clear message, the documented exit code, nothing half-started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Cli
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_an_unknown_topology_names_the_nearest(cli: Cli) -> None:
    ran = cli("up", "--topology", "big-blu")
    assert ran.code == 3
    assert "big-blue" in ran.err


def test_an_unknown_command_and_option(cli: Cli) -> None:
    assert cli("upp").code == 2
    assert cli("up", "--bogus").code == 2


def test_all_mistakes_of_a_topology_at_once(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "name: bad\nsites:\n  a: {kind: port}\n  b: {kind: shop}\nlinks:\n  - {from: a, to: c, streams: [x]}\n"
    )
    ran = cli("topology", "check", str(file))
    assert ran.code == 3
    for line in (3, 4, 6):
        assert f"bad.yaml:{line}:" in ran.err


def test_a_missing_java_is_named_with_what_to_install(cli: Cli, tmp_path: Path) -> None:
    for tool in ("mosquitto", "mosquitto_passwd"):  # only Java is missing
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)
    environment = {**cli.environment, "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "none")}
    # Java is also looked for where systems put it, and a test cannot empty /usr/lib/jvm.
    program = "import fairlead.cli, fairlead.jars.java as java; java._USUAL_PLACES = (); fairlead.cli.main()"
    ran = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", program, "up", "--topology", "minimal"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 4
    assert "Java" in ran.stderr
    for system in ("Debian", "Fedora", "macOS"):
        assert system in ran.stderr


def test_a_command_for_sites_that_are_down(cli: Cli) -> None:
    ran = cli("audit", "tokyo", "duck-star", "--topology", "minimal")
    assert ran.code == 4
    assert "fairlead up" in ran.err


def test_ctrl_c_while_sailing_leaves_no_worker(cli: Cli) -> None:
    """Sites stay up, as after any voyage; bridges and replicators that the voyage started are gone. Before that, it is
    paused from another terminal, and goes on."""
    assert cli("voyage", "pause").code == 4, "nobody sails"
    sailing = subprocess.Popen(  # noqa: S603 - our own command
        cli.command("voyage", "minimal", "--speed", "3600", "--report", str(cli.home / "never")),
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
