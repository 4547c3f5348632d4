"""One site's MQTT broker as a device sees it: what is handed over is kept until the broker has acknowledged it.

QoS 1 over paho-mqtt. Messages wait here, in order, from ``send`` until their PUBACK. When a connection ends, a new one
is made with a fresh client and everything unacknowledged is sent again, in order and before anything newer: so a
broker may get a message twice, and never a newer one of a box before an older one. (paho would also send again by
itself, but a message published between its TCP connection and its CONNACK would then overtake older ones.)

An MQTT broker that is killed forgets what it had acknowledged and not yet saved. So a device of a site whose profile
is ``durable`` keeps a message for ``MqttEndpoint.keep_seconds`` after its PUBACK, and when its connection ends it sends
those again first, in order: whatever the broker has forgotten is among them. The bridge recognises the others.

Limits: ``WINDOW`` messages under way to the broker, ``BACKLOG`` that wait for it or are under way; ``room`` waits while
the backlog is full.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from fairlead.endpoint import MqttEndpoint
from fairlead.errors import RefusedError
from simulators.connection import REFUSALS, Connection

WINDOW = 500
BACKLOG = 5_000
FIRST_DELAY, LAST_DELAY = 0.1, 5.0  # seconds between two attempts to connect

log = logging.getLogger(__name__)


class _Message(NamedTuple):
    topic: str
    payload: bytes


class Sender:
    """Publishes to one broker. Use it inside ``async with``; all calls from the same event loop.

    Args:
        client_id: MQTT client id, different for each connection to a broker at the same time.
        on_trouble: Told why the broker cannot be used, once per outage, and None when it can again.
        clock: Seconds, for how long something is kept.
    """

    def __init__(
        self,
        endpoint: MqttEndpoint,
        client_id: str,
        *,
        on_trouble: Callable[[str | None], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._client_id = client_id
        self._on_trouble = on_trouble or (lambda _: None)
        self._clock = clock
        self._kept: deque[_Message] = deque()  # unacknowledged and unsent, oldest first
        self._sent = 0  # how many of them are under way on this connection
        self._safe: deque[tuple[float, _Message]] = deque()  # acknowledged lately, and when
        self._connection: Connection | None = None
        self._changed = asyncio.Event()
        self._failure: RefusedError | None = None
        self._task: asyncio.Task[None] | None = None
        self.acknowledged = 0
        self.sent_again = 0  # of those that were acknowledged already
        self.trouble: str | None = None

    @property
    def waiting(self) -> int:
        """How many messages are not acknowledged yet."""
        return len(self._kept)

    async def __aenter__(self) -> Sender:
        self._task = asyncio.create_task(self._run(), name=f"mqtt {self._endpoint.site}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def room(self) -> None:
        """Return when ``send`` may be called once; at once unless the backlog is full.

        Raises:
            RefusedError: the broker does not take this user or password.
        """
        while len(self._kept) >= BACKLOG:
            await self._wait()
        self._raise_failure()

    def send(self, topic: str, payload: bytes) -> None:
        """Take a message: it is kept until the broker has acknowledged it, and as long as the endpoint says."""
        self._kept.append(_Message(topic, payload))
        self._publish_more()

    async def flush(self) -> None:
        """Return when every message is acknowledged, however long the broker takes.

        Raises:
            RefusedError: as ``room``.
        """
        while self._kept:
            await self._wait()
        self._raise_failure()

    async def _wait(self) -> None:
        self._raise_failure()
        self._changed.clear()
        await self._changed.wait()

    def _raise_failure(self) -> None:
        if self._failure:
            raise self._failure

    def _publish_more(self) -> None:
        connection = self._connection
        while connection is not None and self._sent < min(WINDOW, len(self._kept)):
            message = self._kept[self._sent]
            self._sent += 1
            connection.publish(message.topic, message.payload)

    # -- the connection

    async def _run(self) -> None:
        try:
            while True:
                await self._one_connection()
        except RefusedError as error:
            self._failure = error
            self._changed.set()

    async def _one_connection(self) -> None:
        """Connect, however long it takes, then stay until the connection ends."""
        delay = FIRST_DELAY
        while True:
            async with Connection(self._endpoint, self._client_id, self._acknowledge) as connection:
                problem = await connection.open()
                if problem is None:
                    self._report(None)
                    await self._use(connection)
                    return
            if problem in REFUSALS:
                raise self._refused(problem)
            self._report(problem)
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_DELAY)

    async def _use(self, connection: Connection) -> None:
        self._connection, self._sent = connection, 0
        try:
            self._publish_more()
            self._report(await connection.ended())
        finally:
            self._connection, self._sent = None, 0
            self._take_back()

    def _acknowledge(self) -> None:
        """The oldest message under way has its PUBACK."""
        message = self._kept.popleft()
        self._sent -= 1
        self.acknowledged += 1
        if self._endpoint.keep_seconds:
            self._safe.append((self._clock(), message))
            self._forget()
        self._publish_more()
        self._changed.set()

    def _forget(self) -> None:
        """Let go of what was acknowledged so long ago that the broker has saved it."""
        until = self._clock() - self._endpoint.keep_seconds
        while self._safe and self._safe[0][0] < until:
            self._safe.popleft()

    def _take_back(self) -> None:
        """The connection has ended, perhaps because the broker was killed: what it may not have saved is sent again."""
        self._forget()
        again = len(self._safe)
        self.sent_again += again
        self.acknowledged -= again
        self._kept.extendleft(message for _, message in reversed(self._safe))
        self._safe.clear()

    def _refused(self, problem: str) -> RefusedError:
        site, user = self._endpoint.site, self._endpoint.user or ""
        variable = f"FAIRLEAD_SECRET_{site}_{user}".upper().replace("-", "_")
        return RefusedError(
            f"the MQTT broker of {site} does not let user {user!r} in: {problem}",
            hint=f"its password comes from {variable}, or from secrets.json in the topology's state folder",
            site=site,
            user=user,
        )

    def _report(self, problem: str | None) -> None:
        if problem == self.trouble:
            return
        self.trouble = problem
        where = f"{self._endpoint.site} at {self._endpoint.host}:{self._endpoint.port}"
        if problem:
            log.warning("MQTT broker of %s: %s; %d messages are kept for it", where, problem, len(self._kept))
        else:
            log.info("MQTT broker of %s: connected", where)
        self._on_trouble(problem)
