"""A topology as a Compose project: every container without rights it does not need, every secret where it is used."""

from __future__ import annotations

import base64
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from board.prometheus import board_metrics
from compose.entry import healthcheck
from compose.fleet import BOARD_PORT, METRICS_PORT, Fleet, all_secrets, plan, secrets_of_routes, secrets_of_spark
from compose.project import HOME, project, text
from compose.render import render
from compose.settings import overlay, prometheus, properties
from edge.prometheus import bridge_metrics
from fairlead.certs.facts import all_facts
from fairlead.cli.commands import compose
from fairlead.home import run_folder
from notify.prometheus import notify_metrics
from replication.metrics import BrokersCollector, replication_metrics
from shore.jobs.metrics import shore_metrics
from topologies.loader.load import load, locate, shipped
from topologies.model import SiteKind
from topologies.users import service_users


def services(fleet: Fleet) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = project(fleet)["services"]
    return found


@pytest.fixture(scope="module", params=sorted(shipped()))
def fleet(request: pytest.FixtureRequest) -> Fleet:
    return plan(load(request.param, env={}))


def test_containers_have_no_privileges(fleet: Fleet) -> None:
    for name, service in services(fleet).items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"] and service["pids_limit"], name
        assert "privileged" not in service and not any("docker.sock" in v for v in service.get("volumes", ())), name
        assert service["restart"] == {"setup": "on-failure", "cli": "no"}.get(name, "unless-stopped"), name


def test_every_service_has_a_health_check(fleet: Fleet) -> None:
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


def test_each_secret_is_mounted_only_where_it_is_used(fleet: Fleet) -> None:
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


def test_mosquitto_and_bridge_reach_only_their_site(fleet: Fleet) -> None:
    found = services(fleet)
    for site in fleet.sites:
        if site.has_devices:
            assert found[site.mqtt]["networks"] == found[f"{site.name}-bridge"]["networks"] == [site.name]


def test_sites_share_only_the_network_wan(fleet: Fleet) -> None:
    """Who has broken into a ship finds nothing of another ship's there, and no Spark."""
    found, sites = services(fleet), {site.name for site in fleet.sites}
    volumes: dict[str, set[str]] = {}
    for site in fleet.sites:
        for name in (*site.brokers, site.mqtt, f"{site.name}-bridge", f"{site.name}-replicator"):
            if name in found:
                assert set(found[name]["networks"]) <= {site.name, "wan"}, name
                own = {each.partition(":")[0] for each in found[name]["volumes"] if not each.startswith("./")}
                for volume in own:
                    volumes.setdefault(volume, set()).add(site.name)
    assert volumes and all(len(users) == 1 for users in volumes.values()), volumes
    assert set(volumes) <= set(project(fleet)["volumes"])
    spark = {name: set(found[name]["networks"]) for name in ("spark-master", "spark-worker", "shore") if name in found}
    assert bool(spark) == (fleet.topology.shore is not None)
    for name, networks in spark.items():
        assert "wan" not in networks and "spark" in networks, name
        assert networks & sites <= set(fleet.topology.shore.sites if fleet.topology.shore else ()), name
        assert found[name]["secrets"][-1:] == [f"{fleet.topology.shore.at if fleet.topology.shore else ''}.spark"]


def test_the_command_line_reads_every_sites_status(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    found = services(fleet)
    cli = found["cli"]
    monkeypatch.setenv("FAIRLEAD_SITE_HOMES", cli["environment"]["FAIRLEAD_SITE_HOMES"])
    for site in fleet.sites:
        for name in (f"{site.name}-bridge", f"{site.name}-replicator"):
            if name in found:
                volume = next(each.partition(":")[0] for each in found[name]["volumes"] if each.endswith(f":{HOME}"))
                (place,) = (each for each in cli["volumes"] if each.startswith(f"{volume}:"))
                seen = run_folder(Path(HOME) / fleet.topology.name, site.name)
                assert place.endswith(":ro") and str(seen).startswith(place.split(":")[1] + "/")
                assert seen.parts[-2:] == (fleet.topology.name, "run")


@pytest.fixture
def manned(tmp_path: Path) -> Path:
    """The smallest fleet, with a board and notifications."""
    file = tmp_path / "manned.yaml"
    text = locate("minimal").read_text().replace("name: minimal", "name: manned")
    hook, slack, plain = (
        "{to: {webhook: 'https://ducks.example/'}}",
        "{to: 'slack://{secret}/#fleet'}",
        "{to: 'json://log'}",
    )
    routes = f"{{ducks: {hook}, office: {slack}, log: {plain}}}"
    file.write_text(f"{text}\nboard: {{at: [tokyo]}}\nnotify: {{at: tokyo, routes: {routes}}}\n")
    return file


def test_the_board_has_the_tables_and_nobody_elses_password(manned: Path) -> None:
    fleet = plan(load(manned, env={}))
    board = services(fleet)["board"]
    assert board["secrets"] == ["tokyo.board"]
    assert set(board["networks"]) == {"tokyo", "wan"}  # people's passwords are checked at the brokers of all sites
    assert f"state:{HOME}" in board["volumes"]
    assert all(each.endswith(":ro") for each in board["volumes"] if each != f"state:{HOME}")
    assert board["ports"] == ["${FAIRLEAD_BOARD_ADDRESS:-127.0.0.1}:8470:8470"]  # other machines only if one says so
    assert "board" not in services(plan(load("minimal", env={})))


def test_the_board_has_its_secret_at_the_provider_and_nobody_else(manned: Path, tmp_path: Path) -> None:
    oidc = "{issuer: 'https://id.example', client_id: fairlead, claim: email, names: {someone@id.example: ducks}}"
    manned.write_text(manned.read_text().replace("{at: [tokyo]}", f"{{at: [tokyo], oidc: {oidc}}}"))
    fleet, folder = plan(load(manned, env={})), tmp_path / "project"
    file = folder / "secrets" / "tokyo.board-oidc"
    assert render(fleet, manned, folder) == ["tokyo.notify-office"]  # the board starts without its secret
    assert file.read_text() == ""
    file.write_text("of the provider")
    render(fleet, manned, folder)
    assert file.read_text() == "of the provider"
    assert project(fleet)["secrets"]["tokyo.board-oidc"] == {"file": "./secrets/tokyo.board-oidc"}
    having = {name for name, each in services(fleet).items() if "tokyo.board-oidc" in each.get("secrets", ())}
    assert having == {"board"}


def test_the_board_has_a_certificate_also_without_tls_at_the_brokers(manned: Path, tmp_path: Path) -> None:
    for tls in (True, False):
        folder = tmp_path / str(tls)
        fleet = plan(load(manned, env={}), tls=tls)
        render(fleet, manned, folder)
        board = services(fleet)["board"]
        assert "./certificates/board.pem:/run/certificates/board.pem:ro" in board["volumes"]
        assert board["command"][board["command"].index("--key") + 1] == "/run/certificates/board.pem"
        pem = (folder / "certificates" / "board.pem").read_bytes()
        assert {"board", "localhost"} <= set(all_facts(pem[pem.index(b"-----BEGIN CERT") :])[0].names)


def test_notifications_have_the_secrets_of_their_routes(manned: Path, tmp_path: Path) -> None:
    fleet, folder = plan(load(manned, env={})), tmp_path / "project"
    assert render(fleet, manned, folder) == ["tokyo.notify-office"]
    found = services(fleet)
    assert found["notify"]["secrets"] == ["tokyo.notify", "tokyo.notify-ducks", "tokyo.notify-office"]
    for secret in secrets_of_routes(fleet):
        assert {name for name, each in found.items() if secret in each.get("secrets", ())} == {"notify", "cli"}
    webhook, others = (folder / "secrets" / f"tokyo.notify-{name}" for name in ("ducks", "office"))
    assert len(base64.b64decode(webhook.read_text(), validate=True)) == 32
    assert others.read_text() == ""  # only its receiver knows it
    others.write_text("token")
    before = webhook.read_text()
    assert render(fleet, manned, folder) == []
    assert (webhook.read_text(), others.read_text()) == (before, "token")


def test_prometheus_scrapes_board_and_notifications(manned: Path) -> None:
    fleet = plan(load(manned, env={}))
    jobs = {each["job_name"]: each["static_configs"][0]["targets"] for each in prometheus(fleet)["scrape_configs"]}
    assert (jobs["board"], jobs["notify"]) == (["board:9404"], ["notify:9404"])
    found = services(fleet)
    for name in ("board", "notify"):
        assert set(found[name]["networks"]) & set(found["prometheus"]["networks"])
        assert found[name]["command"][-4:] == ["--metrics-port", "9404", "--metrics-host", "0.0.0.0"]  # noqa: S104
    assert (healthcheck.BOARD, healthcheck.METRICS) == (BOARD_PORT, METRICS_PORT)


@pytest.mark.parametrize("name", ["minimal", "big-blue"])
def test_rendered_files_have_addresses_and_no_secret(name: str, tmp_path: Path) -> None:
    fleet = plan(load(name, env={}))
    render(fleet, locate(name), tmp_path)
    secrets = {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}
    assert set(secrets) == {*all_secrets(fleet), *secrets_of_routes(fleet), *secrets_of_spark(fleet), "grafana.admin"}
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


def test_without_tls_only_controllers_use_it(tmp_path: Path) -> None:
    """Controllers log in with SASL PLAIN, over a network: their password never goes there in clear text."""
    fleet = plan(load("minimal", env={}), tls=False)
    render(fleet, locate("minimal"), tmp_path)
    brokers = [host for site in fleet.sites for host in site.brokers]
    assert sorted(file.stem for file in (tmp_path / "certificates").iterdir()) == sorted(["ca", *brokers])
    for name, service in services(fleet).items():
        mounted = [volume for volume in service.get("volumes", ()) if volume.startswith("./certificates/")]
        files = {volume.partition(":")[0].rpartition("/")[2] for volume in mounted}
        assert files == ({"ca.pem", f"{name}.pem"} if name in brokers else set()), name
    for host in brokers:
        written = dict(
            line.split("=", 1) for line in (tmp_path / "brokers" / f"{host}.properties").read_text().splitlines()
        )
        assert written["listener.security.protocol.map"] == "CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_SSL"
        assert written["listener.name.controller.ssl.keystore.location"] == f"/run/certificates/{host}.pem"
        assert not any(key.startswith("listener.name.client.ssl") for key in written)
    for site in overlay(fleet)["sites"].values():
        assert site["kafka"]["security"] == "SASL_PLAINTEXT"
        assert "mqtt" not in site or site["mqtt"]["security"] == "PLAINTEXT"
    load(tmp_path / "topology" / "minimal.yaml", env={})


def test_the_bridge_has_different_mqtt_and_kafka_passwords(tmp_path: Path) -> None:
    fleet = plan(load("minimal", env={}))
    render(fleet, locate("minimal"), tmp_path)
    for site in fleet.sites:
        if site.has_devices:
            mosquitto, bridge = (set(services(fleet)[name]["secrets"]) for name in (site.mqtt, f"{site.name}-bridge"))
            assert f"{site.name}.bridge-mqtt" in mosquitto & bridge
            assert f"{site.name}.bridge" in bridge - mosquitto
            folder = tmp_path / "secrets"
            assert (folder / f"{site.name}.bridge").read_text() != (folder / f"{site.name}.bridge-mqtt").read_text()


def test_prometheus_scrapes_every_replicator_and_bridge(tmp_path: Path) -> None:
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
        assert service["command"][-4:-2] == ["--metrics-port", "9404"] or "--address-overrides" in service["command"]
    told = "".join(file.read_text() for file in folder.rglob("*") if file.suffix in (".yaml", ".json"))
    of_services = (replication_metrics, bridge_metrics, shore_metrics, board_metrics, notify_metrics)
    known = {metric.name for metrics in of_services for metric in metrics([])}
    known |= {metric.name for metric in BrokersCollector({}, lambda _: pytest.fail()).collect()}
    named = {re.sub("_(total|sum|count)$", "", name) for name in re.findall(r"\bfairlead_[a-z0-9_]+", told)}
    assert named
    assert named <= known


def test_what_is_planned_is_what_the_project_has(tmp_path: Path) -> None:
    """The file ``<name>.local.yaml`` is this machine's: the project has one of its own in its place."""
    file = tmp_path / "quays.yaml"
    file.write_text("name: quays\nsites:\n  quay: {kind: port, unlocode: JPTYO}\n")
    (tmp_path / "quays.local.yaml").write_text("board: {at: [quay]}\n")
    out = tmp_path / "project"
    command = typer.Typer()
    command.add_typer(compose.app, name="compose")
    done = CliRunner().invoke(command, ["compose", "render", str(out), "--plaintext", "--topology", str(file)])
    assert done.exit_code == 0, done.output
    there = load(out / "topology" / "quays.yaml", env={})
    assert (there.board is not None) == ("board" in yaml.safe_load((out / "compose.yaml").read_text())["services"])


def test_the_next_command_can_be_copied(tmp_path: Path) -> None:
    """It stands on one line, however long the folder's name is, and a shell takes it as it is."""
    out = tmp_path / ("a project " * 12).strip()
    command = typer.Typer()
    command.add_typer(compose.app, name="compose")
    done = CliRunner().invoke(command, ["compose", "render", str(out), "--plaintext", "--topology", "minimal"])
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.output.splitlines() if "docker compose" in line]
    words = shlex.split(line.partition("next: ")[2])
    assert words == ["docker", "compose", "-f", str(out / "compose.yaml"), "up", "--wait"]
