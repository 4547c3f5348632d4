"""What a Mosquitto says to a login, however long its machine is held up."""

from __future__ import annotations

import time

from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.local import mosquitto
from tests.support.waits import PATIENCE


def answer(endpoint: MqttEndpoint) -> str | None:
    """As ``mosquitto.log_in``, which takes two seconds for silence; None after ``PATIENCE`` only."""
    end = time.monotonic() + PATIENCE
    while (said := mosquitto.log_in(endpoint, PATIENCE)) is None and time.monotonic() < end:
        time.sleep(0.05)  # there is no event for it
    return said
