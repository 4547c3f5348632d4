"""A port with one log per container, and what devices publish there. The measured processes import this, too."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.names import container_check_digit
from topologies.model import DEFAULT_STREAMS, InsertPoint, Site, SiteKind, Stream, Topology

SITE: Final = "harbour"
CODE: Final = "JPTYO"
IMO: Final = "9074729"
USER: Final = "admin"
BRIDGE_CLIENT: Final = f"fairlead-bridge-{SITE}"
PLAIN_CLIENT: Final = "plain-bridge"


def topology() -> Topology:
    """A port whose containers are all ``BIGU``."""
    return Topology(
        name="bench",
        sites={SITE: Site(kind=SiteKind.PORT, unlocode=CODE)},
        streams={**DEFAULT_STREAMS, "containers": Stream(insert_point=InsertPoint.MOVES, owners=("BIGU",))},
    )


def log_of(number: str) -> str:
    """The log of a container."""
    return f"containers.{number}"


EVENTS: Final = "fairlead/v1/events"
UNDER_WAY: Final = 1000
Message = tuple[str, bytes]


def boxes(count: int) -> list[str]:
    """Numbers of containers."""
    tens = [f"BIGU{number:06d}" for number in range(count)]
    return [ten + container_check_digit(ten) for ten in tens]


def event(code: str, number: str) -> Message:
    """An equipment event of now; the same box may have one of each code."""
    now = dt.datetime.now(dt.UTC).isoformat()
    metadata = {
        "eventID": f"{code}-{number}",
        "eventCreatedDateTime": now,
        "eventType": "EQUIPMENT",
        "publisher": "bench",
    }
    payload = {
        "eventClassifierCode": "ACT",
        "eventDateTime": now,
        "equipmentEventTypeCode": code,
        "equipmentReference": number,
        "UNLocationCode": CODE,
        "vesselIMONumber": IMO,
    }
    return EVENTS, msgspec.json.encode({"metadata": metadata, "payload": payload})


def reading_body(number: str, sequence: int, now: str) -> dict[str, Any]:
    """What a reefer's device sends at ``now`` (ISO 8601), about 450 B as JSON."""
    return {
        "equipmentReference": number,
        "device": {"deviceId": f"dev-{number}", "bootId": 1, "sequence": sequence, "deviceDateTime": now},
        "measurements": {
            "supplyTemperature": 4.1,
            "returnTemperature": 4.9,
            "ambientTemperature": 27.3,
            "relativeHumidity": 85.0,
        },
        "setpoints": {"temperature": 4.0},
        "isConnectedToPowerSource": True,
        "isPowered": True,
        "geoLocation": {"latitude": 35.6492, "longitude": 139.7916},
    }


def reading(number: str, sequence: int) -> Message:
    """A reading of now."""
    body = reading_body(number, sequence, dt.datetime.now(dt.UTC).isoformat())
    return f"fairlead/v1/containers/{number}/readings", msgspec.json.encode(body)


def connect(client: paho.Client, endpoint: MqttEndpoint) -> None:
    """Connect a client as the endpoint's user."""
    if endpoint.user and endpoint.password:
        client.username_pw_set(endpoint.user, endpoint.password.get_secret_value())
    client.connect(endpoint.host, endpoint.port)


class SiteDevices:
    """All devices of one site, behind one connection."""

    def __init__(self, endpoint: MqttEndpoint) -> None:
        self._client = paho.Client(CallbackAPIVersion.VERSION2)
        self._client.max_inflight_messages_set(UNDER_WAY)
        connect(self._client, endpoint)
        self._client.loop_start()

    async def publish(self, messages: Sequence[Message]) -> None:
        """Publish with QoS 1; returns when the MQTT broker has them all."""
        await asyncio.to_thread(self._publish, messages)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _publish(self, messages: Sequence[Message]) -> None:
        sent = [self._client.publish(topic, payload, 1) for topic, payload in messages]
        for each in sent:
            each.wait_for_publish(600)
            if not each.is_published():
                raise SystemExit("the MQTT broker did not take a message within ten minutes")
