"""An intake process: ``python -m edge.intakes.process FD``, started by ``edge.intakes.keeper`` and by nobody else.

Takes messages of the shared subscription, checks them, and hands them over; acknowledges what the core has confirmed.
It ends when the core closes the socket, or has died: what was confirmed is acknowledged, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import uvloop
from pydantic import SecretStr

from edge.acks import Ticket
from edge.classifier import Classifier
from edge.errors import MqttRefusedError
from edge.intakes.frames import (
    Confirm,
    Item,
    Items,
    NothingItem,
    Refused,
    Setup,
    State,
    Stop,
    Up,
    down_decoder,
    frame,
    read_frame,
)
from edge.intakes.sorting import Sorter
from edge.mqtt import Delivery, MqttSession
from fairlead.endpoint import MqttEndpoint
from fairlead.errors import ExitCode
from topologies.model import Topology

_FRAME_BYTES = 1 << 20  # a frame is sent when it has more payload than this, at the latest


class IntakeProcess:
    """Between one MQTT session and the core."""

    def __init__(self, setup: Setup, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        topology = Topology.model_validate_json(setup.topology)
        self._sort = Sorter(Classifier(topology, setup.site), setup.marks).sort
        self._items: list[Item] = []
        self._handed: deque[Ticket | None] = deque()
        self._confirmed = 0
        self._sending = False
        self._size = 0
        self.session = MqttSession(
            MqttEndpoint(
                setup.site,
                setup.host,
                setup.port,
                setup.user,
                SecretStr(setup.password) if setup.password is not None else None,
                Path(setup.tls_ca) if setup.tls_ca is not None else None,
                other_passwords=tuple(map(SecretStr, setup.other_passwords)),
            ),
            client_id=setup.client_id,
            subscriptions=[(setup.share, 1), (setup.marks, 1)],
            on_message=self.take,
            window=setup.window,
            on_change=self._tell,
        )

    def take(self, delivery: Delivery) -> None:
        """A message has come."""
        item = self._sort(delivery.topic, delivery.payload, delivery.redelivered, time.time_ns() // 1_000_000)
        if isinstance(item, NothingItem) and not self._handed and not self._items:
            if delivery.ticket is not None:
                self.session.finish(delivery.ticket)
            return
        self._items.append(item)
        self._handed.append(delivery.ticket)
        self._size += len(delivery.payload)
        if self._size > _FRAME_BYTES:
            self._send()
        elif not self._sending:
            self._sending = True
            asyncio.get_running_loop().call_soon(self._send)

    def confirm(self, upto: int) -> None:
        """The core has stored items up to this number."""
        while self._confirmed < upto and self._handed:
            self._confirmed += 1
            ticket = self._handed.popleft()
            if ticket is not None:
                self.session.finish(ticket)

    def tell(self, message: Up) -> None:
        if not self._writer.is_closing():  # the core may have died
            self._writer.write(frame(message))

    def _send(self) -> None:
        self._sending = False
        self._size = 0
        items, self._items = self._items, []
        if items:
            self.tell(Items(items))

    def _tell(self) -> None:
        self._send()  # what came before the connection was lost was before that
        self.tell(State(self.session.connected.is_set(), self.session.connections, self.session.sessions_lost))


async def serve(sock: socket.socket) -> int:
    """Work until the core closes the socket; the exit code."""
    asyncio.get_running_loop().set_exception_handler(_end)
    reader, writer = await asyncio.open_connection(sock=sock)
    first = await read_frame(reader)
    setup = down_decoder.decode(first) if first is not None else None
    if not isinstance(setup, Setup):
        return ExitCode.FAILED
    intake = IntakeProcess(setup, writer)
    running = asyncio.create_task(intake.session.run())
    listening = asyncio.create_task(_listen(reader, intake))
    try:
        await asyncio.wait((running, listening), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        listening.result()
    except MqttRefusedError as error:
        intake.tell(Refused(error.what, error.hint))
        return error.exit_code
    finally:
        with contextlib.suppress(OSError):
            await intake.session.disconnect()
        for task in (running, listening):
            task.cancel()
        await asyncio.gather(running, listening, return_exceptions=True)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return ExitCode.OK


def _end(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A message that was taken and not handed over would never be acknowledged: rather take it again."""
    loop.default_exception_handler(context)
    if "future" not in context:  # that is a result nobody asked for
        os._exit(ExitCode.FAILED)


async def _listen(reader: asyncio.StreamReader, intake: IntakeProcess) -> None:
    while (body := await read_frame(reader)) is not None:
        match down_decoder.decode(body):
            case Confirm(upto):
                intake.confirm(upto)
            case Stop():
                intake.session.pause()


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the core says when to end
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s intake {os.getpid()}: %(message)s")
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.setblocking(False)
    return uvloop.run(serve(sock))


if __name__ == "__main__":
    sys.exit(main())
