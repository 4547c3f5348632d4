from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from edge.alerts.engine import AlertEngine
from edge.ingest.classifier import Classifier
from edge.ingest.dead_letters import DeadLetters
from edge.ingest.router import DROPPED, MessageRouter
from edge.metrics import Metrics
from edge.mqtt.session import Delivery
from tests.support.acknowledging import AckSession
from tests.support.edge.samples import reading, readings_topic, topology


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def writers(metrics: Metrics) -> MagicMock:
    return MagicMock(metrics=metrics)


@pytest.fixture
def router(writers: MagicMock) -> MessageRouter:
    engine = AlertEngine("tokyo", ashore=True)
    return MessageRouter(Classifier(topology(), "tokyo"), writers, MagicMock(), DeadLetters(writers, engine), engine)


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


def test_messages_without_acknowledgement_have_a_bound_and_what_is_over_it_is_dropped_and_counted(
    router: MessageRouter,
    writers: MagicMock,
    metrics: Metrics,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kafka is away: of QoS 0, a bounded number waits, and the rest is counted and logged once; QoS 1 is all taken."""
    monkeypatch.setattr("edge.ingest.router.MOST_UNACKNOWLEDGED", 3)
    taken = writers.box.return_value.enqueue
    session = AckSession()

    def publish(*numbers: int, qos: int = 0) -> None:
        for number in numbers:
            ack = session.ack() if qos else None
            router.route_message(Delivery(readings_topic(), reading(number), False, ack))

    publish(*range(10))
    publish(*range(10, 15), qos=1)
    assert (taken.call_count, metrics.qos0_dropped, metrics.received) == (8, 7, 15)
    assert caplog.text.count("QOS 0") == 1
    for call in taken.call_args_list:
        call.args[0].ack.finish_part()
    assert session.acknowledged == [1, 2, 3, 4, 5]
    taken.reset_mock()
    publish(*range(20, 24))
    assert (taken.call_count, metrics.qos0_dropped) == (3, 8)
    assert caplog.text.count("QOS 0") == 2, "a new outage is told again"


def test_counts_of_the_mqtt_broker_and_dropped_floods_take_no_room(
    router: MessageRouter, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is handled at once is not counted as waiting."""
    monkeypatch.setattr("edge.ingest.router.MOST_UNACKNOWLEDGED", 1)
    monkeypatch.setattr("edge.ingest.limits.BURST_MESSAGES", 0)
    monkeypatch.setattr("edge.ingest.limits.LETTERS", 0)
    for number in range(3):
        router.route_message(Delivery(DROPPED, b"0", False, None))
        router.route_message(Delivery(readings_topic(), reading(number), False, None))
    assert (metrics.flood_dropped, metrics.qos0_dropped) == (3, 0)
