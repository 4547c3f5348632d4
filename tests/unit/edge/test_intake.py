from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from edge.classifier import Classifier
from edge.holdings import Holdings
from edge.intake import DROPPED, Intake
from edge.metrics import Metrics
from edge.mqtt import Delivery
from fairlead.custody import CustodyView
from tests.unit.edge.samples import topology


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def intake(metrics: Metrics) -> Intake:
    return Intake(
        "tokyo",
        Classifier(topology(), "tokyo"),
        MagicMock(),
        MagicMock(),
        Holdings("tokyo", CustodyView()),
        metrics,
        watch=None,
        finish=MagicMock(),
    )


def test_messages_that_the_mqtt_broker_dropped_are_said_loudly_and_counted(
    intake: Intake, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    def broker_says(dropped: bytes) -> str:
        caplog.clear()
        intake.take(Delivery(DROPPED, dropped, False, None))
        return caplog.text

    assert broker_says(b"0") == ""
    assert "DROPPED 5 MESSAGES" in broker_says(b"5")
    assert broker_says(b"5") == ""
    assert "DROPPED 2 MESSAGES (7 since" in broker_says(b"7")
    assert metrics.mqtt_dropped == 7
    assert broker_says(b"0") == ""  # it was started again
    assert "DROPPED 1 MESSAGES" in broker_says(b"1")
    assert metrics.mqtt_dropped == 8  # what was lost stays lost
    assert broker_says(b"nonsense") == ""
    assert metrics.received == 0
