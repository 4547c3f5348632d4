"""What an MQTT broker does with shared subscriptions, as a model: queues, windows, acknowledgements, redelivery."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from edge.acks import Ticket
from edge.intakes.order import Order, Source


class Message(NamedTuple):
    """A reading of a device; an event that the core has itself; where ``device`` is empty, a mark of a run."""

    device: str
    sequence: int
    number: int  # in the order of publishing


class Handed(NamedTuple):
    message: Message
    ticket: Ticket


@dataclass
class Session:
    """One session: what is queued for it, and what it has not acknowledged."""

    name: str
    source: Source
    window: int
    queue: deque[Message] = field(default_factory=deque)
    unacknowledged: deque[Handed] = field(default_factory=deque)

    @property
    def full(self) -> bool:
        return len(self.unacknowledged) >= self.window


class World:
    """A broker, its sessions, and the order that they come into. ``emitted`` is what went on, per run of the core."""

    def __init__(self, seed: int, sessions: int, window: int) -> None:
        self.random = Random(seed)  # noqa: S311 - a test
        self.window = window
        self.names = ["core", *(f"intake {number}" for number in range(sessions))]
        self.queues: dict[str, deque[Message]] = {name: deque() for name in self.names}
        self.emitted: list[Message] = []
        self.published: list[Message] = []
        self.stored: set[Message] = set()
        self.handed = 0
        self.forced = 0
        self._turn = 0
        self._runs = 0
        self.start()

    # -- the core and its sessions

    def start(self) -> None:
        """A core without memory, and sessions that have acknowledged nothing of what is queued."""
        self._runs += 1
        self.order: Order[Handed] = Order(self._emit)
        self.sessions = {name: self._session(name) for name in self.names}
        self.handed = len(self.emitted)

    def kill_core(self) -> None:
        for name in self.names:
            self.lose(name)
        self.forced += self.order.forced
        self.start()

    def lose(self, name: str) -> None:
        """A session's connection is gone: what was not acknowledged is first in its queue again."""
        session = self.sessions[name]
        session.queue.extendleft(handed.message for handed in reversed(session.unacknowledged))
        session.unacknowledged.clear()

    def _session(self, name: str) -> Session:
        source = self.order.add(name)
        session = Session(name, source, self.window, self.queues[name])
        source.stuck = lambda: session.full and self.order.holds(session.unacknowledged[0].ticket)
        return session

    # -- what happens

    def publish(self, device: str, sequence: int) -> None:
        message = Message(device, sequence, len(self.published))
        self.published.append(message)
        shared = self.names[1:]
        self._turn += 1
        self.queues[shared[self._turn % len(shared)]].append(message)

    def event(self, sequence: int) -> None:
        message = Message("event", sequence, len(self.published))
        self.published.append(message)
        self.queues["core"].append(message)

    def deliver(self, name: str) -> bool:
        """The next message of a session, if it can take one."""
        session = self.sessions[name]
        if session.full or not session.queue:
            return False
        message = session.queue.popleft()
        ticket = Ticket(0, 0)
        handed = Handed(message, ticket)
        session.unacknowledged.append(handed)
        if not message.device:
            if message.number == -self._runs:
                self.order.mark(session.source, message.sequence)
            ticket.parts = 0
        else:
            self.handed += 1
            if message.device == "event":
                self.order.behind(session.source, handed, ticket)
            else:
                self.order.reading(session.source, message.device, 0, message.sequence, handed, ticket)
        self.settle()
        return True

    def settle(self) -> None:
        self.order.settle(0.0)
        if self.order.wants_mark:
            self.order.issued += 1
            for queue in self.queues.values():
                queue.append(Message("", self.order.issued, -self._runs))
        for session in self.sessions.values():
            while session.unacknowledged and session.unacknowledged[0].ticket.parts == 0:
                session.unacknowledged.popleft()

    def drain(self) -> None:
        """Everything that can come comes."""
        while any([self.deliver(name) for name in self.random.sample(self.names, len(self.names))]):
            pass

    def _emit(self, handed: Handed) -> None:
        handed.ticket.parts = 0
        self.emitted.append(handed.message)
        self.stored.add(handed.message)

    # -- what must be so

    def firsts(self, device: str) -> list[Message]:
        """A device's messages in the order in which they first went on."""
        return list(dict.fromkeys(message for message in self.emitted if message.device == device))
