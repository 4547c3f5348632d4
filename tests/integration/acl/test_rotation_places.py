"""Rotation in less simple places: three brokers, or a Mosquitto that Fairlead did not start.

Brokers require a new login every two seconds, as in ``test_rotation``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from acl.apply import apply_topology
from edge.bridge import Bridge
from fairlead.cli.commands.acl import app as acl_command
from fairlead.cli.commands.bridge import make_bridge
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.local import mosquitto, ports
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.local.state import Profile
from tests.integration.acl.conftest import PROPERTIES
from tests.support.edge.fleet import Publisher, until
from tests.support.edge.samples import reading, readings_topic
from tests.support.logins import accepts, answer
from tests.support.sites import NewSites
from tests.support.waits import PATIENCE
from topologies.context import Context, open_topology
from topologies.endpoints import SECRETS_FOLDER
from topologies.users import ADMIN, service_users

pytestmark = [
    pytest.mark.long,
    pytest.mark.integration,
    pytest.mark.processes("the command gives the bridge's new password to a Mosquitto of this machine"),
]
PORT, BOX = "port", "BIGU1000010"
TOPOLOGY = f"""
name: rotation-places
sites:
  {PORT}: {{kind: port, unlocode: JPTYO}}
streams:
  containers: {{insert_point: moves, owners: [BIGU]}}
"""


@dataclass(frozen=True)
class Place:
    """One site of three brokers."""

    context: Context
    local: LocalSites
    home: Path

    def rotate(self, user: str, file: Path | None = None) -> dict[str, str | None]:
        """Rotate by the command; return its result for the site."""
        source = str(file or self.context.source)
        result = CliRunner().invoke(
            acl_command.app, ["rotate", user, "--yes", "--site", PORT, "--json", "--topology", source]
        )
        assert result.exit_code == 0, result.exception
        (said,) = json.loads(result.stdout)
        return dict(said)

    def kafka(self, user: str) -> KafkaEndpoint:
        return self.context.resolver.kafka(PORT, user)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, new_sites: NewSites) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("places")
    file = home / "places.yaml"
    file.write_text(TOPOLOGY, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRLEAD_HOME", str(home))
        context = open_topology(str(file))
        local = new_sites(context.folder)
        local.up([SiteSpec(PORT, tuple(service_users(context.topology, PORT)), properties=PROPERTIES, brokers=3)])
        try:
            apply_topology(context.topology, context.resolver)
            yield Place(context, local, home)
        finally:
            local.down(purge=True)


@contextlib.asynccontextmanager
async def working(bridge: Bridge) -> AsyncIterator[asyncio.Task[None]]:
    stop = asyncio.Event()
    work = asyncio.create_task(bridge.run(stop))
    try:
        await until(lambda: bridge.ready.is_set() or work.done(), what="the bridge")
        yield work
    finally:
        stop.set()
        await work


def each_broker(endpoint: KafkaEndpoint) -> list[bool]:
    """Return for each broker whether it accepts that password."""
    return [accepts(replace(endpoint, bootstrap=(one,), other_passwords=())) for one in endpoint.bootstrap]


async def test_a_bridge_at_three_brokers(place: Place) -> None:
    """All three brokers get a new password; the bridge stays logged in at each and at MQTT, and loses no reading."""
    bridge = make_bridge(place.context, PORT)
    published = 0
    async with working(bridge) as work:
        device = Publisher(place.context.resolver.mqtt(PORT, "device"))

        async def more() -> None:
            """Publish 20 readings and wait until they are stored, as strays, since no site holds the box."""
            nonlocal published
            sent = [reading(published + n, number=BOX) for n in range(20)]
            await device.publish(readings_topic(BOX), *sent)
            published += len(sent)
            await until(lambda: work.done() or bridge.snapshot()["strays"] == published, what=f"{published} readings")
            if work.done():
                work.result()

        try:
            await more()
            for user in ("bridge", ADMIN):
                old = place.kafka(user)
                await asyncio.to_thread(place.rotate, user)
                assert await asyncio.to_thread(each_broker, old) == [False] * 3
                assert await asyncio.to_thread(each_broker, place.kafka(user)) == [True] * 3
                await more()
            assert bridge.snapshot()["mqtt_connected"]
        finally:
            device.close()


@pytest.mark.chaos  # takes one more broker start
def test_a_broker_that_is_away_learns_of_the_new_password_before_it_lets_anybody_in(place: Place) -> None:
    """A broker that is away gets the new password before it accepts any client again."""
    old = place.kafka("bridge")
    place.local.kill(PORT, broker=3)
    try:
        place.rotate("bridge")
    finally:
        place.local.restart(PORT, broker=3)
    assert each_broker(old) == [False] * 3
    assert each_broker(place.kafka("bridge")) == [True] * 3


class OwnMosquitto:
    """A Mosquitto run by an operator: a configuration, a password file, a process."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = ports.choose_ports(1)
        self._folder, self._programs = folder, mosquitto.find_mosquitto()
        folder.mkdir()
        mosquitto.write_configuration(folder, self.port, Profile.DURABLE)
        self.passwords = {"bridge": SecretStr("the bridge's first"), "device": SecretStr("the device's own")}
        self.write()

    def write(self) -> None:
        mosquitto.write_users(self._folder, self.passwords, self._programs)

    def start(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 the operator's own
            [self._programs.broker, "-c", self._folder / "mosquitto.conf"]
        )
        mosquitto.wait_ready(
            psutil.Process(self._process.pid), self.endpoint("device"), self._folder, cancel=threading.Event()
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)

    def endpoint(self, user: str) -> MqttEndpoint:
        return MqttEndpoint(PORT, "127.0.0.1", self.port, user, self.passwords[user])


async def test_a_mosquitto_that_fairlead_did_not_start(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator changes the password at a foreign Mosquitto by hand; the bridge tries the old and the new one.

    The operator puts the new password into the folder of secrets first.
    """
    own, secrets = OwnMosquitto(tmp_path / "own"), tmp_path / "secrets"
    secrets.mkdir()
    file = tmp_path / "places.yaml"
    mqtt = f"mqtt: {{host: 127.0.0.1, port: {own.port}, security: PLAINTEXT}}"
    file.write_text(TOPOLOGY.replace("unlocode: JPTYO", f"unlocode: JPTYO, {mqtt}"))
    (secrets / f"{PORT}.bridge-mqtt").write_text(own.passwords["bridge"].get_secret_value())
    monkeypatch.setenv("FAIRLEAD_HOME", str(place.home))
    monkeypatch.setenv(SECRETS_FOLDER, str(secrets))
    published = 0
    bridge = make_bridge(open_topology(str(file)), PORT)
    own.start()
    try:
        async with working(bridge) as work:
            device = Publisher(own.endpoint("device"))

            async def more() -> None:
                nonlocal published
                await device.publish("fairlead/v1/nonsense", *(b"%d" % n for n in range(10)))
                published += 10
                await until(lambda: work.done() or bridge.snapshot()["dead_letters"] == published, what="all messages")
                if work.done():
                    work.result()

            try:
                await more()
                said = await asyncio.to_thread(place.rotate, "bridge", file)
                assert f"127.0.0.1:{own.port}" in (said["by_hand"] or "")  # Kafka's has changed, this one has not
                assert answer(own.endpoint("bridge")) == "Success"
                await more()

                (secrets / f"{PORT}.bridge-mqtt.next").write_text("the bridge's second")
                own.passwords["bridge"] = SecretStr("the bridge's second")
                own.stop()
                own.write()
                own.start()
                await more()
                (secrets / f"{PORT}.bridge-mqtt.next").rename(secrets / f"{PORT}.bridge-mqtt")
                await more()
            finally:
                device.close()
    finally:
        own.stop()
