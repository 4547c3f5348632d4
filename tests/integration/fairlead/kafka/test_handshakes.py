"""A connection that ends while a login begins does not count as a wrong password: librdkafka has one error code for
both.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import pytest
from pydantic import SecretStr

import acl.kafka
from acl.kafka import Client, UserConsumer, WrongPassword
from fairlead.errors import LoginRefusedError, UnavailableError
from fairlead.kafka.admin import require_answer
from fairlead.kafka.endpoint import KafkaEndpoint
from replication.groups.client import GroupClient
from tests.support.handshakes import cut_at_handshake
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration
Kafka = Callable[..., KafkaEndpoint]
Ask = Callable[[KafkaEndpoint, float], object]
SOME = 3  # connections that are cut


def reads(endpoint: KafkaEndpoint, seconds: float) -> object:
    with UserConsumer(endpoint, group="test", timeout=seconds) as reader:
        return reader.visible()


def asks(endpoint: KafkaEndpoint, seconds: float) -> object:
    with Client(endpoint, timeout=seconds) as client:
        return client.cluster_operations()


def looks_at_groups(endpoint: KafkaEndpoint, _: float) -> object:
    return asyncio.run(GroupClient(endpoint).groups())


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a client whose connections were all cut as long for the next ones as for an answer. It has three seconds."""
    monkeypatch.setattr(acl.kafka, "DOWN_TIMEOUT", PATIENCE)


PATIENT = [require_answer, reads, asks]  # the group copier does not wait; it checks again later


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("ask", PATIENT)
def test_some_that_end_are_gone_over(kafka: Kafka, ask: Ask) -> None:
    """A few cut connections are retried."""
    with cut_at_handshake(kafka("alpha"), SOME) as held_up:
        assert ask(held_up, PATIENCE) is not None


@pytest.mark.parametrize("ask", [*PATIENT, looks_at_groups])
def test_a_broker_that_ends_them_all_is_unavailable_and_has_refused_nobody(kafka: Kafka, ask: Ask) -> None:
    """A broker that cuts all connections is unavailable, which is no refused login."""
    with cut_at_handshake(kafka("alpha")) as held_up, pytest.raises(UnavailableError):
        ask(held_up, 3.0)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("ask", PATIENT)
def test_a_wrong_password_is_one_whatever_ended_before(kafka: Kafka, ask: Ask) -> None:
    """A wrong password is reported as one, even after cut connections."""
    wrong = dataclasses.replace(kafka("alpha"), password=SecretStr("wrong"))
    with cut_at_handshake(wrong, SOME) as held_up, pytest.raises((LoginRefusedError, WrongPassword)):
        ask(held_up, PATIENCE)
