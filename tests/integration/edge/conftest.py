from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fairlead.cli import app as cli
from fairlead.cli.commands.custody import app as custody
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.local.registry import LocalSiteRegistry
from tests.support.edge.fleet import Fleet, make_fleet
from topologies.context import Context


class Places:
    """Resolve the fleet's sites to their endpoints."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def kafka(self, site: str, user: str) -> KafkaEndpoint:
        assert user == "admin"
        return self._fleet.kafka[site]


class Said(NamedTuple):
    """The result of one command line."""

    code: int
    out: str
    err: str

    @property
    def body(self) -> Any:
        return json.loads(self.out)


class Operator:
    """Run commands on this fleet's topology, as a person would."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def says(self, *arguments: str) -> Said:
        self._capsys.readouterr()
        code = await asyncio.to_thread(cli.run, ["custody", *arguments])
        return Said(code, *self._capsys.readouterr())


@pytest.fixture
def fleet(kafka: Callable[..., KafkaEndpoint], mqtt: Callable[..., MqttEndpoint], tmp_path: Path) -> Iterator[Fleet]:
    """Return a fleet: a port at ``alpha`` and a ship at ``beta``, with logs that only this test uses."""
    made = make_fleet(kafka, mqtt, tmp_path)
    yield made
    made.forget_sessions()


@pytest.fixture
def operator(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Operator:
    context = Context("fleet", fleet.topology, tmp_path, LocalSiteRegistry(tmp_path), Places(fleet))  # type: ignore[arg-type]
    monkeypatch.setattr(custody, "open_topology", lambda name: context)
    return Operator(capsys)
