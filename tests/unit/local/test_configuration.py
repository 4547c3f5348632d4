"""Texts of the brokers' configuration, and what is said when a program is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from fairlead.errors import ConfigurationError, UnavailableError, UnknownNameError
from fairlead.local import kafka, mosquitto
from fairlead.local.sites import LocalSites
from fairlead.local.state import SiteState, State, read_state, write_state

SITE = SiteState(kafka_port=20001, controller_port=20002, mqtt_port=20003, cluster_id="c" * 22)


def properties(site: SiteState) -> dict[str, str]:
    text = kafka.server_properties(site, SecretStr("admin-word"), SecretStr("controller-word"))
    return dict(line.split("=", 1) for line in text.splitlines())


def test_a_site_denies_by_default_and_listens_on_loopback_only() -> None:
    found = properties(SITE)
    assert found["allow.everyone.if.no.acl.found"] == "false"
    assert found["super.users"] == "User:admin;User:controller"
    assert found["listeners"] == "CLIENT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002"
    assert "PLAINTEXT:PLAINTEXT" not in found["listener.security.protocol.map"]
    assert 'password="admin-word"' in found["listener.name.client.scram-sha-512.sasl.jaas.config"]


def test_what_the_append_convention_leans_on() -> None:
    found = properties(SITE)
    assert found["producer.id.expiration.ms"] == found["producer.id.expiration.check.interval.ms"] == "2147483647"
    assert found["log.message.timestamp.after.max.ms"] == found["log.message.timestamp.before.max.ms"] == str(2**63 - 1)


def test_a_sites_own_properties_win() -> None:
    own = SITE.model_copy(update={"properties": {"num.io.threads": "8", "log.retention.ms": "1000"}})
    assert properties(own)["num.io.threads"] == "8"
    assert properties(own)["log.retention.ms"] == "1000"


def test_only_the_bridge_reads() -> None:
    rules = mosquitto.access_rules(("bridge", "device"))
    bridge, device = rules.split("user device")
    assert "topic read fairlead/v1/#" in bridge and "write" not in bridge
    assert device.strip() == "topic write fairlead/v1/#"


def test_without_mosquitto_the_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mosquitto, "_SBIN", ())
    with pytest.raises(UnavailableError, match="mosquitto_passwd\\); it was not found") as caught:
        mosquitto.find_mosquitto()
    for system in ("apt install mosquitto", "dnf install mosquitto", "brew install mosquitto"):
        assert system in caught.value.hint


def test_an_old_mosquitto_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("mosquitto", "mosquitto_passwd"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'mosquitto version 1.6.9'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    monkeypatch.setattr(mosquitto, "_SBIN", ())
    with pytest.raises(UnavailableError, match=r"found .*/mosquitto 1\.6\.9"):
        mosquitto.find_mosquitto()


def test_state_is_remembered(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    assert read_state(file) == State()
    write_state(file, State(sites={"tokyo": SITE}))
    assert read_state(file).sites == {"tokyo": SITE}


@pytest.mark.parametrize("text", ["", "[]", '{"sites": {"tokyo": {"kafka_port": "none"}}}'])
def test_damaged_state_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(ConfigurationError, match=r"(?s)is damaged.*purge"):
        LocalSites(tmp_path).status()


def test_a_site_that_was_never_started(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"(?s)tokyo was never started.*fairlead up tokyo"):
        LocalSites(tmp_path).kafka("tokyo", "bridge")
    assert list(tmp_path.iterdir()) == []  # asking leaves nothing behind


def test_an_unknown_user_is_told_the_valid_ones(tmp_path: Path) -> None:
    users = {"kafka_users": ("admin", "bridge"), "mqtt_users": ("device",)}
    write_state(tmp_path / "state.json", State(sites={"tokyo": SITE.model_copy(update=users)}))
    with pytest.raises(UnknownNameError, match=r"(?s)Kafka user of tokyo named 'brigde'.*did you mean 'bridge'"):
        LocalSites(tmp_path).kafka("tokyo", "brigde")
    with pytest.raises(UnknownNameError, match="MQTT user"):
        LocalSites(tmp_path).mqtt("tokyo", "admin")
