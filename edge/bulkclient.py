"""paho's client for very many messages: packets are cut from what one ``recv`` brings, PUBACKs leave together.

paho reads a packet with four calls of the kernel, makes a lock and a closure for each message, and writes each PUBACK
by itself: some 25 µs of CPU a message. Here that is 2 µs. CONNECT, SUBSCRIBE, keep-alive and all else stays paho's;
this leans on names of paho 2.2 that are not public, and ``tests/unit/edge/test_bulkclient.py`` tells when they change.
"""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import MessageType, MQTTErrorCode

_RECEIVE: Final = 65536  # bytes at a time
_LONGEST_SIZE: Final = 4  # bytes of a packet's length
_U16: Final = struct.Struct(">H")
_PUBACK: Final = b"\x40\x02"
_DUP, _QOS2 = 0x08, 0x04


class Published:
    """A message as the client hands it on; the part of ``paho.MQTTMessage`` that is used."""

    __slots__ = ("_topic", "dup", "mid", "payload", "qos")

    def __init__(self, topic: bytes, mid: int, payload: bytes, qos: int, dup: bool) -> None:
        self._topic = topic
        self.mid = mid
        self.payload = payload
        self.qos = qos
        self.dup = dup

    @property
    def topic(self) -> str:
        """As paho's: ``UnicodeDecodeError`` for what is not UTF-8."""
        return self._topic.decode()


class BulkClient(paho.Client):
    """A client that an event loop drives. ``loop_read`` takes one packet, as long as there is one; what came with it in
    the same ``recv`` waits here, where no poll reports it: read on until it is ``drained``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.drained = True  # the last ``loop_read`` has found no whole packet, here or in the socket
        self._arrived = b""
        self._at = 0
        self._acks = bytearray()

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        while True:
            if self._sock is None:
                return MQTTErrorCode.MQTT_ERR_NO_CONN
            try:
                found = self._take_packet()
            except (struct.error, IndexError, ValueError):
                found = MQTTErrorCode.MQTT_ERR_PROTOCOL
            self.drained = found is None
            if found is not None:
                return self._loop_rc_handle(found) if found else found
            try:
                data = self._sock_recv(_RECEIVE)
            except BlockingIOError:
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            except OSError:
                return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
            if not data:
                return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
            self._last_bytes_received = time.monotonic()
            self._arrived = self._arrived[self._at :] + data
            self._at = 0

    def _take_packet(self) -> MQTTErrorCode | None:
        """Deal with the next packet; None while it has not arrived whole."""
        data, start = self._arrived, self._at
        if len(data) - start < 2:
            return None
        size, at = data[start + 1], start + 2
        if size > 0x7F:
            size &= 0x7F
            for shift in range(7, 7 * _LONGEST_SIZE, 7):
                if at >= len(data):
                    return None
                size |= (data[at] & 0x7F) << shift
                at += 1
                if data[at - 1] < 0x80:
                    break
            else:
                raise ValueError("the length of a packet has more than four bytes")
        end = at + size
        if end > len(data):
            return None
        self._at = end
        command = data[start]
        if command & 0xF0 == MessageType.PUBLISH and not command & _QOS2:
            self._publish(command, data, at, end)
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        self._in_packet = {
            "command": command,
            "have_remaining": 1,
            "remaining_count": [],
            "remaining_mult": 1,
            "remaining_length": size,
            "packet": bytearray(data[at:end]),
            "to_process": 0,
            "pos": 0,
        }
        return self._packet_handle()

    def _publish(self, command: int, data: bytes, at: int, end: int) -> None:
        topic_end = body = at + 2 + _U16.unpack_from(data, at)[0]
        qos = (command >> 1) & 1
        mid = 0
        if qos:
            mid = _U16.unpack_from(data, topic_end)[0]
            body += 2
        if body > end:
            raise ValueError("a PUBLISH is shorter than its topic")
        callback = self.on_message
        if callback is not None:
            message: Any = Published(data[at + 2 : topic_end], mid, data[body:end], qos, bool(command & _DUP))
            callback(self, self._userdata, message)

    def ack(self, mid: int, qos: int) -> MQTTErrorCode:
        """Acknowledge a message of QoS 1, together with others of the same turn of the event loop."""
        if not self._acks:
            asyncio.get_running_loop().call_soon(self._send_acks)
        self._acks += _PUBACK
        self._acks += _U16.pack(mid)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _send_acks(self) -> None:
        if self._acks:
            acks, self._acks = self._acks, bytearray()
            super()._packet_queue(MessageType.PUBACK, bytes(acks), 0, 1)

    def _packet_queue(self, *args: Any, **kwargs: Any) -> MQTTErrorCode:
        self._send_acks()  # what is written later must not overtake them
        return super()._packet_queue(*args, **kwargs)
