"""Certificates are renewed while a device publishes and a bridge runs: nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead.certs.authority import new_authority
from fairlead.certs.facts import facts
from fairlead.certs.trust import served
from fairlead.errors import ConfigurationError
from fairlead.kafka.admin import require_answer
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.waiting import in_background
from simulators.voyage.sender import MqttSender
from tests.integration.tls.conftest import SITE, Secure
from tests.support.edge.fleet import EVENTS, Fleet, make_fleet, now, until
from tests.support.edge.samples import reading, readings_topic

pytestmark = pytest.mark.integration
PAUSE = 0.01  # seconds between two readings


@pytest.fixture
def fleet(kafka: Callable[..., KafkaEndpoint], mqtt: Callable[..., MqttEndpoint], tmp_path: Path) -> Fleet:
    return make_fleet(kafka, mqtt, tmp_path)


class Device:
    """One box that comes in through the gate and sends readings until ``stop``."""

    def __init__(self, fleet: Fleet, sender: MqttSender) -> None:
        self._fleet, self._sender = fleet, sender
        self.box = fleet.new_box()
        self.published = 0

    async def publish(self) -> None:
        self._sender.send(EVENTS, self._fleet.event("GTIN", self.box))
        while True:
            self._sender.send(
                readings_topic(self.box), reading(self.published, number=self.box, at=now(), name=f"dev-{self.box}")
            )
            self.published += 1
            await asyncio.sleep(PAUSE)

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        async with in_background(self.publish()):
            yield
        await self._sender.flush()

    async def more(self) -> None:
        """Wait until the broker has acknowledged messages that were published after this call."""
        wanted = self._sender.acknowledged + self._sender.waiting + 20
        await until(lambda: self._sender.acknowledged >= wanted, what="readings taken")


def shown(secure: Secure) -> dict[str, str]:
    """Return the serial numbers of the certificates that the servers present, by service."""
    state = secure.state
    ports = {"kafka": state.kafka_port, "controller": state.controller_port, "mqtt": state.mqtt_port}
    return {name: facts(served("127.0.0.1", port)).serial for name, port in ports.items()}


async def test_certificates_are_renewed_and_no_reading_is_lost(secure: Secure, fleet: Fleet) -> None:
    async def command(*arguments: str) -> None:
        done = await asyncio.to_thread(secure.run, *arguments)
        assert done.exit_code == 0, done.output

    pids = secure.local.status()[SITE].pids
    async with fleet.running(fleet.port) as bridge, MqttSender(fleet.devices[fleet.port], "quay") as sender:
        device = Device(fleet, sender)
        async with device.publishing():
            await device.more()
            before = shown(secure)
            connections = bridge.snapshot()["mqtt_connections"]
            await command("certs", "renew", "--yes", "--site", SITE, "--name", "quay.example")
            renewed = shown(secure)
            assert not set(before.values()) & set(renewed.values())
            assert renewed["kafka"] == renewed["controller"]
            assert "quay.example" in facts(served("127.0.0.1", secure.state.kafka_port)).names
            await device.more()
            assert bridge.snapshot()["mqtt_connections"] == connections  # no client was disconnected
            assert secure.local.status()[SITE].pids == pids

            await asyncio.to_thread(secure.local.restart, SITE, "mqtt")  # so that its clients connect again
            await asyncio.to_thread(require_answer, secure.kafka())
            await device.more()

        def complete() -> bool:
            return len(fleet.sequences(fleet.port, device.box)) >= device.published

        await until(complete, what="every reading in its log")
    assert fleet.sequences(fleet.port, device.box) == list(range(device.published))
    assert "quay.example" in facts(served("127.0.0.1", secure.state.kafka_port)).names


def test_an_authority_that_running_brokers_do_not_trust_is_refused(secure: Secure) -> None:
    """Renewal under a new authority is refused until restarted brokers trust it; clients still see the old one."""
    before, trusted = shown(secure), secure.certificates.trusted
    old = trusted.read_bytes()
    try:
        trusted.write_bytes(old + new_authority("other").certificate)
        with pytest.raises(ConfigurationError, match="running brokers of quay do not trust yet") as refused:
            secure.run("certs", "renew", "--yes", "--site", SITE)
        option = f" --topology {secure.topology}"
        assert refused.value.hint == f"fairlead down {SITE}{option}; fairlead up {SITE}{option}"
    finally:
        trusted.write_bytes(old)
    assert shown(secure) == before
