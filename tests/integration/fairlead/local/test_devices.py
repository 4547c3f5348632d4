"""Devices at a real Mosquitto: each can publish on its own topics only, whatever it tries."""

from __future__ import annotations

import queue
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from pydantic import SecretStr

from fairlead.local import mosquitto, ports, processes
from fairlead.local.devices import DeviceBook, MqttDevice
from fairlead.local.mosquitto import give_devices, without_user
from fairlead.local.registry import LocalSite
from fairlead.local.state import LocalState, Profile, SiteState, locked, read_state, write_state
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration
BOX, OTHER, SHIP, TERMINAL, OFFICE = "BIGU1000010", "BIGU1000026", "9074729", "terminal-tokyo", "office-tokyo"
DEVICES = (BOX, OTHER, SHIP, TERMINAL, OFFICE)
SERVICES = {name: SecretStr(f"password-of-{name}") for name in ("bridge", "device")}
REFUSED = "Not authorized"
TAKEN = ("Success", "No matching subscribers")  # reason code of an MQTT 5 PUBACK


def readings(box: str) -> str:
    return f"fairlead/v1/containers/{box}/readings"


class Client:
    """One MQTT connection that records its events."""

    def __init__(self, port: int, user: str | None, password: str | None, *, version: int = 5, name: str = "") -> None:
        self.came: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.answers: dict[int, str] = {}
        self.login: str | None = None
        self._news = threading.Condition()
        self.ended = False
        self._subscribed = 0
        self._paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=name,
            protocol=paho.MQTTv5 if version == 5 else paho.MQTTv311,
            reconnect_on_failure=False,
        )
        if user is not None:
            self._paho.username_pw_set(user, password)
        self._paho.on_message = lambda _c, _u, m: self.came.put((m.topic, bytes(m.payload)))
        self._paho.on_connect = lambda _c, _u, _f, reason, _p: self._note(login=str(reason))
        self._paho.on_disconnect = lambda *_: self._note(ended=True)
        self._paho.on_subscribe = lambda *_: self._note(subscribed=1)
        self._paho.on_publish = lambda _c, _u, mid, reason, _p: self._note(answer=(mid, str(reason)))
        self._paho.connect("127.0.0.1", port)
        self._paho.loop_start()
        self.until(lambda: self.login is not None or self.ended)

    def _note(
        self,
        *,
        login: str | None = None,
        ended: bool = False,
        subscribed: int = 0,
        answer: tuple[int, str] | None = None,
    ) -> None:
        with self._news:
            self.login = login or self.login
            self.ended = ended or self.ended
            self._subscribed += subscribed
            if answer is not None:
                self.answers[answer[0]] = answer[1]
            self._news.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(condition, PATIENCE)

    def publish(self, topic: str, payload: bytes = b"x") -> str:
        """Publish with QoS 1; return the reason code of the PUBACK, or ``ended`` when there was none."""
        mid = self._paho.publish(topic, payload, 1).mid
        self.until(lambda: mid in self.answers or self.ended)
        return self.answers.get(mid, "ended")

    def subscribe(self, *topics: str) -> None:
        """Subscribe; return when the broker has answered."""
        before = self._subscribed
        self._paho.subscribe([(topic, 1) for topic in topics])
        self.until(lambda: self._subscribed > before)

    def close(self) -> None:
        self._paho.disconnect()
        self._paho.loop_stop()
        # Without callbacks the client is in no reference cycle, and closes its sockets with the last reference.
        client = self._paho
        client.on_message = client.on_connect = client.on_disconnect = client.on_subscribe = client.on_publish = None


@dataclass
class Broker:
    """A local site where only Mosquitto runs."""

    folder: Path
    port: int
    devices: dict[str, MqttDevice]
    clients: list[Client] = field(default_factory=list)

    @property
    def book(self) -> DeviceBook:
        return DeviceBook(self.folder / "devices.json")

    @property
    def site(self) -> LocalSite:
        return LocalSite(self.folder, "tokyo")

    def tell(self) -> None:
        with locked(self.folder):
            self.devices = self.book.read()
            assert give_devices(self.folder, "tokyo", list(self.devices.values()))

    def client(self, user: str | None, password: str | None = None, *, version: int = 5, name: str = "") -> Client:
        secret = SERVICES.get(user or "") or (self.devices[user].password if user in self.devices else None)
        made = Client(
            self.port, user, password or (secret.get_secret_value() if secret else None), version=version, name=name
        )
        self.clients.append(made)
        return made

    def log_in(self, user: str | None, password: str | None) -> str | None:
        """Return the broker's answer to exactly these credentials."""
        made = Client(self.port, user, password)
        self.clients.append(made)
        return made.login

    def until_known(self, *users: str) -> None:
        """Wait until the broker uses its new files, a moment after the signal to reload them."""
        end = time.monotonic() + PATIENCE
        for user in users:
            while self.client(user).login != "Success":
                assert time.monotonic() < end


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("mqtt")
    broker = Broker(folder, ports.choose_ports(1, taken=[])[0], {})
    site, programs = broker.site, mosquitto.find_mosquitto()
    made = broker.book.enrol(DEVICES, "2026-03-01T00:00:00+00:00")
    assert not give_devices(folder, "tokyo", list(made.values())), "it does not run yet"
    mosquitto.write_configuration(site.mosquitto_folder, broker.port, Profile.DURABLE)
    mosquitto.write_users(site.mosquitto_folder, SERVICES, programs)
    state = SiteState(
        kafka_port=1, controller_port=2, mqtt_port=broker.port, cluster_id="x", mqtt_users=tuple(SERVICES)
    )
    write_state(folder / "state.json", LocalState(sites={"tokyo": state}))
    processes.start(
        site.pid_file("mqtt"),
        mosquitto.command(programs, site.mosquitto_folder),
        cwd=site.mosquitto_folder,
        log=site.mosquitto_folder / "mosquitto.log",
        marker=mosquitto.marker(site.mosquitto_folder),
        version=programs.version,
    )
    end = time.monotonic() + PATIENCE
    while not ports.accepts(broker.port):
        assert time.monotonic() < end
        time.sleep(0.01)  # Mosquitto sends no event for this
    yield broker
    processes.stop([site.pid_file("mqtt")])


@pytest.fixture
def broker(running: Broker) -> Iterator[Broker]:
    """Run the broker with the five devices, in the same state for each test."""
    running.book.enrol(DEVICES, "2026-03-01T00:00:00+00:00")
    running.tell()
    running.until_known(*running.devices)
    yield running
    for client in running.clients:
        client.close()
    running.clients.clear()


class Bridge:
    """The bridge's side: receives every message that the broker accepts."""

    def __init__(self, broker: Broker) -> None:
        self._client, self._gateway = broker.client("bridge"), broker.client("device")
        self._client.subscribe("fairlead/#", "$SYS/broker/version")

    def got(self) -> list[tuple[str, bytes]]:
        """Return the messages since the last call; the gateway's barrier message shows that all earlier ones have
        arrived.
        """
        assert self._gateway.publish("fairlead/v1/barrier") == "Success"
        found: list[tuple[str, bytes]] = []
        while (message := self._client.came.get(timeout=PATIENCE))[0] != "fairlead/v1/barrier":
            found.append(message)
        return [message for message in found if not message[0].startswith("$SYS")]


@pytest.mark.parametrize(
    ("user", "topics"),
    [
        (BOX, [readings(BOX)]),
        (SHIP, [f"fairlead/v1/ships/{SHIP}/position", f"fairlead/v1/ships/{SHIP}/environment"]),
        (TERMINAL, ["fairlead/v1/events"]),
        (OFFICE, ["fairlead/v1/bookings"]),
    ],
)
@pytest.mark.parametrize("version", [5, 3])
def test_a_device_publishes_on_its_own_topics(broker: Broker, user: str, topics: list[str], version: int) -> None:
    bridge, device = Bridge(broker), broker.client(user, version=version)
    assert [device.publish(topic, b"own") for topic in topics] == ["Success"] * len(topics)
    assert bridge.got() == [(topic, b"own") for topic in topics]


@pytest.mark.parametrize(
    ("user", "topic"),
    [
        (BOX, readings(OTHER)),
        (BOX, f"fairlead/v1/ships/{SHIP}/position"),
        (BOX, f"fairlead/v1/containers/{BOX}"),
        (BOX, f"fairlead/v1/containers/{BOX}/readings/more"),
        (BOX, f"fairlead/v1/containers/{BOX}/commands"),
        (BOX, "fairlead/v1/events"),
        (BOX, "fairlead/v1/bookings"),
        (BOX, f"fairlead/v1/replays/5/{readings(OTHER)}"),
        (BOX, f"fairlead/v1/replays/5/{readings(BOX)}"),
        (BOX, "fairlead/other"),
        (BOX, "$SYS/broker/publish/messages/dropped"),
        (BOX, "$CONTROL/dynamic-security/v1"),
        (BOX, f"/{readings(BOX)}"),
        (SHIP, "fairlead/v1/ships/9321483/position"),
        (SHIP, readings(BOX)),
        (SHIP, "fairlead/v1/events"),
        (TERMINAL, readings(BOX)),
        (TERMINAL, "fairlead/v1/events/more"),
        (TERMINAL, "fairlead/v1/bookings"),
        (TERMINAL, "fairlead/v1/replays/5/fairlead/v1/bookings"),
        (OFFICE, "fairlead/v1/events"),
        (OFFICE, readings(BOX)),
        (OFFICE, "fairlead/v1/bookings/more"),
        (OFFICE, "fairlead/v1/replays/5/fairlead/v1/bookings"),
        ("device", "fairlead/other"),
    ],
)
def test_on_no_other_topic_does_anything_get_in(broker: Broker, user: str, topic: str) -> None:
    """A message on any other topic is not delivered."""
    bridge = Bridge(broker)
    assert broker.client(user).publish(topic, b"spoofed") in (REFUSED, "ended")
    broker.client(user, version=3).publish(topic, b"spoofed")  # MQTT 3.1.1 cannot report the refusal
    assert bridge.got() == []


def test_mqtt_5_says_that_it_was_refused(broker: Broker) -> None:
    """With MQTT 5, a refused publish is answered with that reason."""
    assert broker.client(BOX).publish(readings(OTHER)) == REFUSED


def test_a_last_will_is_no_way_round(broker: Broker) -> None:
    """A last will cannot be used to publish on other topics."""
    bridge = Bridge(broker)
    device = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv311)
    device.username_pw_set(BOX, broker.devices[BOX].password.get_secret_value())
    device.will_set("fairlead/v1/events", b"spoofed", 1)
    device.connect("127.0.0.1", broker.port)
    while not device.is_connected():
        assert device.loop(1.0) == paho.MQTT_ERR_SUCCESS
    sock = device.socket()
    assert isinstance(sock, socket.socket)
    sock.shutdown(socket.SHUT_RDWR)  # no DISCONNECT, so that the broker publishes the will
    assert bridge.got() == []


@pytest.mark.parametrize("user", [BOX, SHIP, TERMINAL, OFFICE])
def test_a_device_hears_nothing(broker: Broker, user: str) -> None:
    """A device cannot receive any message."""
    spy, gateway = broker.client(user), broker.client("device")
    spy.subscribe("#", "+/#", "$SYS/#", "fairlead/#", readings(OTHER), readings(BOX), "fairlead/v1/+/+/readings")
    for topic in (readings(OTHER), readings(BOX), "fairlead/v1/events"):
        assert gateway.publish(topic) in TAKEN
    spy.subscribe("fairlead/v1/nothing")  # answered after all earlier messages are delivered
    assert spy.came.empty()


def test_a_device_that_guesses_at_the_bridges_sessions_takes_nothing_from_them(broker: Broker) -> None:
    """A device that guesses the bridge's client id takes nothing from its session.

    Mosquitto 2.0 lets any user use any client id; only its unknown name protects the bridge's session.
    """
    session = mosquitto.bridge_session(broker.site.mosquitto_folder)
    assert session is not None
    bridge = broker.client("bridge", version=3, name=session)
    bridge.subscribe("fairlead/v1/#")
    for guess in ("fairlead-bridge-tokyo", "fairlead-bridge-tokyo-"):
        broker.client(OTHER, version=3, name=guess)
    device = broker.client(BOX)
    for number in range(20):
        assert device.publish(readings(BOX), b"%d" % number) == "Success"
    assert [bridge.came.get(timeout=PATIENCE)[1] for _ in range(20)] == [b"%d" % number for number in range(20)]
    assert not bridge.ended


def test_who_does_not_get_in(broker: Broker) -> None:
    """Wrong credentials are refused."""
    own = broker.devices[BOX].password.get_secret_value()
    for user, password in (
        (None, None),
        (BOX, "guessed"),
        (BOX, None),
        (OTHER, own),
        (BOX.lower(), own),
        (f"{BOX} ", own),
        ("+", own),
        ("#", own),
        (f"{BOX}/readings", own),
        ("bridge", own),
        ("device", own),
        ("BIGU1000031", own),
        (BOX, broker.devices[BOX].hash),
    ):
        assert broker.log_in(user, password) == REFUSED, user


def test_a_packet_that_is_too_large_ends_the_connection_and_nobody_elses(broker: Broker) -> None:
    bridge, device, other = Bridge(broker), broker.client(BOX), broker.client(OTHER)
    assert device.publish(readings(BOX), bytes(5 << 20)) != "Success"
    device.until(lambda: device.ended)
    assert other.publish(readings(OTHER)) == "Success"
    assert bridge.got() == [(readings(OTHER), b"x")]


def test_a_thousand_log_ins_keep_nobody_out(broker: Broker) -> None:
    bridge, device = Bridge(broker), broker.client(OTHER)
    for number in range(1000):
        with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as sock:
            sock.sendall(_connect(f"attack-{number}", BOX, f"guess-{number}"))
            assert sock.recv(4) == b"\x20\x02\x00\x05", "refused"
    assert device.publish(readings(OTHER)) == "Success"
    assert broker.client(BOX).login == "Success"
    assert bridge.got() == [(readings(OTHER), b"x")]


def _connect(name: str, user: str, password: str) -> bytes:
    """Return a CONNECT packet of MQTT 3.1.1."""
    fields = b"".join(len(text).to_bytes(2, "big") + text.encode() for text in (name, user, password))
    body = b"\x00\x04MQTT\x04\xc2\x00\x3c" + fields
    return b"\x10" + bytes([len(body)]) + body


def test_a_removed_device_is_cut_off_at_once_and_others_stay(broker: Broker) -> None:
    """A removed device is disconnected at once, and others stay connected."""
    gone, gone3, stays, bridge = (
        broker.client(BOX),
        broker.client(BOX, version=3),
        broker.client(OTHER),
        Bridge(broker),
    )
    password = broker.devices[BOX].password.get_secret_value()
    assert broker.book.remove([BOX, BOX]) == (BOX,)
    broker.tell()
    gone.until(lambda: gone.ended)
    gone3.until(lambda: gone3.ended)
    assert broker.log_in(BOX, password) == REFUSED
    assert stays.publish(readings(OTHER)) == "Success"
    assert bridge.got() == [(readings(OTHER), b"x")]


def test_a_new_password_ends_what_the_old_one_had_opened(broker: Broker) -> None:
    """A new password ends the connections opened with the old one."""
    before, stays = broker.client(BOX), broker.client(OTHER)
    old = broker.devices[BOX].password.get_secret_value()
    broker.book.enrol([BOX], "2026-03-02T00:00:00+00:00", renew=True)
    broker.tell()
    before.until(lambda: before.ended)
    assert broker.log_in(BOX, old) == REFUSED
    assert broker.client(BOX).publish(readings(BOX)) in TAKEN
    assert stays.publish(readings(OTHER)) in TAKEN


def test_the_services_files_are_written_anew_and_devices_stay(broker: Broker) -> None:
    mosquitto.write_users(broker.site.mosquitto_folder, SERVICES, mosquitto.find_mosquitto())
    broker.tell()
    assert broker.client(BOX).publish(readings(BOX)) in TAKEN
    assert broker.client("device").publish("fairlead/v1/events") in TAKEN
    for name in ("passwd", "acl", "devices"):
        file = broker.site.mosquitto_folder / name
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert not [d for d in broker.devices.values() if d.password.get_secret_value() in file.read_text()]


def test_the_gateway_is_switched_off(broker: Broker) -> None:
    gateway, device = broker.client("device"), broker.client(BOX)
    before = read_state(broker.folder / "state.json")
    with locked(broker.folder):
        without_user(broker.folder, "tokyo", "device")
    gateway.until(lambda: gateway.ended)
    try:
        assert broker.log_in("device", "password-of-device") == REFUSED
        assert device.publish(readings(BOX)) in TAKEN
        assert read_state(broker.folder / "state.json").sites["tokyo"].mqtt_users == ("bridge",)
    finally:
        write_state(broker.folder / "state.json", before)
        mosquitto.write_users(broker.site.mosquitto_folder, SERVICES, mosquitto.find_mosquitto())
        broker.tell()
        broker.until_known("device")
