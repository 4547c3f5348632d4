"""Invalid messages of every kind between good readings: the good ones are stored, each invalid one becomes a dead
letter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edge.ingest.dead_letters import KEPT_BYTES
from fairlead.records import decoder
from fairlead.records.edge import DeadLetter
from tests.support.edge.fleet import EVENTS, Fleet, handled, now, until
from tests.support.edge.samples import reading, readings_topic
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration

ABOVE_A_RECORD = 1_500_000  # bytes; Kafka takes 1 MiB
ABOVE_A_PACKET = 5_000_000  # bytes; Mosquitto takes 4 MiB at local sites
GOOD = 40
letters_of = decoder(DeadLetter)


@contextlib.contextmanager
def raw(fleet: Fleet) -> Iterator[paho.Client]:
    """Yield a client at the port's broker that publishes any message and does not reconnect by itself."""
    endpoint = fleet.devices[fleet.port]
    client = paho.Client(CallbackAPIVersion.VERSION2, reconnect_on_failure=False)
    client.max_queued_messages_set(0)
    if endpoint.user and endpoint.password:
        client.username_pw_set(endpoint.user, endpoint.password.get_secret_value())
    client.connect(endpoint.host, endpoint.port)
    client.loop_start()
    try:
        yield client
    finally:
        client.loop_stop()
        client.disconnect()


def garbage(box: str, other: str) -> list[tuple[str, bytes, str]]:
    """Return topic, payload and expected reason of each invalid message; no two are equal."""
    topic, wrong_digit = readings_topic(box), box[:-1] + str((int(box[-1]) + 1) % 10)
    made: list[tuple[str, bytes, str]] = [
        (topic, b"", "malformed-json"),
        (topic, reading(0, number=box, at=now()).decode().encode("utf-16"), "malformed-json"),
        (topic, b"\xef\xbb\xbf" + reading(0, number=box, at=now()), "malformed-json"),
        (topic, b'{"x":' + b"[" * 100_000, "malformed-json"),
        (topic, b"\0" * ABOVE_A_RECORD, "too-large"),
        (topic, reading(0, number=box, at=now(), name=""), "invalid-fields"),
        (topic, reading(0, number=other, at=now()), "number-mismatch"),
        (topic, reading(0, number=box, at=now().replace(year=1970, day=1)), "device-clock"),
        (topic, reading(0, number=box, at=now().replace(year=2099, day=1)), "device-clock"),
        (readings_topic(wrong_digit), reading(0, number=wrong_digit, at=now()), "wrong-check-digit"),
        ("fairlead/v1/\u00e4rger/\U0001f986", b"{}", "unknown-topic"),
        ("fairlead/v1/containers/" + "x/" * 30, b"{}", "unknown-topic"),
        (EVENTS, b"[]", "invalid-fields"),
    ]
    made += [(topic, b'{"sequence":%d' % n, "malformed-json") for n in range(150)]
    made += [(topic, b'{"sequence":%d}' % n, "invalid-fields") for n in range(150)]
    return made


async def test_garbage_between_good_readings_hurts_nobody(fleet: Fleet) -> None:
    """Invalid messages between good readings do no harm."""
    boxes = [fleet.new_box() for _ in range(4)]
    bad = garbage(boxes[0], boxes[1])
    retained = "fairlead/v1/retained"
    async with fleet.running(fleet.port) as bridge:
        with fleet.publisher(fleet.port) as device, raw(fleet) as client:
            for box in boxes:
                await device.publish(EVENTS, fleet.event("GTIN", box))
            await until(client.is_connected)
            sent = []
            for n in range(GOOD):
                for box in boxes:
                    payload = reading(n, number=box, at=now(), name=f"dev-{box}")
                    sent.append(client.publish(readings_topic(box), payload, qos=1))
                for topic, payload, _ in bad[n::GOOD]:
                    sent.append(client.publish(topic, payload, qos=1 + n % 2))
            sent.append(client.publish(retained, b"kept for whoever subscribes", qos=1, retain=True))
            sent.append(client.publish(retained, b"", qos=1, retain=True))  # an empty message deletes the retained one
            for n in range(50):
                client.publish(readings_topic(boxes[0]), b"over QoS 0 %d" % n, qos=0)  # QoS 0: these may be lost
            for one in sent:
                await asyncio.to_thread(one.wait_for_publish, PATIENCE)
            with raw(fleet) as huge:  # the broker ends its connection, and nobody else's
                await until(huge.is_connected)
                huge.publish(readings_topic(boxes[0]), b"x" * ABOVE_A_PACKET, qos=0)
                await until(lambda: not huge.is_connected(), what="the end of the connection")
            await device.readings(boxes[0], range(GOOD, GOOD + 5))
            assert client.is_connected()
        # Those of QoS 0 count as received, too, so wait for the last readings.
        await until(lambda: bridge.metrics.readings >= GOOD * len(boxes) + 5, what="the last readings")
        await handled(bridge, len(boxes) + GOOD * len(boxes) + len(bad) + 2 + 5)
        assert bridge.metrics.readings == GOOD * len(boxes) + 5
    for box in boxes:
        count = GOOD + 5 if box == boxes[0] else GOOD
        assert fleet.sequences(fleet.port, box) == list(range(count))
    letters = [letters_of.decode(stored.value) for stored in fleet.read(fleet.port, f"deadletters.{fleet.port}")]
    found = {(each.mqtt_topic, each.payload, each.payload_bytes): each.reason for each in letters}
    for topic, payload, reason in bad:
        assert found[topic, payload[:KEPT_BYTES], len(payload)] == reason
    assert found[retained, b"", 0] == found[retained, b"kept for whoever subscribes", 27] == "unknown-topic"
    assert len(found) == len(letters)  # each once
    assert max(each.payload_bytes for each in letters) == ABOVE_A_RECORD
