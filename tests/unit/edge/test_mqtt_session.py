"""The session against a broker of a few lines, which answers as Mosquitto does."""

from __future__ import annotations

import asyncio

from edge.mqtt import Delivery, MqttSession
from fairlead.endpoint import MqttEndpoint

QUEUED = 600


def publish(mid: int) -> bytes:
    body = b"\x00\x01t" + mid.to_bytes(2, "big") + b"x"
    return b"\x32" + bytes([len(body)]) + body


async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """CONNACK, then at once what is queued; SUBACK and UNSUBACK behind that."""
    try:
        while True:
            kind, size = await reader.readexactly(2)  # all of these packets are shorter than 128 bytes
            body = await reader.readexactly(size)
            if kind == 0x10:
                writer.write(b"\x20\x02\x01\x00" + b"".join(publish(mid) for mid in range(1, QUEUED + 1)))
            elif kind == 0x82:
                writer.write(b"\x90\x03" + body[:2] + b"\x01")
            elif kind == 0xA2:
                writer.write(b"\xb0\x02" + body[:2])
            elif kind == 0xE0:
                return
    except (asyncio.IncompleteReadError, ConnectionError):
        return
    finally:
        writer.close()


async def test_a_queue_longer_than_the_window_does_not_hide_the_answer_to_subscribe() -> None:
    """Nothing is acknowledged here: whoever waited for that before reading on would wait for ever."""
    server = await asyncio.start_server(broker, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    came: list[Delivery] = []
    session = MqttSession(
        MqttEndpoint("tokyo", host, port), client_id="c", subscriptions=[("t", 1)], on_message=came.append, window=100
    )
    running = asyncio.create_task(session.run())
    try:
        await asyncio.wait_for(session.connected.wait(), 30)
        assert session.connections == 1
        assert len(came) == QUEUED
        assert session.full
        await session.unsubscribe("t")
    finally:
        await session.disconnect()
        await running
        server.close()


async def test_a_message_right_behind_an_answer_waits_for_nothing_else() -> None:
    """Both come in one piece: the client has the message when it takes the answer, and no poll tells of it again."""

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly((await reader.readexactly(2))[1])
        writer.write(b"\x20\x02\x01\x00")
        subscribe = await reader.readexactly((await reader.readexactly(2))[1])
        writer.write(b"\x90\x03" + subscribe[:2] + b"\x01" + publish(1))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answers, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    came = asyncio.Event()
    session = MqttSession(
        MqttEndpoint("tokyo", host, port), client_id="c", subscriptions=[("t", 1)], on_message=lambda _: came.set()
    )
    running = asyncio.create_task(session.run())
    try:
        await asyncio.wait_for(came.wait(), 10)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.close()
