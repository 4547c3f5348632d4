"""Keeps one intake process running: starts it, takes its frames, and starts it again when it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from edge.errors import IntakeError, MqttRefusedError
from edge.intakes.frames import Items, Refused, Setup, State, Stop, read_frame, up_decoder
from edge.intakes.hub import Hub
from edge.intakes.link import Link

log = logging.getLogger(__name__)

_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0
_LASTING = 10.0
_PATIENCE = 10.0  # seconds from closing its socket until an intake is killed
_LOOK = 0.05
_BUFFER = 1 << 20


class Keeper:
    """One intake.

    Args:
        setup: Asked for what it is to do at every start: passwords change.
        name: For messages.
    """

    def __init__(self, hub: Hub, setup: Callable[[], Setup], name: str) -> None:
        self._hub = hub
        self._ask = setup
        self._setup = setup()
        self.name = name
        self.source = hub.order.add(self._setup.client_id, self._is_stuck)
        hub.changed(self.source, connected=False)
        self._link: Link | None = None
        self._links: list[Link] = []  # of processes that have ended, as long as something of theirs is not stored
        self._closing = False
        self._process: asyncio.subprocess.Process | None = None
        self._state = State(False, 0, 0)
        self.subscribed = asyncio.Event()
        self.started = 0
        self._taken = 0
        self._confirmed = 0

    @property
    def outstanding(self) -> int:
        """Messages that came from it and are not confirmed."""
        return sum(link.outstanding for link in self._links)

    @property
    def acknowledged(self) -> int:
        """Items that were confirmed to it, its marks among them."""
        return self._confirmed + (self._link.confirmed if self._link else 0)

    @property
    def sessions_lost(self) -> int:
        return self._state.sessions_lost

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "name": self.name,
            "pid": self._process.pid if self._process and self._process.returncode is None else None,
            "connected": self.subscribed.is_set(),
            "taken": self._taken + (self._link.taken if self._link else 0),
            "unconfirmed": self.outstanding,
            "restarts": max(0, self.started - 1),
        }

    async def run(self) -> None:
        """Until ``close``, or until cancelled.

        Raises:
            MqttRefusedError: the MQTT broker refuses it.
        """
        delay, loop = _FIRST_DELAY, asyncio.get_running_loop()
        while not self._closing:
            began = loop.time()
            code = await self._run_once()
            if self._closing:
                return
            delay = _FIRST_DELAY if loop.time() - began > _LASTING else min(delay * 2, _LONGEST_DELAY)
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"has ended with code {code}"
            log.error("%s %s and is started again; nothing is lost by that", self.name, how)
            await asyncio.sleep(delay)
            while self.outstanding > self._setup.window and not self._closing:
                await asyncio.sleep(_LOOK)
                self._forget()

    def pause(self) -> None:
        """Have it take no more messages."""
        self._closing = True
        if self._link is not None:
            self._link.send(Stop())

    async def close(self) -> None:
        """Let it acknowledge what is confirmed, and end."""
        self.pause()
        if self._link is not None:
            self._link.close()
        if self._process is not None:
            await _ended(self._process)

    async def _run_once(self) -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "edge.intakes.process",
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the core, which ends it in order
            )
        self.started += 1
        try:
            reader, writer = await asyncio.open_connection(sock=ours, limit=_BUFFER)
            self._forget()
            self._setup = self._ask()
            self._link = link = Link(writer, self._setup.window)
            self._links.append(link)
            link.send(self._setup)
            try:
                await self._listen(reader, link)
            finally:
                link.close()
                self._link = None
                self._taken += link.taken
                self._confirmed += link.confirmed
                self._set_state(State(False, self._state.connections, self._state.sessions_lost))
            return await _ended(process)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()

    async def _listen(self, reader: asyncio.StreamReader, link: Link) -> None:
        while (body := await read_frame(reader)) is not None:
            match up_decoder.decode(body):
                case Items(items):
                    self._hub.items(self.source, items, link.received)
                case State() as state:
                    self._set_state(state)
                case Refused(what, hint):
                    if self._ask() == self._setup:
                        raise MqttRefusedError(what, hint=hint)
                    return  # it is told another password at its next start
                case _:
                    raise IntakeError(f"{self.name} sent something else than items")

    def _set_state(self, state: State) -> None:
        self._state = state
        if state.connected:
            self.subscribed.set()
        else:
            self.subscribed.clear()
        self._hub.changed(self.source, connected=state.connected)

    def _is_stuck(self) -> bool:
        return self._link is not None and self._link.full and self._hub.order.holds(self._link.head)

    def _forget(self) -> None:
        self._links = [link for link in self._links if link is self._link or link.outstanding]


async def _ended(process: asyncio.subprocess.Process) -> int:
    try:
        return await asyncio.wait_for(process.wait(), _PATIENCE)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return await process.wait()
