"""Ask a Mosquitto, or a Kafka, whether it accepts a login, however long its machine is held up."""

from __future__ import annotations

import time

from fairlead.errors import LoginRefusedError
from fairlead.kafka.admin import require_answer
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.local import mosquitto
from tests.support.waits import PATIENCE


def answer(endpoint: MqttEndpoint) -> str | None:
    """Return the answer as ``mosquitto.log_in`` does, but give up (None) only after ``PATIENCE`` instead of two
    seconds.
    """
    end = time.monotonic() + PATIENCE
    while (said := mosquitto.log_in(endpoint)) is None and time.monotonic() < end:
        time.sleep(0.05)  # no event announces the answer, so ask again
    return said


def accepts(endpoint: KafkaEndpoint) -> bool:
    """Return whether a broker accepts this password, as ``fairlead.kafka.credentials.accepts`` does, but give up only
    after ``PATIENCE`` instead of five seconds.
    """
    try:
        require_answer(endpoint, PATIENCE)
    except LoginRefusedError:
        return False
    return True
