"""Certificates, and then their authority, are replaced while a device publishes and a bridge works: nothing is lost."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead.admin import require_answer
from fairlead.certs.facts import all_facts, facts
from fairlead.certs.served import served
from fairlead.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.errors import RefusedError, UntrustedError
from simulators.sender import Sender
from tests.integration.edge.fleet import EVENTS, Fleet, make_fleet, now, until
from tests.integration.tls.conftest import SITE, Secure
from tests.unit.edge.samples import reading, readings_topic

pytestmark = pytest.mark.integration
PAUSE = 0.01  # seconds between two readings


@pytest.fixture
def fleet(kafka: Callable[..., KafkaEndpoint], mqtt: Callable[..., MqttEndpoint], tmp_path: Path) -> Fleet:
    return make_fleet(kafka, mqtt, tmp_path)


class Device:
    """One box that comes through the gate, and its readings until told to stop."""

    def __init__(self, fleet: Fleet, sender: Sender) -> None:
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
        task = asyncio.create_task(self.publish())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
        await self._sender.flush()

    async def more(self) -> None:
        """Wait until the broker has acknowledged what is published from now on."""
        wanted = self._sender.acknowledged + self._sender.waiting + 20
        await until(lambda: self._sender.acknowledged >= wanted, what="readings taken")


def shown(secure: Secure) -> dict[str, str]:
    """Serial numbers that the servers show, by what they serve."""
    state = secure.state
    ports = {"kafka": state.kafka_port, "controller": state.controller_port, "mqtt": state.mqtt_port}
    return {name: facts(served("127.0.0.1", port)).serial for name, port in ports.items()}


def issuers(secure: Secure) -> set[str]:
    return {each.facts.issuer for each in secure.certificates.all() if each.site == SITE}


async def test_certificates_and_their_authority_are_replaced_and_no_reading_is_lost(
    secure: Secure, fleet: Fleet, tmp_path: Path
) -> None:
    async def command(*arguments: str) -> None:
        done = await asyncio.to_thread(secure.run, *arguments)
        assert done.exit_code == 0, done.output

    old_ca = tmp_path / "old.pem"
    old_ca.write_bytes(secure.certificates.trusted.read_bytes())
    pids = secure.local.status()[SITE].pids
    async with fleet.running(fleet.port) as bridge, Sender(fleet.devices[fleet.port], "quay") as sender:
        device = Device(fleet, sender)
        async with device.publishing():
            await device.more()
            before = shown(secure)
            connections = bridge.snapshot()["mqtt_connections"]
            await command("certs", "renew", SITE, "--name", "quay.example")
            renewed = shown(secure)
            assert not set(before.values()) & set(renewed.values())
            assert renewed["kafka"] == renewed["controller"]
            assert "quay.example" in facts(served("127.0.0.1", secure.state.kafka_port)).names
            await device.more()
            assert bridge.snapshot()["mqtt_connections"] == connections  # nobody was disconnected
            assert secure.local.status()[SITE].pids == pids

            await command("certs", "init", "--replace")
            with pytest.raises(RefusedError, match="still in use: quay/kafka, quay/mqtt"):
                await asyncio.to_thread(secure.run, "certs", "retire")
            first = issuers(secure)
            await command("certs", "renew")
            assert not first & issuers(secure)
            await device.more()
            await command("certs", "retire")
            assert len(all_facts(secure.certificates.trusted.read_bytes())) == 1
            with pytest.raises(UntrustedError, match="is not signed by"):
                await asyncio.to_thread(require_answer, dataclasses.replace(secure.kafka(), tls_ca=old_ca))

            await asyncio.to_thread(secure.local.restart, SITE, "mqtt")  # so that both ends of it connect again
            await asyncio.to_thread(require_answer, secure.kafka())
            await device.more()

        def complete() -> bool:
            return len(fleet.sequences(fleet.port, device.box)) >= device.published

        await until(complete, what="every reading in its log")
    assert fleet.sequences(fleet.port, device.box) == list(range(device.published))
    assert "quay.example" in facts(served("127.0.0.1", secure.state.kafka_port)).names
