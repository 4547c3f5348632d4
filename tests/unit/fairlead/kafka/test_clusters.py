"""One cluster per site, opened at first use."""

from __future__ import annotations

import pytest

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.clusters import Clusters
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import ConnectionLost


class Opened:
    """Stands in for ``Cluster.open``: what was opened, and which sites are away."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, float]] = []
        self.away: set[str] = set()
        self.closed: list[str] = []

    async def __call__(self, endpoint: KafkaEndpoint, *, client_id: str, request_timeout: float) -> object:
        self.asked.append((endpoint.site, client_id, request_timeout))
        if endpoint.site in self.away:
            raise ConnectionLost(f"{endpoint.site} is away", site=endpoint.site)
        return _Cluster(endpoint.site, self.closed)


class _Cluster:
    def __init__(self, site: str, closed: list[str]) -> None:
        self._site = site
        self._closed = closed

    async def close(self) -> None:
        self._closed.append(self._site)


def endpoint(site: str) -> KafkaEndpoint:
    return KafkaEndpoint(site, (("localhost", 9092),))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    stand_in = Opened()
    monkeypatch.setattr(Cluster, "open", stand_in)
    return stand_in


async def test_a_site_is_opened_once_and_all_are_closed(opened: Opened) -> None:
    async with Clusters(endpoint, client_id="look", request_timeout=3) as clusters:
        tokyo = await clusters.at("tokyo")
        assert await clusters.at("tokyo") is tokyo
        assert await clusters.at("sydney") is not tokyo
        assert opened.closed == []
    assert opened.asked == [("tokyo", "look", 3), ("sydney", "look", 3)]
    assert opened.closed == ["tokyo", "sydney"]


async def test_a_site_that_was_away_is_tried_again(opened: Opened) -> None:
    opened.away.add("tokyo")
    async with Clusters(endpoint, client_id="look") as clusters:
        with pytest.raises(ConnectionLost):
            await clusters.at("tokyo")
        opened.away.clear()
        await clusters.at("tokyo")
    assert opened.closed == ["tokyo"]


async def test_after_closing_a_site_is_opened_anew(opened: Opened) -> None:
    clusters = Clusters(endpoint, client_id="look")
    first = await clusters.at("tokyo")
    await clusters.close()
    assert await clusters.at("tokyo") is not first
