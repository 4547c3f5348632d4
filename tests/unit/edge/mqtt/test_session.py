"""The MQTT session against a minimal broker that answers as Mosquitto does."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.errors import MqttRefusedError
from edge.mqtt.session import Delivery, MqttSession
from fairlead.kafka.endpoint import MqttEndpoint

CONNECT, SUBSCRIBE, PUBACK, DISCONNECT = 0x10, 0x82, 0x40, 0xE0
CONNACK = b"\x20\x03\x01\x00\x00"  # CONNACK flag: a session was present
QUEUED = 600
SECONDS = 30.0
Message = tuple[str, int, bytes, int, bool]


def packet(kind: int, body: bytes) -> bytes:
    size = len(body)
    length = bytes((size,)) if size < 0x80 else bytes((size & 0x7F | 0x80, size >> 7))
    return bytes((kind,)) + length + body


def publish(mid: int, topic: str = "t", payload: bytes = b"x", qos: int = 1, dup: bool = False) -> bytes:
    name = topic.encode()
    body = struct.pack(">H", len(name)) + name + (struct.pack(">H", mid) if qos else b"") + b"\0" + payload
    return packet(0x30 | qos << 1 | dup << 3, body)


class Broker:
    """A broker that answers CONNECT and SUBSCRIBE, and records what it receives.

    Args:
        connack: Its answer to CONNECT.
        behind: Bytes sent in one piece with the answer to SUBSCRIBE.
        cuts: Sizes of the pieces in which everything is sent; None sends it uncut.
    """

    def __init__(self, connack: bytes = CONNACK, behind: bytes = b"", cuts: list[int] | None = None) -> None:
        self._connack = connack
        self._behind = behind
        self._cuts = cuts
        self.connections = 0
        self.connects: list[bytes] = []
        self.subscribes: list[bytes] = []
        self.acknowledged: list[int] = []
        self.said_goodbye = False
        self.ended = asyncio.Event()
        self.came_back = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                kind, size = await reader.readexactly(2)  # all of these packets are shorter than 128 bytes
                body = await reader.readexactly(size)
                if kind == CONNECT:
                    self.connects.append(body)
                    if len(self.connects) > 1:
                        self.came_back.set()
                    await self._send(writer, self._connack)
                elif kind == SUBSCRIBE:
                    self.subscribes.append(body)
                    suback = packet(0x90, body[:2] + b"\x00\x01")
                    behind, self._behind = self._behind, b""
                    await self._send(writer, suback + behind)
                elif kind == PUBACK:
                    self.acknowledged.append(int.from_bytes(body, "big"))
                elif kind == DISCONNECT:
                    self.said_goodbye = True
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.ended.set()
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        cuts = self._cuts or [len(data)]
        at = nth = 0
        while at < len(data):
            writer.write(data[at : at + cuts[nth % len(cuts)]])
            await writer.drain()
            await asyncio.sleep(0)  # the client reads the rest
            at, nth = at + cuts[nth % len(cuts)], nth + 1


@contextlib.asynccontextmanager
async def session(
    broker: Broker,
    on_message: Callable[[Delivery], None] = lambda _: None,
    window: int = 100,
    subscriptions: Sequence[tuple[str, int]] = (("t", 1),),
) -> AsyncIterator[tuple[MqttSession, asyncio.Task[None]]]:
    """Run a session at this broker; stop it at the end."""
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    made = MqttSession(
        MqttEndpoint("tokyo", host, port),
        client_id="c",
        subscriptions=subscriptions,
        on_message=on_message,
        window=window,
    )
    running = asyncio.create_task(made.run())
    try:
        yield made, running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.close()


async def test_retained_messages_do_not_come_again_at_every_connect() -> None:
    """Options of MQTT 5: QoS in bits 0 and 1, Retain Handling in bits 4 and 5."""
    broker = Broker()
    async with session(broker, subscriptions=[("t", 1), ("$SYS/n", 0)]) as (made, _):
        async with asyncio.timeout(SECONDS):
            await made.connected.wait()
    options = {b"t": 2 << 4 | 1, b"$SYS/n": 0}
    assert broker.subscribes[0][3:] == b"".join(
        struct.pack(">H", len(topic)) + topic + bytes((option,)) for topic, option in options.items()
    )


async def test_it_asks_for_a_session_that_lasts_and_for_a_window() -> None:
    """The session asks for a persistent session and a receive maximum."""
    broker = Broker()
    async with session(broker, window=7) as (made, _):
        await asyncio.wait_for(made.connected.wait(), SECONDS)
    # protocol MQTT 5, flags without clean start, keep-alive, then 8 bytes of properties
    assert broker.connects[0][:10] == b"\x00\x04MQTT\x05\x00\x00\x3c"
    assert broker.connects[0][10:19] == b"\x08\x11\xff\xff\xff\xff\x21\x00\x07"


async def test_a_queue_longer_than_the_window_does_not_hide_the_answer_to_subscribe() -> None:
    """A queue longer than the receive window does not hide the answer to SUBSCRIBE.

    A broker sends the session's messages in flight before it answers; the client acknowledges none of them until then.
    """
    came: list[Delivery] = []
    queued = b"".join(publish(mid) for mid in range(1, QUEUED + 1))
    async with session(Broker(CONNACK + queued), came.append) as (made, _):
        await asyncio.wait_for(made.connected.wait(), SECONDS)
        assert (made.connections, len(came), made.outstanding) == (1, QUEUED, QUEUED)


async def test_a_message_right_behind_an_answer_waits_for_nothing_else() -> None:
    """A message directly behind an answer is passed on without waiting for more data."""
    came = asyncio.Event()
    async with session(Broker(behind=publish(1)), lambda _: came.set()):
        await asyncio.wait_for(came.wait(), SECONDS)


messages = st.builds(
    lambda topic, mid, payload, qos, dup: (topic, mid, payload, qos, dup and bool(qos)),
    st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=30),
    st.integers(1, 65535),
    st.binary(max_size=400),
    st.integers(0, 1),
    st.booleans(),
)


@settings(max_examples=25)
@given(st.lists(messages, min_size=1, max_size=12), st.lists(st.integers(1, 200), min_size=1, max_size=8))
def test_messages_are_those_that_were_sent_however_they_arrive(sent: list[Message], cuts: list[int]) -> None:
    async def check() -> None:
        came: list[Delivery] = []
        everything = asyncio.Event()

        def take(delivery: Delivery) -> None:
            came.append(delivery)
            if len(came) == len(sent):
                everything.set()

        behind = b"".join(publish(mid, topic, payload, qos, dup) for topic, mid, payload, qos, dup in sent)
        async with session(Broker(behind=behind, cuts=cuts), take):
            await asyncio.wait_for(everything.wait(), SECONDS)
        found = [(d.topic, d.ack.mid if d.ack else None, d.payload, d.redelivered) for d in came]
        assert found == [(topic, mid if qos else None, payload, dup) for topic, mid, payload, qos, dup in sent]

    asyncio.run(check())


async def test_acknowledgements_leave_in_order_and_before_the_goodbye() -> None:
    """Acknowledgements leave in order, and before DISCONNECT.

    The message that finishes last holds up the others; on disconnect the broker gets all acknowledgements, whatever was
    sent since.
    """
    broker = Broker(behind=b"".join(publish(mid) for mid in (3, 1, 2)))
    came: list[Delivery] = []
    three = asyncio.Event()

    def take(delivery: Delivery) -> None:
        came.append(delivery)
        if len(came) == 3:
            three.set()

    async with session(broker, take) as (made, running):
        await asyncio.wait_for(three.wait(), SECONDS)
        await asyncio.wait_for(made.connected.wait(), SECONDS)
        for delivery in reversed(came):
            assert delivery.ack is not None
            assert made.acknowledged == 0
            delivery.ack.finish_part()
        await made.disconnect()
        await asyncio.wait_for(broker.ended.wait(), SECONDS)
        await asyncio.wait_for(running, SECONDS)
    assert broker.acknowledged == [3, 1, 2]
    assert broker.said_goodbye
    assert made.acknowledged == 3


@pytest.mark.parametrize("mistake", [ValueError, IndexError, struct.error, ZeroDivisionError])
async def test_a_fault_in_taking_a_message_ends_the_session_with_its_error(mistake: type[Exception]) -> None:
    """An error while a message is handled ends the session with that error.

    The broker would send the message again after each reconnect, so the session does not reconnect and acknowledges
    nothing.
    """

    def fails(_: Delivery) -> None:
        raise mistake("routing")

    broker = Broker(behind=publish(1) + publish(2))
    async with session(broker, fails) as (_, running):
        with pytest.raises(mistake, match="routing") as caught:
            await asyncio.wait_for(running, SECONDS)
        assert "fails" in [entry.name for entry in caught.traceback]
        assert "on 't'" in caught.value.__notes__[0]
        await asyncio.wait_for(broker.ended.wait(), SECONDS)
    assert (broker.connections, broker.acknowledged) == (1, [])


@pytest.mark.parametrize(
    "broken",
    [
        b"\x32\xff\xff\xff\xff\x7f",  # a length of more than four bytes
        b"\x32\x03\x00\x09x",  # shorter than its topic
        b"\x32\x00",
        b"\x32\x01\x00",
        b"\x32\x03\x00\x01t",
        b"\x32\x05\x00\x01t\x00\x01",  # no properties
        b"\xf0\x00" + b"\x20\x00",
    ],
)
async def test_what_is_no_packet_ends_the_connection_and_nothing_else(broken: bytes) -> None:
    """Bytes that are no MQTT packet end the connection, and nothing else."""
    broker = Broker(behind=broken + publish(9))
    came: list[Delivery] = []
    async with session(broker, came.append) as (_, running):
        await asyncio.wait_for(broker.came_back.wait(), SECONDS)
        assert not running.done()
    assert came == []


async def test_a_broker_without_mqtt_5_is_refused_with_what_is_missing() -> None:
    """A broker without MQTT 5 is refused with an error that says so."""
    async with session(Broker(b"\x20\x02\x00\x01")) as (_, running):
        with pytest.raises(MqttRefusedError, match="does not speak MQTT 5"):
            await asyncio.wait_for(running, SECONDS)
