"""A topology as a Compose project: every container without rights it does not need, every secret where it is used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.brokers import properties
from deploy.fleet import Fleet, all_secrets, plan
from deploy.overlay import overlay
from deploy.project import project, text
from deploy.render import render
from fairlead.certs.facts import all_facts
from handbook import inventory
from topologies.load import load, locate, shipped
from topologies.model import SiteKind
from topologies.users import service_users


def services(fleet: Fleet) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = project(fleet)["services"]
    return found


@pytest.fixture(scope="module", params=sorted(shipped()))
def fleet(request: pytest.FixtureRequest) -> Fleet:
    return plan(load(request.param, env={}))


def test_nothing_runs_with_rights(fleet: Fleet) -> None:
    for name, service in services(fleet).items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"] and service["pids_limit"], name
        assert "privileged" not in service and not any("docker.sock" in v for v in service.get("volumes", ())), name
        assert service["restart"] == {"setup": "on-failure", "cli": "no"}.get(name, "unless-stopped"), name


def test_all_that_serves_is_asked_how_it_is(fleet: Fleet) -> None:
    done_or_optional = {"setup", "cli", "shore", "prometheus", "grafana"}
    for name, service in services(fleet).items():
        assert ("healthcheck" in service) == (name not in done_or_optional), name


def test_ports_have_three_brokers_and_ships_one(fleet: Fleet) -> None:
    for site in fleet.sites:
        number = 1 if site.site.kind in (SiteKind.SHIP, SiteKind.CUSTOMER) else 3
        assert len(site.brokers) == number
        for node, host in enumerate(site.brokers, 1):
            written = dict(line.split("=", 1) for line in properties(fleet, site, node).splitlines())
            assert written["node.id"] == str(node)
            assert written["advertised.listeners"] == f"CLIENT://{host}:9092"
            assert written["controller.quorum.voters"].count("@") == number
            replicated = {"default.replication.factor": "3", "min.insync.replicas": "2"}
            assert (replicated.items() <= written.items()) == (number == 3)
            assert written["listener.security.protocol.map"] == "CLIENT:SASL_SSL,CONTROLLER:SASL_SSL"
            assert written["listener.name.client.ssl.keystore.location"] == f"/run/certificates/{host}.pem"


def test_every_secret_is_there_and_goes_only_to_whom_it_concerns(fleet: Fleet) -> None:
    declared = set(project(fleet)["secrets"])
    given: dict[str, set[str]] = {}
    for name, service in services(fleet).items():
        for secret in service.get("secrets", ()):
            given.setdefault(secret, set()).add(name)
    assert set(given) <= declared
    for site in fleet.sites:
        for user in service_users(fleet.topology, site.name):
            assert f"{site.name}.{user}" in declared
        assert given[f"{site.name}.controller"] == {*site.brokers, "setup", "cli"}
        assert given[f"{site.name}.admin"] == {*site.brokers, "setup", "cli"}
        for link in fleet.topology.links_from(site.name):
            # At its source a replicator is known by a password of its own, which no other site's replicator has.
            readers = given[f"{site.name}.replicator.{link.to}"]
            assert readers == {f"{link.to}-replicator", "setup", "cli"}
    for customer in fleet.topology.customers:
        for secret in (name for name in declared if name.endswith(f".{customer}")):
            assert given[secret] == {"setup", "cli"}


def test_what_is_beside_a_site_reaches_no_other_site(fleet: Fleet) -> None:
    found = services(fleet)
    for site in fleet.sites:
        if site.has_way_in:
            assert found[site.mqtt]["networks"] == found[f"{site.name}-bridge"]["networks"] == [site.name]


@pytest.mark.parametrize("name", ["minimal", "big-blue"])
def test_what_is_rendered_says_where_the_sites_are_and_holds_no_secret(name: str, tmp_path: Path) -> None:
    fleet = plan(load(name, env={}))
    render(fleet, locate(name), tmp_path)
    secrets = {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}
    assert set(secrets) == {*all_secrets(fleet), "grafana.admin"}
    assert len(set(secrets.values())) == len(secrets)
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "authority").stat().st_mode & 0o777 == 0o700
    shown = [
        file for file in tmp_path.rglob("*") if file.is_file() and file.parent.name not in ("secrets", "authority")
    ]
    for file in shown:
        content = file.read_text()
        assert not any(secret in content for secret in secrets.values()), file
        assert ("PRIVATE KEY" in content) == (file.parent.name == "certificates" and file.name != "ca.pem"), file
    deployed = load(tmp_path / "topology" / f"{name}.yaml", env={})
    for site in fleet.sites:
        kafka = deployed.sites[site.name].kafka
        assert kafka is not None
        assert (kafka.bootstrap, kafka.security) == (site.bootstrap, "SASL_SSL")
        for host in site.brokers:
            pem = (tmp_path / "certificates" / f"{host}.pem").read_bytes()
            assert host in all_facts(pem[pem.index(b"-----BEGIN CERT") :])[0].names


def test_rendering_again_keeps_secrets_and_certificates(tmp_path: Path) -> None:
    fleet = plan(load("minimal", env={}))

    def kept() -> dict[str, bytes]:
        folders = ("secrets", "certificates", "authority")
        return {str(f): f.read_bytes() for folder in folders for f in (tmp_path / folder).iterdir()}

    render(fleet, locate("minimal"), tmp_path)
    before = kept()
    (tmp_path / "compose.yaml").unlink()
    render(fleet, locate("minimal"), tmp_path)
    assert kept() == before
    assert (tmp_path / "compose.yaml").read_text() == text(fleet)


def test_without_tls_nothing_speaks_of_certificates(tmp_path: Path) -> None:
    fleet = plan(load("minimal", env={}), tls=False)
    render(fleet, locate("minimal"), tmp_path)
    assert not (tmp_path / "certificates").exists()
    assert "certificates" not in text(fleet)
    assert all(site["kafka"]["security"] == "SASL_PLAINTEXT" for site in overlay(fleet)["sites"].values())


def test_prometheus_looks_at_every_replicator_and_bridge_and_knows_their_metrics(tmp_path: Path) -> None:
    fleet = plan(load("big-blue", env={}))
    render(fleet, locate("big-blue"), tmp_path)
    folder = tmp_path / "monitoring"
    settings = yaml.safe_load((folder / "prometheus" / "prometheus.yaml").read_text())
    targets = settings["scrape_configs"][1]["static_configs"][0]["targets"]
    replicators = [name for name in services(fleet) if name.endswith("-replicator")]
    assert targets == [f"{name}:9404" for name in replicators]
    ways_in = settings["scrape_configs"][2]["static_configs"][0]["targets"]
    bridges = [name for name in services(fleet) if name.endswith("-bridge")]
    assert bridges and ways_in == [f"{name}:9404" for name in bridges]
    for name in (*replicators, *bridges):  # all can be reached, and serve where they are looked for
        service = services(fleet)[name]
        assert set(service["networks"]) & set(services(fleet)["prometheus"]["networks"])
        assert service["command"][-4:-2] == ["--metrics-port", "9404"] or "--detours" in service["command"]
    told = "".join(file.read_text() for file in folder.rglob("*") if file.suffix in (".yaml", ".json"))
    metrics = Path(__file__).parents[3] / "replication" / "metrics.py"
    known = set(re.findall(r"fairlead_\w+", metrics.read_text())) | {"fairlead_link_records", "fairlead_link_bytes"}
    known |= {metric.name for metric in inventory.metrics()}
    named = {re.sub("_(total|sum|count)$", "", name) for name in re.findall(r"\bfairlead_[a-z_]+", told)}
    assert named
    assert named <= known
