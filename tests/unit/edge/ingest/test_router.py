from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from edge.ingest.classifier import Classifier
from edge.ingest.dead_letters import DeadLetters
from edge.ingest.router import DROPPED, MessageRouter
from edge.metrics import Metrics
from edge.mqtt.session import Delivery
from tests.unit.edge.samples import topology


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def router(metrics: Metrics) -> MessageRouter:
    writers = MagicMock(metrics=metrics)
    return MessageRouter(
        Classifier(topology(), "tokyo"),
        writers,
        MagicMock(),
        DeadLetters(writers, None),
    )


def test_messages_that_the_mqtt_broker_dropped_are_said_loudly_and_counted(
    router: MessageRouter, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages that the MQTT broker dropped are logged and counted."""

    def broker_says(dropped: bytes) -> str:
        caplog.clear()
        router.route_message(Delivery(DROPPED, dropped, False, None))
        return caplog.text

    assert broker_says(b"0") == ""
    assert "DROPPED 5 MESSAGES" in broker_says(b"5")
    assert broker_says(b"5") == ""
    assert "DROPPED 2 MESSAGES (7 since" in broker_says(b"7")
    assert metrics.mqtt_dropped == 7
    assert broker_says(b"0") == ""  # the broker was restarted
    assert "DROPPED 1 MESSAGES" in broker_says(b"1")
    assert metrics.mqtt_dropped == 8  # the counter does not go back
    assert broker_says(b"nonsense") == ""
    assert metrics.received == 0


def test_what_was_dropped_before_the_bridge_started_is_said_once_and_not_counted_as_new(
    router: MessageRouter, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages dropped before the bridge started are logged once and not counted as new.

    The broker retains the count, so each bridge gets it when it starts.
    """
    router.route_message(Delivery(DROPPED, b"40", False, None))
    assert metrics.mqtt_dropped == 0
    assert "DROPPED" not in caplog.text
    assert "dropped 40 messages" in caplog.text
    router.route_message(Delivery(DROPPED, b"42", False, None))
    assert metrics.mqtt_dropped == 2
    assert "DROPPED 2 MESSAGES (42 since" in caplog.text


def test_what_a_broker_that_was_started_again_has_dropped_since_is_counted(
    router: MessageRouter, metrics: Metrics
) -> None:
    """Messages dropped since the MQTT broker restarted are counted."""
    for dropped in (b"0", b"7", b"3"):
        router.route_message(Delivery(DROPPED, dropped, False, None))
    assert metrics.mqtt_dropped == 10
