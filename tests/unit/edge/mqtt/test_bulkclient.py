"""Compare our MQTT client with paho's own: the same packets, cut anywhere, give the same messages and
acknowledgements."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as paho
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from edge.mqtt.session import BulkClient

CONNACK = b"\x20\x03\x00\x00\x00"
SUBACK = b"\x90\x04\x00\x01\x00\x01"
Message = tuple[bytes, int, bytes, int, bool]

messages = st.builds(
    lambda topic, mid, payload, qos, dup: (
        topic.encode(),
        mid if qos else 0,
        payload,
        qos,
        dup and bool(qos),
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=30),
    st.integers(1, 65535),
    st.binary(max_size=400),
    st.integers(0, 1),
    st.booleans(),
)


def packet(message: Message, properties: bytes = b"\x00") -> bytes:
    topic, mid, payload, qos, dup = message
    body = struct.pack(">H", len(topic)) + topic + (struct.pack(">H", mid) if qos else b"") + properties + payload
    size = len(body)
    length = bytes((size,)) if size < 0x80 else bytes((size & 0x7F | 0x80, size >> 7))
    return bytes((0x30 | qos << 1 | dup << 3,)) + length + body


@contextmanager
def connected(
    kind: type[paho.Client],
) -> Iterator[tuple[paho.Client, socket.socket, list[Message]]]:
    """Return a client whose broker is a socket of the test, and the messages that the client passes on."""
    got: list[Message] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = kind(CallbackAPIVersion.VERSION2, "c", protocol=paho.MQTTv5, manual_ack=True)
        client.on_message = lambda _c, _d, m: got.append((m.topic.encode(), m.mid, bytes(m.payload), m.qos, m.dup))
        client.connect(*server.getsockname())
        broker, _ = server.accept()
        with broker:
            broker.settimeout(5)
            while client.want_write():
                client.loop_write()
            assert broker.recv(4096)[:1] == b"\x10"
            try:
                yield client, broker, got
            finally:
                client.on_disconnect = None
                client._reset_sockets()  # noqa: SLF001 - paho closes them when it is collected, which is too late


def read(client: paho.Client, count: int, got: list[Message]) -> MQTTErrorCode:
    """Read until so many messages have arrived."""
    rc = MQTTErrorCode.MQTT_ERR_SUCCESS
    while len(got) < count and not rc:
        rc = client.loop_read()
    return rc


@given(
    st.lists(messages, min_size=1, max_size=12),
    st.lists(st.integers(1, 200), min_size=1, max_size=8),
    st.sampled_from([b"\x00", b"\x05\x02\x00\x00\x00\x3c", b"\x8f\x01\x09\x00\x8c" + bytes(140)]),
)
def test_messages_are_those_that_paho_gives_however_they_arrive(
    sent: list[Message], cuts: list[int], properties: bytes
) -> None:
    stream = CONNACK + SUBACK + b"".join(packet(message, properties) for message in sent)
    found = []
    for kind in (paho.Client, BulkClient):
        with connected(kind) as (client, broker, got):
            at, nth = 0, 0
            while at < len(stream):
                size = cuts[nth % len(cuts)]
                broker.sendall(stream[at : at + size])
                client.loop_read()
                at, nth = at + size, nth + 1
            assert read(client, len(sent), got) is MQTTErrorCode.MQTT_ERR_SUCCESS
            assert client.is_connected()
            found.append(got)
    assert found[0] == found[1] == sent


async def test_acknowledgements_leave_together_and_before_what_comes_later() -> None:
    """Acknowledgements are sent together, and before packets that come later."""
    with connected(BulkClient) as (client, broker, _):
        broker.sendall(CONNACK)
        while not client.is_connected():
            client.loop_read()
        for mid in (3, 1, 2):
            client.ack(mid, 1)
        assert not client.want_write()
        await asyncio.sleep(0)
        client.loop_write()
        assert broker.recv(4096) == b"\x40\x02\x00\x03\x40\x02\x00\x01\x40\x02\x00\x02"
        client.ack(9, 1)
        client.subscribe("a", 1)
        while client.want_write():
            client.loop_write()
        assert broker.recv(4096)[:4] == b"\x40\x02\x00\x09"


@pytest.mark.parametrize(
    "broken",
    [
        b"\x32\xff\xff\xff\xff\x7f",
        packet((b"x", 1, b"", 1, False))[:1] + b"\x03\x00\x09x",
    ],
)
def test_what_is_no_packet_ends_the_connection(broken: bytes) -> None:
    """Bytes that are no MQTT packet end the connection."""
    with connected(BulkClient) as (client, broker, got):
        reasons: list[Any] = []
        client.on_disconnect = lambda *given: reasons.append(given)
        broker.sendall(CONNACK + broken)
        while not reasons:
            client.loop_read()
        assert got == []
        assert client.socket() is None


def test_the_end_of_the_stream_is_the_end_of_the_connection() -> None:
    with connected(BulkClient) as (client, broker, _):
        reasons: list[Any] = []
        client.on_disconnect = lambda *given: reasons.append(given)
        broker.close()
        while not reasons:
            client.loop_read()
        assert client.loop_read() is MQTTErrorCode.MQTT_ERR_NO_CONN


@pytest.mark.parametrize("mistake", [ValueError("routing"), IndexError("detection"), struct.error("codec")])
def test_what_goes_wrong_with_a_message_is_no_error_of_the_protocol(mistake: Exception) -> None:
    """An error while a message is handled is not treated as a protocol error.

    A reconnect would bring the same message and the same error, without end and without a traceback.
    """
    with connected(BulkClient) as (client, broker, _):

        def fails(*_: Any) -> None:
            raise mistake

        client.on_message = fails
        broker.sendall(CONNACK + packet((b"t", 1, b"x", 1, False)))
        with pytest.raises(type(mistake)) as caught:
            while True:
                client.loop_read()
        assert caught.value is mistake
        assert client.socket() is not None


@pytest.mark.parametrize(
    "body",
    [
        b"\x32\x00",
        b"\x32\x01\x00",
        b"\x32\x03\x00\x01t",
        b"\x32\x05\x00\x01t\x00\x01",
        b"\x32\x06\x00\x01t\x00\x01\x05",
        b"\x20\x00",
    ],
)
def test_packets_that_end_too_early_are_errors_of_the_protocol(body: bytes) -> None:
    with connected(BulkClient) as (client, broker, got):
        reasons: list[Any] = []
        client.on_disconnect = lambda *given: reasons.append(given)
        broker.sendall(CONNACK + body + b"\x30\x05\x00\x01txx")
        while not reasons:
            client.loop_read()
        assert got == []
