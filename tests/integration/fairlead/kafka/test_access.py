"""Logging in and permissions on a real broker."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import pytest
from pydantic import SecretStr

from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import AuthenticationFailed, BrokerError, ConnectionLost
from fairlead.kafka.protocol.types import TP
from tests.support.kafka.records import record
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration


async def test_wrong_password_is_refused_at_once(kafka: Callable[..., KafkaEndpoint]) -> None:
    """A wrong password is refused with the broker's answer, not when the time for an answer is over."""
    wrong = dataclasses.replace(kafka("alpha", "bridge"), password=SecretStr("not-the-password"))
    with pytest.raises(AuthenticationFailed) as caught:
        async with asyncio.timeout(PATIENCE):
            await Cluster.open(wrong, client_id="test", request_timeout=10 * PATIENCE)
    assert "'bridge'" in str(caught.value) and "'alpha'" in str(caught.value)
    assert "not-the-password" not in repr(caught.value.fields) + str(caught.value)


async def test_listener_that_wants_a_login_refuses_anonymous(kafka: Callable[..., KafkaEndpoint]) -> None:
    anonymous = dataclasses.replace(kafka("alpha"), user=None, password=None)
    with pytest.raises(ConnectionLost):
        await Cluster.open(anonymous, client_id="test", request_timeout=PATIENCE)


async def test_user_without_permissions_sees_and_writes_nothing(
    kafka: Callable[..., KafkaEndpoint], new_log: Callable[..., str]
) -> None:
    name = new_log("alpha")
    async with await Cluster.open(kafka("alpha", "customer1"), client_id="test") as cluster:
        assert await cluster.topics([name]) == {}
        error = (await cluster.end_offsets([TP(name)]))[TP(name)]
        assert isinstance(error, BrokerError) and error.code in (3, 29) and error.log == TP(name)
        appender = Appender(cluster)
        with pytest.raises(BrokerError) as caught:
            await appender.append(TP(name), [record("x")])
        assert caught.value.code in (3, 29)
        await appender.close()


async def test_missing_topic_is_an_error_soon(kafka: Callable[..., KafkaEndpoint]) -> None:
    async with await Cluster.open(kafka("alpha"), client_id="test") as cluster:
        log = TP("test.that-nobody-created")
        error = (await cluster.end_offsets([log]))[log]
        assert isinstance(error, BrokerError) and error.code == 3
