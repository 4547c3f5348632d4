"""Control the proxies of another process: ``python -m simulators.network.control_client SOCKET``.

Reads orders from standard input, one a line, and writes the answers to standard output. The orders hold until the input
ends. ``ControlClient`` does the same from Python.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Final, Self

import msgspec

from fairlead.errors import UnavailableError
from simulators.network.registry import Order, OrderAnswer

_PATIENCE: Final = 60.0  # seconds


class ControlClient:
    """Controls the proxies that are served at a socket, while it is entered; afterwards their weather ends.

    Blocking: an order takes a millisecond.
    """

    def __init__(self, at: Path) -> None:
        self._at = at
        self._socket = socket.socket(socket.AF_UNIX)
        self._answers = self._socket.makefile("rb")

    def send(self, order: Order) -> OrderAnswer:
        """Send an order to the server; return its answer once the order is carried out.

        Raises:
            UnavailableError: no server answers, or it refused the order.
        """
        try:
            self._socket.sendall(msgspec.json.encode(order) + b"\n")
            line = self._answers.readline()
        except OSError as error:
            raise self._gone(str(error)) from error
        if not line:
            raise self._gone("it has ended")
        answer = msgspec.json.decode(line, type=OrderAnswer)
        if answer.refused:
            raise self._gone(answer.refused)
        return answer

    def _gone(self, why: str) -> UnavailableError:
        return UnavailableError(
            f"the proxies at {self._at} cannot be controlled: {why}",
            hint="is the container 'links' up, and does no other voyage sail? --calm sails without weather",
        )

    def __enter__(self) -> Self:
        self._socket.settimeout(_PATIENCE)
        try:
            self._socket.connect(str(self._at))
        except OSError as error:
            self.__exit__()
            raise self._gone(str(error)) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()


def send_orders(at: Path) -> None:
    """Send orders from standard input, and write the answers to standard output, until the input ends."""
    with ControlClient(at) as client:
        for order in sys.stdin.buffer:
            answer = client.send(msgspec.json.decode(order, type=Order))
            sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    send_orders(Path(sys.argv[1]))
