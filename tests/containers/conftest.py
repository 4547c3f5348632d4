"""A rendered fleet in containers, through testcontainers; skipped with the reason where it cannot be."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compose.fleet import Fleet, plan
from compose.render import render
from tests.support.engine import IMAGE, SHORE_IMAGE, why_no_containers
from topologies.loader.load import load

HERE = Path(__file__).parent
_PATIENCE = 300.0  # seconds for one container; the machine may be busy


def _docker(*arguments: str, check: bool = True, timeout: float = _PATIENCE) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0 or not check, f"docker {' '.join(arguments)}: {done.stderr[-2000:]}"
    return done.stdout.strip()


def compose_command(folder: Path, *arguments: str) -> list[str]:
    """``docker compose`` with a project's file."""
    return ["docker", "compose", "--file", str(folder / "compose.yaml"), *arguments]


@dataclass(frozen=True, slots=True)
class Project:
    """A fleet that runs. Services are named as in ``compose.yaml``. ``started``: seconds until all were healthy."""

    fleet: Fleet
    folder: Path
    started: float = 0.0

    def compose(self, *arguments: str, check: bool = True) -> str:
        return _docker(*compose_command(self.folder, *arguments)[1:], check=check)

    def cli(self, *arguments: str) -> subprocess.Popen[str]:
        """Run a ``fairlead`` command in a container beside the fleet."""
        command = compose_command(self.folder, "run", "--rm", "-T", "--name", self._cli, "cli", *arguments)
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ)
        )

    def signal_cli(self, signal: str) -> None:
        """Send a signal to the command that ``cli`` has started; one that has ended is no error."""
        _docker("kill", "--signal", signal, self._cli, check=False)

    @property
    def _cli(self) -> str:
        return f"fairlead-{self.fleet.topology.name}-cli-of-a-test"

    def written(self, name: str) -> dict[str, Any]:
        """A status file: of a site (``replicator.tokyo.json``) as the site's other service sees it, of a voyage
        (``voyage.json``) as the command that sails it does. Empty while nobody has written it."""
        file = f"/var/lib/fairlead/{self.fleet.topology.name}/run/{name}"
        if name == "voyage.json":
            text = _docker("exec", self._cli, "cat", file, check=False)
        else:
            kind, site, _ = name.split(".")
            beside = {"bridge": "replicator", "replicator": "bridge"}[kind]
            text = self.compose("exec", "-T", f"{site}-{beside}", "cat", file, check=False)
        found: dict[str, Any] = json.loads(text) if text else {}
        return found

    def kill(self, service: str) -> None:
        """Kill containers, as a power failure does."""
        self.compose("kill", "--signal", "KILL", service)

    def start(self, service: str) -> None:
        """Start containers again, and wait until they serve."""
        self.compose("start", service)
        self.healthy(service)

    def healthy(self, service: str) -> None:
        container = self.compose("ps", "--quiet", service)
        state = "{{.State.Health.Status}}"
        until(lambda: _docker("inspect", "--format", state, container) == "healthy", f"{service} is healthy")

    def cut(self, network: str, service: str) -> None:
        """Take a container off a network without closing its connections."""
        _docker("network", "disconnect", self._network(network), self.compose("ps", "--quiet", service))

    def join(self, network: str, service: str) -> None:
        """Put it back, under its name."""
        container = self.compose("ps", "--quiet", service)
        _docker("network", "connect", "--alias", service, self._network(network), container)

    def _network(self, name: str) -> str:
        return f"fairlead-{self.fleet.topology.name}_{name}"


def until(true: Callable[[], bool], what: str, patience: float = _PATIENCE) -> None:
    """Poll until a condition of another process holds."""
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, f"not within {patience:.0f} s: {what}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The fleet of ``harbour-fleet.yaml`` with TLS, up and healthy; all of it is gone afterwards."""
    if missing := why_no_containers(IMAGE, SHORE_IMAGE, compose=True):
        pytest.skip(missing)
    from testcontainers.compose import DockerCompose

    file = HERE / "harbour-fleet.yaml"
    fleet = plan(load(file, env={}), links=True)
    folder = tmp_path_factory.mktemp("fleet")
    render(fleet, file, folder)
    shutil.copy(HERE / "long-harbour.yaml", folder / "topology")  # where the containers find it
    began = time.monotonic()
    with DockerCompose(folder, compose_file_name="compose.yaml", wait=True, keep_volumes=False):
        yield Project(fleet, folder, time.monotonic() - began)
