"""Lines under the replicators of a Compose project: only where they are wanted, one port for each way."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from compose.entry.healthcheck import check
from compose.fleet import Fleet, plan
from compose.project import ADDRESS_OVERRIDES, HOME, project, text
from compose.render import render
from compose.settings import address_overrides
from topologies.endpoints import LINES, read_address_overrides
from topologies.loader.load import load, locate, shipped


@pytest.fixture(scope="module", params=sorted(shipped()))
def fleet(request: pytest.FixtureRequest) -> Fleet:
    return plan(load(request.param, env={}), links=True)


def test_each_replicator_has_a_proxy_port_for_each_source_broker(fleet: Fleet) -> None:
    ways = {
        (target, source): dict(pairs) for target, of in address_overrides(fleet).items() for source, pairs in of.items()
    }
    assert set(ways) == {(link.to, link.from_) for link in fleet.topology.directed_links()}
    brokers = {site.name: site.brokers for site in fleet.sites}
    for (_, source), pairs in ways.items():
        assert [host for host, _ in pairs] == list(brokers[source])
        assert {port for _, port in pairs} == {9092}
    places = [place for pairs in ways.values() for place in pairs.values()]
    assert len(set(places)) == len(places)
    assert {host for host, _ in places} == {"links"}


def test_only_replicators_use_the_proxies(fleet: Fleet) -> None:
    found = project(fleet)["services"]
    assert found["links"]["networks"] == ["wan"]
    assert "secrets" not in found["links"]
    for name, service in found.items():
        takes = f"./links/address-overrides.json:{ADDRESS_OVERRIDES}:ro" in service.get("volumes", ())
        assert takes == (name == "links" or name.endswith("-replicator")), name
        assert ("--address-overrides" in service.get("command", ())) == name.endswith("-replicator"), name


def test_without_links_there_are_no_proxies(tmp_path: Path) -> None:
    calm = plan(load("minimal", env={}))
    render(calm, locate("minimal"), tmp_path)
    assert "links" not in project(calm)["services"]
    assert "address-overrides" not in text(calm)
    assert not (tmp_path / "links").exists()


def test_the_rendered_address_overrides_are_readable(tmp_path: Path) -> None:
    fleet = plan(load("minimal", env={}), links=True)
    render(fleet, locate("minimal"), tmp_path)
    file = tmp_path / "links" / "address-overrides.json"
    assert read_address_overrides(file) == address_overrides(fleet)
    assert file.stat().st_mode & 0o777 == 0o644
    assert file.parent.stat().st_mode & 0o777 == 0o755


def test_the_control_socket_is_where_voyages_expect_it() -> None:
    service = project(plan(load("minimal", env={}), links=True))["services"]["links"]
    assert service["command"][1] == service["healthcheck"]["test"][-1] == f"{HOME}/minimal/run/{LINES}"


def test_the_proxies_have_a_health_check(short_path: Path) -> None:
    at = str(short_path / "links.sock")
    assert "No such file" in check("links", at)

    def answer(with_: bytes) -> None:
        client, _ = server.accept()
        with client:
            client.recv(100)
            client.sendall(with_)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(at)
        server.listen()
        for said, why in ((b'{"ways":{}}\n', ""), (b"", "it closed the connection")):
            thread = threading.Thread(target=answer, args=(said,))
            thread.start()
            assert check("links", at) == why
            thread.join()
