"""``fairlead notify`` without a Kafka: what it refuses and answers, its metrics, and the metadata of commits."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import itertools
import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from fairlead.cli import app as cli
from fairlead.errors import ConfigurationError, ExitCode
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local.registry import LocalSiteRegistry
from notify.prometheus import notify_metrics
from notify.service import CommitMetadata, NotifyService, RoutePosition, position_of
from replication.groups.rules import Commit, GroupPosition, copy_metadata
from tests.support.receivers import web_receiver
from tests.support.scraping import page
from tests.support.waits import PATIENCE
from topologies.endpoints import EndpointResolver
from topologies.loader.load import load, read

PORT = "name: small\nsites:\n  tokyo: {kind: port, unlocode: JPTYO}\n  duck-star: {kind: ship, imo: '9074729'}\n"
SECRET = "FAIRLEAD_SECRET_TOKYO_NOTIFY_OFFICE"
KEY = base64.b64encode(b"k" * 32).decode()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    return tmp_path / "small.yaml"


def described(file: Path, url: str, at: str = "tokyo") -> str:
    text = f"{PORT}notify: {{at: {at}, routes: {{office: {{to: {{webhook: '{url}'}}}}}}}}\n"
    file.write_text(text, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(("status", "code"), [(204, ExitCode.OK), (500, ExitCode.FAILED), (404, ExitCode.FAILED)])
def test_a_test_says_what_came_back(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int, code: int
) -> None:
    monkeypatch.setenv(SECRET, KEY)
    with web_receiver(lambda post: status) as web:
        assert cli.run(["notify", "test", "office", "--topology", described(file, web.url), "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert (answer["delivered"], answer["answer"]) == (code == ExitCode.OK, f"HTTP {status}")
    assert [post.number for post in web.posts] == [answer["notification"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["test", "ofice"], "did you mean 'office'"),
        (["test", "office"], SECRET),
        (["run", "--site", "duck-star"], "are sent at tokyo"),
        (["run", "--site", "tokio"], "did you mean 'tokyo'"),
    ],
)
def test_what_is_refused(
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    said: str,
) -> None:
    monkeypatch.delenv(SECRET, raising=False)
    where = ["--topology", described(file, "https://receiver.example/")]
    assert cli.run(["notify", *words, *where]) == ExitCode.CONFIG
    assert said in capsys.readouterr().err


def test_a_topology_without_notifications_says_how_to_have_some(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(PORT, encoding="utf-8")
    assert cli.run(["notify", "list", "--topology", str(file)]) == ExitCode.CONFIG
    assert "docs/notify.md" in capsys.readouterr().err


def test_a_route_for_customers_needs_bookings(tmp_path: Path) -> None:
    """At a ship without a link that brings them, the route would be silent for ever."""
    routes = "{office: {to: {webhook: 'https://r.example/'}, customers: [ducks]}}"
    text = f"{PORT}customers: {{ducks: {{}}}}\nnotify: {{at: duck-star, routes: {routes}}}\n"
    topology = read(text, "small.yaml", env={})
    resolver = EndpointResolver(topology, LocalSiteRegistry(tmp_path), env={SECRET.replace("TOKYO", "DUCK_STAR"): KEY})
    with pytest.raises(ConfigurationError, match="no booking reaches duck-star"):
        NotifyService(topology, resolver)


async def test_a_service_ends_also_while_its_kafka_is_away(tmp_path: Path) -> None:
    topology = load(described(tmp_path / "small.yaml", "https://r.example/"))
    stop, asked = asyncio.Event(), itertools.count()

    class Away(EndpointResolver):
        def kafka(self, site: str, user: str) -> KafkaEndpoint:
            if next(asked) == 1:  # it has tried again
                stop.set()
            return KafkaEndpoint(site, (("127.0.0.1", 1),), user, SecretStr("password"))

    service = NotifyService(topology, Away(topology, LocalSiteRegistry(tmp_path), env={SECRET: KEY}))
    async with asyncio.timeout(PATIENCE):
        await service.run(stop)
    assert service.snapshot()["routes"][0]["delivered"] == 0


def test_metrics_are_by_route() -> None:
    counted = {"delivered": 5, "refused": 1, "failed": 2, "lag": 3, "held": 4, "failing": True}
    text = page(notify_metrics([{"routes": [{"route": "office", **counted}]}]))
    for name, value in (("delivered_total", 5), ("refused_total", 1), ("failed_total", 2), ("lag", 3), ("failing", 1)):
        assert f'fairlead_notify_{name}{{route="office"}} {float(value)}\n' in text


def test_a_position_is_the_same_after_a_commit_also_where_a_link_copied_it() -> None:
    made = RoutePosition(7, CommitMetadata(3, dt.datetime(2026, 3, 1, tzinfo=dt.UTC), 2, "HTTP 410"))
    commit = made.commit()
    assert position_of(commit) == made
    assert position_of(Commit(7, copy_metadata(GroupPosition("tokyo", 7, 1), commit.metadata))) == made
    for other in ("", "somebody's", "[1]", '{"held": "x"}'):
        assert position_of(Commit(7, other)) == RoutePosition(7)
