"""A site with TLS sends nothing in clear text, and clients tell a trusted server from any other."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
import signal
from pathlib import Path

import psutil
import pytest

from edge.errors import MqttUntrustedError
from edge.ingest.replay import Publisher
from fairlead.certs.authority import issue, new_authority
from fairlead.certs.facts import facts, load
from fairlead.certs.trust import KeyPair, TrustError, served
from fairlead.errors import ConfigurationError, FairleadError, RefusedError, UntrustedError
from fairlead.home import restart_command
from fairlead.kafka.admin import create_logs, require_answer
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.kafka.protocol.errors import AuthenticationFailed, ConnectionLost
from fairlead.local import mosquitto, processes
from fairlead.local.registry import LocalSite
from simulators.voyage.sender import MqttSender
from tests.integration.tls.conftest import SITE, Secure
from tests.integration.tls.elsewhere import relay
from tests.support.edge.fleet import until
from tests.support.logins import answer
from tests.support.mqtt_sessions import end_session
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration


async def test_every_port_speaks_tls_and_there_are_no_others(secure: Secure) -> None:
    pids = secure.local.status()[SITE].pids.values()
    listening = {
        connection.laddr.port
        for pid in pids
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == set(secure.state.ports)
    for port in listening:
        assert "127.0.0.1" in facts(served("127.0.0.1", port)).names


async def test_nobody_gets_in_without(secure: Secure) -> None:
    """Clients without TLS get no answer; a client without the site's authority distrusts its certificate."""
    plain = dataclasses.replace(secure.kafka(), tls=False, tls_ca=None)
    for port in (secure.state.kafka_port, secure.state.controller_port):
        there = dataclasses.replace(plain, bootstrap=(("127.0.0.1", port),))
        with pytest.raises(ConnectionLost):
            await Cluster.open(there, client_id="plain", request_timeout=PATIENCE)
    assert mosquitto.log_in(dataclasses.replace(secure.mqtt(), tls=False, tls_ca=None)) is None
    with pytest.raises(UntrustedError, match="not signed by the authorities"):
        mosquitto.log_in(dataclasses.replace(secure.mqtt(), tls_ca=None))  # trusts other authorities
    assert answer(secure.mqtt()) == "Success"


async def test_all_clients_work_with_it(secure: Secure) -> None:
    create_logs(secure.kafka(), {"test.one": {}})
    async with await Cluster.open(secure.kafka(), client_id="test") as cluster:
        await cluster.wait_writable(["test.one"])
        shown = facts(served("127.0.0.1", secure.state.kafka_port))
        assert cluster.pool.certificate_ends == shown.expires.timestamp()
    end_session(secure.mqtt(), "test-visit")
    publisher = Publisher(secure.mqtt("device"))
    publisher.open()
    publisher.close()


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """Return a certificate authority that has signed none of the sites' certificates."""
    file = tmp_path / "stranger.pem"
    file.write_bytes(new_authority("stranger").certificate)
    return file


async def refused_everywhere(kafka: KafkaEndpoint, mqtt: MqttEndpoint, words: str) -> None:
    """Check that each kind of client reports the reason at once."""
    with pytest.raises(AuthenticationFailed, match=words):
        await Cluster.open(kafka, client_id="test")
    with pytest.raises(UntrustedError, match=words):
        await asyncio.to_thread(require_answer, kafka)
    await refused_by_mqtt(mqtt, words)


async def refused_by_mqtt(mqtt: MqttEndpoint, words: str) -> None:
    with pytest.raises(MqttUntrustedError, match=words):
        await asyncio.to_thread(end_session, mqtt, "test-visit")
    with pytest.raises(UntrustedError, match=words):
        await asyncio.to_thread(Publisher(mqtt).open)
    async with MqttSender(mqtt, "test-sender") as sender:
        sender.send("fairlead/v1/barrier", b"never")
        with pytest.raises(RefusedError, match=words):
            await asyncio.wait_for(sender.flush(), PATIENCE)


async def test_another_authority(secure: Secure, stranger: Path) -> None:
    """Clients refuse a certificate of another authority."""
    kafka = dataclasses.replace(secure.kafka(), tls_ca=stranger)
    mqtt = dataclasses.replace(secure.mqtt(), tls_ca=stranger)
    await refused_everywhere(kafka, mqtt, r"its certificate is not signed by the authorities in .*stranger\.pem")


async def test_another_name(secure: Secure) -> None:
    """Clients refuse a certificate for another name."""
    async with relay(secure.state.kafka_port) as by_kafka, relay(secure.state.mqtt_port) as by_mqtt:
        ((host, port),) = by_mqtt.addresses.values()
        kafka = dataclasses.replace(secure.kafka(), bootstrap=tuple(by_kafka.addresses.values()))
        mqtt = dataclasses.replace(secure.mqtt(), host=host, port=port)
        await refused_everywhere(kafka, mqtt, r"its certificate is for other names than 127\.0\.0\.2")


async def test_an_authority_that_is_gone(secure: Secure, tmp_path: Path) -> None:
    """If the file of trusted authorities is missing, the error names it."""
    gone = tmp_path / "gone.pem"
    with pytest.raises(AuthenticationFailed, match=r"gone\.pem.* cannot be used: No such file"):
        await Cluster.open(dataclasses.replace(secure.kafka(), tls_ca=gone), client_id="test")
    with pytest.raises(TrustError, match=r"gone\.pem"):
        require_answer(dataclasses.replace(secure.kafka(), tls_ca=gone))
    with pytest.raises(TrustError, match=r"gone\.pem"):
        end_session(dataclasses.replace(secure.mqtt(), tls_ca=gone), "test")


async def test_one_that_has_expired(secure: Secure) -> None:
    """Clients refuse Mosquitto's expired certificate. Kafka would not start with one; its client's tests cover that."""
    folder = LocalSite(secure.local.folder, SITE).mosquitto_folder
    authority = load(secure.certificates.folder / "authority.pem", secure.certificates.folder / "authority.key")
    begun = dt.datetime.now(dt.UTC) - dt.timedelta(days=40)
    good = load(folder / "server.pem", folder / "server.key")
    try:
        await shows(secure, issue(authority, "mqtt", ["127.0.0.1"], days=30, now=begun))
        await refused_by_mqtt(secure.mqtt(), "its certificate, or its authority's, has expired")
        told = (await asyncio.to_thread(secure.told, "status"))["sites"][0]
        (mqtt,) = (each for each in told["certificates"] if each["service"] == "mqtt")
        assert (mqtt["days"], mqtt["warning"]) == (-11, "expired")
        said = (await asyncio.to_thread(secure.run, "status")).stdout
        assert "certificate of mqtt has expired" in said and restart_command(secure.local.folder, SITE) in said
    finally:
        await shows(secure, good)
    assert answer(secure.mqtt()) == "Success"


async def shows(secure: Secure, pair: KeyPair) -> None:
    """Give Mosquitto another certificate, and wait until it presents it."""
    local, state = LocalSite(secure.local.folder, SITE), secure.state
    mosquitto.write_configuration(local.mosquitto_folder, state.mqtt_port, state.mqtt_profile, pair)
    processes.send(local.pid_file("mqtt"), signal.SIGHUP)
    wanted = facts(pair.certificate).serial
    await until(lambda: facts(served("127.0.0.1", state.mqtt_port)).serial == wanted, what="another certificate")


def test_status_and_show_tell_when_it_ends(secure: Secure) -> None:
    """``status`` and ``certs show`` tell in how many days each certificate expires, and show no private key."""
    (site,) = secure.told("status")["sites"]
    found = {each["service"]: each for each in site["certificates"]}
    assert set(found) == {"kafka", "mqtt", "authority"}
    assert all(found[service]["days"] == 364 and found[service]["warning"] is None for service in ("kafka", "mqtt"))
    assert found["kafka"]["address"] == f"127.0.0.1:{secure.state.kafka_port}"
    assert "364 d" in secure.run("status").stdout
    told = {(each["site"], each["service"]): each for each in secure.told("certs", "show")["certificates"]}
    for service in ("kafka", "mqtt"):
        assert told[SITE, service]["serial"] == found[service]["serial"]
        assert {"127.0.0.1", "localhost", SITE, f"{service}.{SITE}"} <= set(told[SITE, service]["names"])
    everything = json.dumps(list(told.values())) + secure.run("certs", "show").stdout
    assert "PRIVATE" not in everything


def test_a_running_site_stays_as_it_is(secure: Secure) -> None:
    """``up --no-tls`` is refused while the site runs with TLS, and ``up`` changes nothing."""
    with pytest.raises(ConfigurationError, match="runs with TLS, and that cannot change while it runs"):
        secure.run("up", "--no-tls")
    before = secure.local.status()[SITE].pids
    assert secure.run("up").exit_code == 0
    assert secure.local.status()[SITE].pids == before
    assert secure.state.tls is not None


def test_keys_are_their_owners(secure: Secure) -> None:
    """Only their owner can read the files of private keys."""
    keys = [file for file in secure.local.folder.rglob("*") if file.suffix == ".key" or file.name == "keystore.pem"]
    assert {"authority.key", "kafka.key", "mqtt.key", "server.key", "keystore.pem"} <= {file.name for file in keys}
    assert {file.stat().st_mode & 0o777 for file in keys} == {0o600}


def test_a_certificate_of_ones_own_is_tried_before_anything_starts(secure: Secure, tmp_path: Path) -> None:
    authority = new_authority("own")
    pair = issue(authority, "own", ["kafka.elsewhere.example"])
    for name, content in (("own.pem", pair.certificate), ("own.key", pair.key), ("ca.pem", authority.certificate)):
        (tmp_path / name).write_bytes(content)
    own = f"{{file: {tmp_path}/own.pem, key: {tmp_path}/own.key, ca: {tmp_path}/ca.pem}}"
    file = tmp_path / "own.yaml"
    file.write_text(f"name: own\nsites: {{lone: {{kind: datacentre, certificate: {own}}}}}\n", encoding="utf-8")
    with pytest.raises(FairleadError, match=r"own\.pem cannot serve lone at 127\.0\.0\.1: .* other names"):
        dataclasses.replace(secure, topology=file).run("up")
