"""Lines that another process holds (``server``), led from here. Blocking: an order takes a millisecond."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final, Self

import msgspec

from fairlead.errors import UnavailableError
from simulators.network.orders import Answer, Order

_PATIENCE: Final = 60.0  # seconds


class RemoteLines:
    """Leads the lines that are served at a socket, while it is entered; they are calm afterwards."""

    def __init__(self, at: Path) -> None:
        self._at = at
        self._socket = socket.socket(socket.AF_UNIX)
        self._answers = self._socket.makefile("rb")

    def give(self, order: Order) -> Answer:
        """Have an order carried out.

        Raises:
            UnavailableError: nobody is there, or the order was refused.
        """
        try:
            self._socket.sendall(msgspec.json.encode(order) + b"\n")
            line = self._answers.readline()
        except OSError as error:
            raise self._gone(str(error)) from error
        if not line:
            raise self._gone("it has ended")
        answer = msgspec.json.decode(line, type=Answer)
        if answer.refused:
            raise self._gone(answer.refused)
        return answer

    def _gone(self, why: str) -> UnavailableError:
        return UnavailableError(
            f"the lines at {self._at} do not do what they are told: {why}",
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
