"""A relay in front of a broker that closes connections during the SASL handshake."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from io import BufferedIOBase
from typing import IO

from fairlead.kafka.endpoint import KafkaEndpoint
from tests.support.waits import PATIENCE

_SASL_HANDSHAKE = 17  # API key of the request


@contextlib.contextmanager
def cut_at_handshake(endpoint: KafkaEndpoint, times: int | None = None) -> Iterator[KafkaEndpoint]:
    """Return an endpoint behind a relay that cuts the first ``times`` connections, or all of them without ``times``.

    It cuts a connection as soon as the client asks for a SASL mechanism. A client sees the same when a broker is
    overloaded or shutting down.
    """
    handshakes = itertools.count()
    opened: list[socket.socket] = []

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            client = self.request
            with (
                socket.create_connection(endpoint.bootstrap[0], timeout=PATIENCE) as broker,
                client.makefile("rb") as sent,
            ):
                opened.extend((client, broker))
                back = threading.Thread(target=_pump, args=(broker, client))
                back.start()
                while frame := read_frame(sent):
                    if struct.unpack_from(">h", frame, 4)[0] == _SASL_HANDSHAKE and (
                        times is None or next(handshakes) < times
                    ):
                        break
                    broker.sendall(frame)
                _shut(broker)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            host, port = server.server_address[:2]
            yield dataclasses.replace(endpoint, bootstrap=((str(host), port),))
        finally:
            server.shutdown()
            serving.join()
            for each in opened:
                _shut(each)


def read_frame(sent: IO[bytes] | BufferedIOBase) -> bytes:
    """Read a request with its length prefix; return nothing at the end of the stream."""
    with contextlib.suppress(OSError):
        head = sent.read(4)
        body = sent.read(struct.unpack(">i", head)[0]) if len(head) == 4 else b""
        return head + body if body else b""
    return b""


def _pump(broker: socket.socket, client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := broker.recv(1 << 16):
            client.sendall(data)
    _shut(client)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
