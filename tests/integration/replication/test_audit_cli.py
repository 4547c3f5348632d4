"""``fairlead audit`` as a command: options, exit codes, what it prints, Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.cli import app as cli
from fairlead.errors import ExitCode
from fairlead.kafka.endpoint import KafkaEndpoint
from replication.audit import mark_file
from tests.integration.replication.audits import changed, own, planted
from tests.support.replication.lab import Lab, records, until
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration


@pytest.fixture
def topology(lab: Lab, kafka: Callable[..., KafkaEndpoint], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Write a topology file in which the shared sites are clusters outside this machine."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    sites = []
    for site in ("alpha", "beta"):
        endpoint = kafka(site)
        assert endpoint.password is not None
        monkeypatch.setenv(f"FAIRLEAD_SECRET_{site.upper()}_ADMIN", endpoint.password.get_secret_value())
        address = f"{{bootstrap: '{endpoint.bootstrap_servers}', security: SASL_PLAINTEXT}}"
        sites.append(f"  {site}: {{kind: datacentre, kafka: {address}}}\n")
    file = tmp_path / "lab.yaml"
    streams = f"streams:\n  {lab.stream}: {{}}\n  other: {{}}\n"
    file.write_text(f"name: lab\nsites:\n{''.join(sites)}{streams}links: []\n", encoding="utf-8")
    return file


def audit(topology: Path, *options: str) -> int:
    return cli.run(["audit", "alpha", "beta", "--topology", str(topology), *options])


# Every audit here is of the lab's stream: replicators of other tests write to the stream "ends" of the shared sites.
async def test_exit_codes_and_what_is_printed(lab: Lab, topology: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = records(0, 30)
    topics = await planted(lab, {"same": (own(same), own(same)), "other": (own(same), own(changed(7, value=b"new")))})
    for mode in ([], ["--quick"]):
        assert await asyncio.to_thread(audit, topology, "--json", "--stream", lab.stream, *mode) == ExitCode.FAILED
        found = json.loads(capsys.readouterr().out)
        assert (found["ok"], found["mode"]) == (False, "quick" if mode else "full")
        assert (found["logs_compared"], found["logs_differing"]) == (2, 1)
        (difference,) = found["differences"]
        assert (difference["log"], difference["offset"]) == (topics["other"], 7)
        assert (difference["a"]["value"], difference["b"]["value"]) == ("value 7 ".ljust(20, "."), "new")
        assert await asyncio.to_thread(audit, topology, "--stream", "other", *mode) == ExitCode.OK
        assert "0 records" in capsys.readouterr().out
    assert await asyncio.to_thread(audit, topology, "--stream", lab.stream, "--rate", "8MB/s") == ExitCode.FAILED
    out = capsys.readouterr().out
    assert "differs first at offset 7" in out
    assert "value 7 ....." in out
    assert await asyncio.to_thread(audit, topology, "--rate", "fast") == ExitCode.USAGE
    assert "8MB/s" in capsys.readouterr().err


async def test_ctrl_c_and_going_on(lab: Lab, topology: Path) -> None:
    same = records(0, 1000, size=1000)
    await planted(lab, {"long": (own(same, per=100), own(same, per=100))})
    file = mark_file(topology.parent / "home" / "lab", "full", "alpha", "beta")
    options = ["--topology", str(topology), "--stream", lab.stream]
    command = [sys.executable, "-m", "fairlead.cli.app", "audit", "alpha", "beta", *options]
    slow = await asyncio.create_subprocess_exec(*command, "--rate", "40kB/s", stderr=subprocess.PIPE)

    async def begun() -> bool:
        assert slow.returncode is None
        return file.exists()  # written at the start of the audit

    try:
        await until(begun, "the audit does not begin")
        slow.send_signal(signal.SIGINT)
        _, told = await asyncio.wait_for(slow.communicate(), PATIENCE)
    finally:
        if slow.returncode is None:
            slow.kill()
    assert slow.returncode == ExitCode.INTERRUPTED, told
    assert b"--resume" in told
    assert b"Traceback" not in told
    assert await asyncio.to_thread(audit, topology, "--stream", lab.stream, "--resume") == ExitCode.OK
