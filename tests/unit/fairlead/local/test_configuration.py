"""Texts of the brokers' configuration, and what is said when a program is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from fairlead.certs.trust import KeyPair
from fairlead.errors import ConfigurationError, UnavailableError, UnknownNameError
from fairlead.local import kafka, mosquitto
from fairlead.local.passwords import Passwords
from fairlead.local.sites import LocalSites, SiteSpec, Toolbox
from fairlead.local.state import Broker, LocalState, Profile, SiteState, TlsFiles, read_state, write_state

SITE = SiteState(kafka_port=20001, controller_port=20002, mqtt_port=20003, cluster_id="c" * 22)


def properties(site: SiteState, broker: Broker | None = None) -> dict[str, str]:
    text = kafka.server_properties(site, SecretStr("controller-word"), broker=broker)
    return dict(line.split("=", 1) for line in text.splitlines())


def test_a_site_denies_by_default_and_listens_on_loopback_only() -> None:
    found = properties(SITE)
    assert found["allow.everyone.if.no.acl.found"] == "false"
    assert found["super.users"] == "User:admin;User:controller"
    assert found["listeners"] == "CLIENT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002"
    assert "PLAINTEXT:PLAINTEXT" not in found["listener.security.protocol.map"]
    login = found["listener.name.client.scram-sha-512.sasl.jaas.config"]  # not as admin, whose password may change
    assert 'username="controller" password="controller-word"' in login


def test_what_the_append_convention_leans_on() -> None:
    found = properties(SITE)
    assert found["producer.id.expiration.ms"] == found["producer.id.expiration.check.interval.ms"] == "2147483647"
    assert found["log.message.timestamp.after.max.ms"] == found["log.message.timestamp.before.max.ms"] == str(2**63 - 1)


def test_a_sites_own_properties_win() -> None:
    own = SITE.model_copy(update={"properties": {"num.io.threads": "8", "log.retention.ms": "1000"}})
    assert properties(own)["num.io.threads"] == "8"
    assert properties(own)["log.retention.ms"] == "1000"


def test_several_brokers_replicate_among_themselves() -> None:
    state = SITE.model_copy(update={"more_brokers": ((20011, 20012), (20021, 20022))})
    found = properties(state, state.brokers[1])
    assert found["node.id"] == "2"
    assert found["listeners"] == "CLIENT://127.0.0.1:20011,CONTROLLER://127.0.0.1:20012"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:20002,2@127.0.0.1:20012,3@127.0.0.1:20022"
    assert (found["default.replication.factor"], found["min.insync.replicas"]) == ("3", "2")
    assert found["offsets.topic.replication.factor"] == found["transaction.state.log.replication.factor"] == "3"
    alone = properties(SITE)
    assert (alone["node.id"], alone["offsets.topic.replication.factor"]) == ("1", "1")
    assert "default.replication.factor" not in alone
    assert state.ports == (20001, 20002, 20011, 20012, 20021, 20022, 20003)


@pytest.mark.parametrize("brokers", [0, 2, 4])
def test_an_even_number_of_brokers_is_refused(tmp_path: Path, brokers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalSites(tmp_path)
    tools = Toolbox(tmp_path, (), (), "", mosquitto.Programs(tmp_path, tmp_path, ""))
    monkeypatch.setattr(local, "toolbox", lambda _tell: tools)
    with pytest.raises(ConfigurationError, match=rf"tokyo cannot have {brokers} brokers\n.*1, 3 or 5"):
        local.up([SiteSpec("tokyo", brokers=brokers)])
    assert local.status() == {}


def test_only_the_bridge_reads() -> None:
    rules = mosquitto.access_rules(("bridge", "device"))
    bridge, device = rules.split("user device")
    assert "topic read fairlead/v1/#" in bridge
    assert "write" not in bridge
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
    assert read_state(file) == LocalState()
    trio = SITE.model_copy(update={"more_brokers": ((20011, 20012), (20021, 20022))})
    write_state(file, LocalState(sites={"tokyo": SITE, "trio": trio}))
    assert read_state(file).sites == {"tokyo": SITE, "trio": trio}


def test_state_of_before_there_were_several_brokers(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(
        '{"version": 1, "sites": {"tokyo": {"kafka_port": 20001, "controller_port": 20002, "mqtt_port": 20003, '
        '"cluster_id": "cccccccccccccccccccccc", "kafka_users": ["admin"], "mqtt_users": [], "properties": {}}}}'
    )
    assert read_state(file).sites["tokyo"].brokers == (Broker(1, 20001, 20002),)


@pytest.mark.parametrize("text", ["", "[]", '{"sites": {"tokyo": {"kafka_port": "none"}}}'])
def test_damaged_state_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(ConfigurationError, match=rf"(?s)is damaged.*--topology {tmp_path.name} --purge"):
        LocalSites(tmp_path).status()


def test_a_site_that_was_never_started(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"(?s)tokyo was never started.*fairlead up tokyo"):
        LocalSites(tmp_path).kafka("tokyo", "bridge")
    assert list(tmp_path.iterdir()) == []  # asking leaves nothing behind


def test_an_unknown_user_is_told_the_valid_ones(tmp_path: Path) -> None:
    users = {"kafka_users": ("admin", "bridge"), "mqtt_users": ("device",)}
    write_state(tmp_path / "state.json", LocalState(sites={"tokyo": SITE.model_copy(update=users)}))
    with pytest.raises(UnknownNameError, match=r"(?s)Kafka user of tokyo named 'brigde'.*did you mean 'bridge'"):
        LocalSites(tmp_path).kafka("tokyo", "brigde")
    with pytest.raises(UnknownNameError, match="MQTT user"):
        LocalSites(tmp_path).mqtt("tokyo", "admin")


@pytest.mark.parametrize(("profile", "autosave", "keep"), [("durable", 1, 30.0), ("fast", 5, 0.0)])
def test_what_a_killed_mosquitto_may_forget(tmp_path: Path, profile: str, autosave: int, keep: float) -> None:
    chosen = Profile(profile)
    mosquitto.write_configuration(tmp_path, 20003, chosen)
    lines = (tmp_path / "mosquitto.conf").read_text().splitlines()
    assert f"autosave_interval {autosave}" in lines
    assert "persistence true" in lines
    assert {"max_queued_messages 0", "max_queued_bytes 0"} <= set(lines)
    site = SITE.model_copy(update={"mqtt_profile": chosen, "mqtt_users": ("device",)})
    write_state(tmp_path / "state.json", LocalState(sites={"tokyo": site}))
    known = LocalSites(tmp_path)
    Passwords(tmp_path / "secrets.json").keep("tokyo", {"device": SecretStr("word")})
    assert known.mqtt("tokyo", "device").keep_seconds == keep


def test_devices_keep_long_enough_for_two_saves() -> None:
    """Mosquitto saves one second after its interval, and a kill may cut the second save off; each may take 10 s."""
    for profile in Profile:
        assert not profile.keep_seconds or profile.keep_seconds > 2 * (profile.autosave + 1) + 2 * 10


def test_a_site_keeps_its_profile_until_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalSites(tmp_path)
    tools = Toolbox(tmp_path, (), (), "", mosquitto.Programs(tmp_path, tmp_path, ""))
    monkeypatch.setattr(local, "toolbox", lambda _tell: tools)
    monkeypatch.setattr(local, "_run", lambda _starts: None)
    for told, then in ((None, "durable"), (Profile.FAST, "fast"), (None, "fast"), (Profile.DURABLE, "durable")):
        local.up([SiteSpec("tokyo", mqtt_profile=told)])
        assert read_state(tmp_path / "state.json").sites["tokyo"].mqtt_profile == then


def test_with_tls_there_is_no_listener_in_clear_text_and_java_has_both_compilers(tmp_path: Path) -> None:
    secure = SITE.model_copy(update={"tls": TlsFiles(ca="certs/ca.pem", issued=True)})
    text = kafka.server_properties(secure, SecretStr("controller-word"))
    assert "listener.security.protocol.map=CLIENT:SASL_SSL,CONTROLLER:SASL_SSL\n" in text
    assert "PLAINTEXT" not in text
    for listener in ("client", "controller"):
        assert f"listener.name.{listener}.ssl.keystore.location=keystore.pem\n" in text
    mosquitto.write_configuration(tmp_path, 20003, Profile.FAST, KeyPair(b"certificate", b"key"))
    configuration = (tmp_path / "mosquitto.conf").read_text(encoding="utf-8")
    assert f"certfile {tmp_path}/server.pem\n" in configuration
    assert configuration.count("listener ") == 1
    assert (tmp_path / "server.key").stat().st_mode & 0o777 == 0o600
    plain, both = (kafka.command(Path("java"), [], tmp_path, tls=tls) for tls in (False, True))
    assert set(plain) - set(both) == {"-XX:TieredStopAtLevel=1"}  # which makes AES twenty times slower
