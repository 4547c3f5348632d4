"""Sites with TLS for all tests of this folder, started as a user starts them; each test leaves them running.

``quay`` is a topology of one site; ``alpha`` and ``beta`` are a topology of two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from fairlead.cli.commands import certs, feed
from fairlead.cli.commands.sites import local as sites
from fairlead.home import topology_folder
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.local.certificates import Certificates
from fairlead.local.sites import LocalSites
from fairlead.local.state import SiteState, read_state

SITE = "quay"
_TOPOLOGY = """
name: tls-tests
tls: true
sites:
  quay: {kind: port, unlocode: JPTYO}
"""
_PAIR = """
name: tls-pair
tls: true
sites:
  alpha: {kind: port, unlocode: SGSIN}
  beta: {kind: datacentre}
streams:
  containers: {insert_point: moves, owners: [BIGU]}
customers:
  ducks: {feed_at: alpha}
shore: {at: alpha}
"""

_app = typer.Typer()
_app.command()(sites.up)
_app.command()(sites.down)
_app.command()(sites.status)
_app.command()(feed.feed)
_app.add_typer(certs.app, name="certs")


@dataclass(frozen=True)
class Secure:
    """A topology's sites (by default ``quay``) and the command line for them."""

    topology: Path
    local: LocalSites

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(_app, [*arguments, "--topology", str(self.topology)], catch_exceptions=False)

    def told(self, *arguments: str) -> Any:
        """Return a command's output with ``--json``."""
        return json.loads(self.run(*arguments, "--json").stdout)

    @property
    def state(self) -> SiteState:
        return read_state(self.local.folder / "state.json").sites[SITE]

    @property
    def certificates(self) -> Certificates:
        return Certificates(self.local.folder)

    def kafka(self, user: str = "admin") -> KafkaEndpoint:
        return self.local.kafka(SITE, user)

    def mqtt(self, user: str = "bridge") -> MqttEndpoint:
        return self.local.mqtt(SITE, user)


@pytest.fixture(scope="package")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder with all state."""
    folder = tmp_path_factory.mktemp("tls")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRLEAD_HOME", str(folder / "home"))
        yield folder


@contextmanager
def started(home: Path, name: str, topology: str) -> Iterator[Secure]:
    file = home / f"{name}.yaml"
    file.write_text(topology, encoding="utf-8")
    made = Secure(file, LocalSites(topology_folder(name)))
    try:
        assert made.run("up").exit_code == 0
        yield made
    finally:
        made.local.down(purge=True)


@pytest.fixture(scope="package")
def secure(home: Path) -> Iterator[Secure]:
    with started(home, "tls-tests", _TOPOLOGY) as made:
        yield made


@pytest.fixture(scope="package")
def pair(home: Path) -> Iterator[Secure]:
    with started(home, "tls-pair", _PAIR) as made:
        yield made


@pytest.fixture
def kafka(secure: Secure) -> Callable[..., KafkaEndpoint]:
    """Return a function of endpoints for fleets: every place is this one site."""
    return lambda _place, user="admin": secure.kafka(user)


@pytest.fixture
def mqtt(secure: Secure) -> Callable[..., MqttEndpoint]:
    return lambda _place, user="bridge": secure.mqtt(user)
