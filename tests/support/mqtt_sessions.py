"""End the bridge's session at an MQTT broker from outside."""

from __future__ import annotations

import time
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.reasoncodes import ReasonCode

from edge.errors import MqttUnavailableError
from edge.mqtt.session import CONNECT_TIMEOUT, new_client, open_connection, refusal
from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.mqtt import poll_once


def end_session(endpoint: MqttEndpoint, client_id: str) -> None:
    """End the session of a client id, with every message queued for it. Connects as the bridge does, but blocks.

    Raises:
        MqttUnavailableError, MqttRefusedError
    """
    answers: list[ReasonCode] = []

    def connected(_c: paho.Client, _d: Any, _flags: Any, reason: ReasonCode, _p: Any) -> None:
        answers.append(reason)

    client = new_client(endpoint, client_id)
    client.on_connect = connected
    open_connection(client, endpoint, clean=True)
    try:
        end = time.monotonic() + CONNECT_TIMEOUT
        while not answers and poll_once(client, 0.1) == paho.MQTT_ERR_SUCCESS and time.monotonic() < end:
            pass
        client.disconnect()
    finally:
        if (sock := client.socket()) is not None:
            sock.close()
    if not answers:
        raise MqttUnavailableError(f"the MQTT broker of {endpoint.site} accepted the connection but did not answer")
    if answers[0].is_failure:
        raise refusal(endpoint, answers[0])
