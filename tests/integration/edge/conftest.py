from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from tests.integration.edge.fleet import Fleet, make_fleet


@pytest.fixture
def fleet(kafka: Callable[..., KafkaEndpoint], mqtt: Callable[..., MqttEndpoint], tmp_path: Path) -> Iterator[Fleet]:
    """Return a fleet: a port at ``alpha`` and a ship at ``beta``, with logs that only this test uses."""
    made = make_fleet(kafka, mqtt, tmp_path)
    yield made
    made.forget_sessions()
