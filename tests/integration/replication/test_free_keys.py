"""Logs whose keys begin with no site's name, under the rules that the topology gives and nothing more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message

from tests.integration.replication.conftest import Lab
from tests.integration.replication.resolving import Desk
from tests.integration.replication.test_foreign import producer, send

pytestmark = pytest.mark.integration


@pytest.fixture
async def desk(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    yield Desk.open(lab, tmp_path, monkeypatch)


async def test_the_replicator_makes_and_appends_a_log_named_after_no_site_and_others_may_not(desk: Desk) -> None:
    lab, topic = desk.lab, desk.lab.log("europe")
    await lab.make("alpha", topic)
    send(producer(lab.kafka("alpha")), topic, 0, 10)
    async with desk.replicating():
        await desk.mirrored(topic, 10)
        for user in ("bridge", "replicator.alpha", "shore"):
            assert refused(lab, user, topic) == "TOPIC_AUTHORIZATION_FAILED"
        send(producer(lab.kafka("alpha")), topic, 10, 10)
        await desk.mirrored(topic, 20)


def refused(lab: Lab, user: str, topic: str) -> str:
    """What beta's broker says when a user writes to a log."""
    heard: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        heard.append(error.name() if error is not None else "")

    client = producer(lab.kafka("beta", user))
    client.produce(topic, value="mine", on_delivery=delivered)
    client.flush(30)
    return heard[0]
