"""A cheap MQTT publisher: readings of very many boxes over one connection, QoS 1, a few microseconds each.

paho takes 60 µs of CPU to publish a message, as much as what is to be measured. This writes the packets of MQTT 3.1.1
itself, many in one write, and counts the acknowledgements; it does nothing else that a client of MQTT has to do.
"""

from __future__ import annotations

import datetime as dt
import signal
import socket
import struct
import time
from collections.abc import Sequence
from multiprocessing.sharedctypes import Synchronized
from typing import Final

import msgspec

from benchmarks.harbour import reading_body
from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.kafka.protocol.coding import encode_unsigned  # MQTT writes its lengths the same way

AT_ONCE: Final = 50  # messages in a write
UNDER_WAY: Final = 1000  # not yet acknowledged
STUCK_SECONDS: Final = 60.0
_ACK_BYTES: Final = 4
_MIDS: Final = 65_535
_TIME: Final = "(time)"
_SEQUENCE: Final = 123456789
_U16: Final = struct.Struct(">H")


def run(
    endpoint: MqttEndpoint,
    numbers: Sequence[str],
    first: int,
    rounds: int,
    sent: Synchronized[int],
    taken: Synchronized[int] | None,
    ahead: int,
) -> None:
    """A process: ``rounds`` readings of every box in turn, with the sequences from ``first`` on.

    Args:
        sent: Set to how many the MQTT broker has acknowledged.
        taken: Never be more than ``ahead`` messages beyond what this has grown since the start; None for no limit.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the harness, which stops its processes
    boxes = [_Box(number) for number in numbers]
    line = _Line(endpoint)
    before = taken.value if taken is not None else 0
    count = 0
    packets: list[bytes] = []
    for sequence in range(first, first + rounds):
        for start in range(0, len(boxes), AT_ONCE):
            now = dt.datetime.now(dt.UTC).isoformat().encode()
            packets = [
                box.packet(sequence, now, (count + nth) % _MIDS + 1)
                for nth, box in enumerate(boxes[start : start + AT_ONCE])
            ]
            while taken is not None and count + len(packets) - (taken.value - before) > ahead:
                time.sleep(0.002)
            line.send(packets)
            count += len(packets)
            sent.value = line.acknowledged
    line.close()
    sent.value = line.acknowledged


class _Box:
    """One container's messages: all but time, sequence and packet identifier is made once."""

    __slots__ = ("_before", "_between", "_size", "_topic")

    def __init__(self, number: str) -> None:
        payload = msgspec.json.encode(reading_body(number, _SEQUENCE, _TIME))
        before, _, rest = payload.partition(b"%d" % _SEQUENCE)
        between, _, after = rest.partition(_TIME.encode())
        self._before = before
        self._between = (between, after)
        topic = f"fairlead/v1/containers/{number}/readings".encode()
        self._topic = _U16.pack(len(topic)) + topic
        self._size = len(self._topic) + 2 + len(before) + len(between) + len(after)

    def packet(self, sequence: int, now: bytes, mid: int) -> bytes:
        counter = b"%d" % sequence
        size = self._size + len(counter) + len(now)
        between, after = self._between
        return b"".join(
            (
                b"\x32",  # PUBLISH, QoS 1
                encode_unsigned(size),
                self._topic,
                _U16.pack(mid),
                self._before,
                counter,
                between,
                now,
                after,
            )
        )


class _Line:
    """A connection to the MQTT broker that only publishes."""

    def __init__(self, endpoint: MqttEndpoint) -> None:
        self.acknowledged = 0
        self._sent = 0
        self._bytes = 0
        self._socket = socket.create_connection((endpoint.host, endpoint.port), timeout=STUCK_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(_connect(endpoint))
        answer = self._socket.recv(4, socket.MSG_WAITALL)
        if answer != b"\x20\x02\x00\x00":
            raise SystemExit(f"the MQTT broker refused the benchmark's publisher: {answer.hex()}")

    def send(self, packets: Sequence[bytes]) -> None:
        self._socket.sendall(b"".join(packets))
        self._sent += len(packets)
        self._wait(UNDER_WAY)

    def close(self) -> None:
        """Return when everything is acknowledged."""
        self._wait(0)
        self._socket.sendall(b"\xe0\x00")
        self._socket.close()

    def _wait(self, under_way: int) -> None:
        while self._sent - self.acknowledged > under_way:
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                raise SystemExit(f"the MQTT broker took nothing for {STUCK_SECONDS:g} s") from None
            if not data:
                raise SystemExit("the MQTT broker closed the publisher's connection")
            self._bytes += len(data)
            self.acknowledged = self._bytes // _ACK_BYTES


def _connect(endpoint: MqttEndpoint) -> bytes:
    user, password = (endpoint.user or "").encode(), (endpoint.password.get_secret_value() if endpoint.password else "")
    fields = [b"", user, password.encode()]  # no client id: the broker makes one
    body = b"\x00\x04MQTT\x04\xc2\x00\x00" + b"".join(_U16.pack(len(each)) + each for each in fields)
    return b"\x10" + encode_unsigned(len(body)) + body
