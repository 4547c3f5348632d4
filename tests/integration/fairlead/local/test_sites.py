"""Running local sites are found again, completed and restarted, and refuse strangers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import resource
import secrets
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from kafka.record import MemoryRecords
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pydantic import SecretStr

from fairlead.errors import ConfigurationError, FairleadError, RefusedError, UnavailableError
from fairlead.jars import ensure_jars, find_java
from fairlead.kafka.admin import create_logs, delete_logs, require_answer
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local import formatting, mosquitto
from fairlead.local.passwords import Passwords
from fairlead.local.sites import LocalSites, SiteSpec
from tests.support.logins import answer
from tests.support.mqtt_sessions import end_session
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.long, pytest.mark.integration]
GAMMA = SiteSpec("gamma", ("bridge",))


def test_up_twice_leaves_running_sites_alone(gamma: LocalSites) -> None:
    before = gamma.status()["gamma"]
    said: list[tuple[str, str]] = []
    gamma.up([GAMMA], on_progress=lambda site, text: said.append((site, text)))
    after = gamma.status()["gamma"]
    assert after == before
    assert after.kafka_up and after.mqtt_up
    assert (after.kafka_version, after.mosquitto_version.partition(".")[0]) == ("4.3.1", "2")
    assert said == [("gamma", "ready")]


def test_users_that_come_later(gamma: LocalSites) -> None:
    """Users can be added to a running site; existing ones stay."""
    with pytest.raises(FairleadError, match="named 'late'"):
        gamma.kafka("gamma", "late")
    gamma.up([SiteSpec("gamma", ("late",), ("bridge", "device", "crane"))])
    require_answer(gamma.kafka("gamma", "late"))
    require_answer(gamma.kafka("gamma", "bridge"))  # not named this time, and still there
    assert answer(gamma.mqtt("gamma", "crane")) == "Success"


def test_only_the_super_user_may_do_anything(gamma: LocalSites) -> None:
    with pytest.raises(RefusedError, match=r"did not let bridge create test\.forbidden: TOPIC_AUTHORIZATION_FAILED"):
        create_logs(gamma.kafka("gamma", "bridge"), {"test.forbidden": {}})


def test_mosquitto_refuses_a_wrong_password(gamma: LocalSites) -> None:
    mqtt = dataclasses.replace(gamma.mqtt("gamma", "device"), password=SecretStr("wrong-password"))
    assert answer(mqtt) == "Not authorized"


def test_a_process_with_many_open_files_is_served(gamma: LocalSites) -> None:
    """Clients work in a process with many open files: ``select`` cannot handle file descriptors from 1024 on."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most) if few < 4096 else (few, most))
    with contextlib.ExitStack() as held, open(os.devnull, "rb") as first:  # noqa: PTH123 - no file of ours
        for _ in range(1100):
            held.callback(os.close, os.dup(first.fileno()))
        assert mosquitto.log_in(gamma.mqtt("gamma", "device")) == "Success"
        end_session(gamma.mqtt("gamma", "bridge"), "test-many-files")


def test_nobody_there_is_said_with_the_address(gamma: LocalSites) -> None:
    """An error about an unreachable site contains its address."""
    nobody = dataclasses.replace(gamma.kafka("gamma", "admin"), bootstrap=(("127.0.0.1", 1),))
    with pytest.raises(UnavailableError, match=r"(?s)did not answer when admin.*127\.0\.0\.1:1"):
        require_answer(nobody, timeout=2)


def test_logs_are_made_once_and_deleted(gamma: LocalSites) -> None:
    admin = gamma.kafka("gamma", "admin")
    names = {f"test.many-{n}": {"retention.ms": "60000"} for n in range(260)}  # more than one request
    assert create_logs(admin, names) == set(names)
    assert create_logs(admin, {**names, "test.one-more": {}}) == {"test.one-more"}
    with pytest.raises(FairleadError, match=r"(?s)INVALID_CONFIG.*nonsense"):
        create_logs(admin, {"test.bad": {"nonsense": "1"}})
    assert delete_logs(admin, [*names, "test.one-more", "test.never"]) == {*names, "test.one-more"}


def test_a_device_publishes_and_the_bridge_reads(gamma: LocalSites) -> None:
    assert _publish_and_read(gamma, publisher="device", reader="bridge") == b"21.5"


@pytest.mark.parametrize(("publisher", "reader"), [("bridge", "bridge"), ("device", "device")])
def test_no_other_way_round(gamma: LocalSites, publisher: str, reader: str) -> None:
    """A device cannot subscribe, and the bridge's user cannot publish in its place."""
    assert _publish_and_read(gamma, publisher=publisher, reader=reader) is None


def test_a_killed_broker_comes_back_with_its_data(gamma: LocalSites) -> None:
    admin = gamma.kafka("gamma", "admin")
    create_logs(admin, {"test.kept": {}})
    before = gamma.status()["gamma"]
    gamma.kill("gamma")
    assert (gamma.status()["gamma"].kafka_up, gamma.status()["gamma"].mqtt_up) == (False, True)
    gamma.up([GAMMA])
    after = gamma.status()["gamma"]
    assert after.kafka_up
    assert after.kafka_port == before.kafka_port
    assert (after.pids["mqtt"], after.pids["kafka"]) != (before.pids["mqtt"], before.pids["kafka"])
    assert after.pids["mqtt"] == before.pids["mqtt"]
    assert create_logs(admin, {"test.kept": {}}) == set()


@pytest.mark.parametrize("what", ["kafka", "mqtt"])
def test_restart(gamma: LocalSites, what: str) -> None:
    before = gamma.status()["gamma"].pids
    gamma.restart("gamma", "kafka" if what == "kafka" else "mqtt")
    after = gamma.status()["gamma"].pids
    assert {name for name in after if after[name] != before[name]} == {what}


def test_the_admins_password_stays_while_there_is_data(gamma: LocalSites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_SECRET_GAMMA_ADMIN", "something else")
    with pytest.raises(ConfigurationError, match="FAIRLEAD_SECRET_GAMMA_ADMIN"):
        gamma.up([GAMMA])


def test_another_users_password_may_come_from_the_environment(
    gamma: LocalSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_SECRET_GAMMA_BRIDGE", "from the environment")
    gamma.up([GAMMA])
    endpoint = gamma.kafka("gamma", "bridge")
    assert endpoint.password == SecretStr("from the environment")
    require_answer(endpoint)
    assert answer(gamma.mqtt("gamma", "bridge")) == "Success"


def test_a_site_from_before_gets_a_password_of_the_bridge_for_mqtt_alone(gamma: LocalSites) -> None:
    """A site created by an older Fairlead gets a separate MQTT password for the bridge."""
    kafka, device, folder = gamma.kafka("gamma", "bridge"), gamma.mqtt("gamma", "device"), gamma.folder
    assert kafka.password is not None and device.password is not None
    old = dataclasses.replace(gamma.mqtt("gamma", "bridge"), password=kafka.password)
    assert answer(old) == "Not authorized"
    users = {"bridge": kafka.password, "device": device.password}  # as an older Fairlead set it
    mosquitto.write_users(folder / "sites" / "gamma" / "mosquitto", users, mosquitto.find_mosquitto())
    Passwords(folder / "secrets.json").forget_user("gamma", "bridge-mqtt")
    os.kill(gamma.status()["gamma"].pids["mqtt"], signal.SIGHUP)
    mosquitto.wait_taken(old)
    with pytest.raises(UnavailableError, match="fairlead up gamma"):
        gamma.mqtt("gamma", "bridge")

    gamma.up([GAMMA])
    new = gamma.mqtt("gamma", "bridge")
    assert new.password not in (None, kafka.password)
    assert (answer(new), answer(old)) == ("Success", "Not authorized")
    require_answer(kafka)


def test_the_feature_levels_are_those_of_the_jars(tmp_path: Path) -> None:
    """The feature levels in use are those that StorageTool sets, so that a new Kafka cannot be formatted as an old
    one."""
    (tmp_path / "server.properties").write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\n"
        f"controller.listener.names=C\nlisteners=C://127.0.0.1:1,B://127.0.0.1:2\nlog.dirs={tmp_path}/data\n"
        "listener.security.protocol.map=C:PLAINTEXT,B:PLAINTEXT\ninter.broker.listener.name=B\n"
    )
    classpath = ":".join(map(str, ensure_jars("kafka")))
    tool = [str(find_java()), "-XX:TieredStopAtLevel=1", "-cp", classpath, "kafka.tools.StorageTool"]
    command = [*tool, "format", "-t", formatting.kafka_uuid(), "-c", str(tmp_path / "server.properties")]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - Kafka's own tool
    theirs, ours = tmp_path / "data" / "bootstrap.checkpoint", formatting.bootstrap_checkpoint({})
    assert _values(theirs.read_bytes()) == _values(ours)


def _values(checkpoint: bytes) -> set[bytes]:
    records, found = MemoryRecords(checkpoint), set()
    while records.has_next():
        batch = records.next_batch()
        found |= set() if batch.is_control_batch else {record.value for record in batch}
    return found


def _publish_and_read(local: LocalSites, *, publisher: str, reader: str) -> bytes | None:
    """Publish as one user to a topic that another has subscribed to. Return the payload that arrived, or None.

    The subscriber's session outlives its connection, which may end on a busy machine.
    """
    done: dict[str, queue.Queue[bytes]] = {kind: queue.Queue() for kind in ("subscribed", "published", "message")}

    def connect(user: str) -> paho.Client:
        endpoint = local.mqtt("gamma", user)
        connected = threading.Event()
        client = paho.Client(CallbackAPIVersion.VERSION2, f"test-{secrets.token_hex(8)}", protocol=paho.MQTTv5)
        assert endpoint.password is not None
        client.username_pw_set(endpoint.user, endpoint.password.get_secret_value())
        client.on_connect = lambda *_: connected.set()
        client.on_subscribe = lambda *_: done["subscribed"].put(b"")
        client.on_publish = lambda *_: done["published"].put(b"")
        client.on_message = lambda _c, _u, message: done["message"].put(bytes(message.payload))
        kept = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        kept.SessionExpiryInterval = int(PATIENCE) * 3
        client.connect(endpoint.host, endpoint.port, clean_start=False, properties=kept)
        client.loop_start()
        assert connected.wait(PATIENCE)
        return client

    clients: list[paho.Client] = []
    try:
        clients += (connect(user) for user in (reader, publisher, "device"))
        subscriber, sender, device = clients
        subscriber.subscribe("fairlead/v1/#", qos=1)
        done["subscribed"].get(timeout=PATIENCE)
        sender.publish("fairlead/v1/containers/CSQU3054383/readings", b"21.5", qos=1)
        done["published"].get(timeout=PATIENCE)
        device.publish("fairlead/v1/barrier", b"barrier", qos=1)  # arrives later, at users that may read
        done["published"].get(timeout=PATIENCE)
        if reader != "bridge":
            # The broker answers a second SUBSCRIBE after it has delivered all earlier messages.
            subscriber.subscribe("fairlead/v1/#", qos=1)
            done["subscribed"].get(timeout=PATIENCE)
            return None if done["message"].empty() else done["message"].get()
        payload = done["message"].get(timeout=PATIENCE)
        return None if payload == b"barrier" else payload
    finally:
        for client in clients:
            client.disconnect()
            client.loop_stop()


def test_a_new_log_is_writable(new_log: Callable[..., str], kafka: Callable[..., KafkaEndpoint]) -> None:
    topic = new_log("alpha")
    assert topic != new_log("alpha")
    assert new_log("beta", name="test.named", **{"retention.ms": "1000"}) == "test.named"
    assert create_logs(kafka("alpha"), {topic: {}}) == set()
