"""The settings of a topic that sets none itself, as a real broker reports them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from fairlead.kafka.admin import LOG_DEFAULTS, admin_client, create_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.admin_codec import OWN
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration

OTHER = "max.compaction.lag.ms"
AT_BROKERS = "log.cleaner.max.compaction.lag.ms"


async def test_settings_that_go_without_saying_are_left_out(
    cluster: Cluster, kafka: Callable[..., KafkaEndpoint]
) -> None:
    """``create_logs`` leaves out settings that equal the broker's defaults."""
    first, second = (f"defaults.{secrets.token_hex(4)}" for _ in range(2))
    create_logs(kafka("alpha"), {first: {}})
    await cluster.wait_writable([first])
    implied = await cluster.topic_defaults(first, LOG_DEFAULTS)
    assert implied == LOG_DEFAULTS, "the brokers that Fairlead starts have the logs' settings as their defaults"
    create_logs(kafka("alpha"), {second: {OTHER: "1000000"}}, implied=implied)
    await cluster.wait_writable([second])
    effective = await cluster.topic_settings([second], [*LOG_DEFAULTS, OTHER])
    assert effective == {second: {**LOG_DEFAULTS, OTHER: "1000000"}}
    assert own_settings(kafka("alpha"), first) == LOG_DEFAULTS
    assert own_settings(kafka("alpha"), second) == {OTHER: "1000000"}


async def test_a_default_that_was_changed_at_run_time_wins(
    cluster: Cluster, kafka: Callable[..., KafkaEndpoint]
) -> None:
    """``topic_defaults`` returns a default as changed at run time.

    The broker's answer then contains the setting twice: the changed value, and the one from the broker's start.
    """
    topic = f"defaults.{secrets.token_hex(4)}"
    create_logs(kafka("alpha"), {topic: {OTHER: "1000000"}})
    await cluster.wait_writable([topic])
    before = await cluster.topic_defaults(topic, [OTHER])
    (leader,) = (await cluster.topics([topic]))[topic].partitions.values()
    changed = ConfigEntry(AT_BROKERS, "77000", incremental_operation=AlterConfigOpType.SET)
    change_default(kafka("alpha"), leader, changed)

    async def shows(wanted: Mapping[str, str]) -> None:
        async with asyncio.timeout(PATIENCE):  # the broker learns of it a moment later
            while await cluster.topic_defaults(topic, [OTHER]) != wanted:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.05)

    try:
        assert before != {OTHER: "77000"}
        await shows({OTHER: "77000"})
    finally:
        taken_back = ConfigEntry(AT_BROKERS, None, incremental_operation=AlterConfigOpType.DELETE)
        change_default(kafka("alpha"), leader, taken_back)
        await shows(before)  # the tests that follow use this broker, too


async def test_an_unknown_topic_tells_nothing(cluster: Cluster) -> None:
    assert await cluster.topic_defaults("defaults.nowhere", LOG_DEFAULTS) == {}


def own_settings(endpoint: KafkaEndpoint, topic: str) -> dict[str, str]:
    client = admin_client(endpoint)
    (future,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    entries: dict[str, Any] = future.result()
    return {name: entry.value for name, entry in entries.items() if entry.source == OWN}


def change_default(endpoint: KafkaEndpoint, broker: int, entry: ConfigEntry) -> None:
    client = admin_client(endpoint)
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    (future,) = client.incremental_alter_configs([resource]).values()
    future.result()
