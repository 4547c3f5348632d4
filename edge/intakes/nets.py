"""Nets: what catches messages that the MQTT broker gives to no intake, because it has just started again.

Mosquitto 2.0 keeps sessions over a restart, and plain subscriptions, but forgets shared ones. What is published
between its start and the intakes' next SUBSCRIBE is acknowledged to the device and, without a subscriber, dropped. So
there is always one more session, with a plain subscription and not connected: a net. What is queued for it is thrown
away, unread, every ``EVERY`` seconds, by putting up a fresh net and ending the old ones. Only when the core's own
connection has been lost in the meantime, and when the bridge starts, are they emptied instead, after the intakes are
subscribed again; what the intakes had as well is recognised as a repeat.

An old net is ended only when a mark that was published after the fresh one was put up has come back over the same
connection: the broker has not been started again since.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection

from edge.errors import MqttUnavailableError
from edge.intakes.hub import Hub
from edge.intakes.leftovers import empty, end, exists
from edge.intakes.names import nets
from edge.intakes.order import Source
from edge.messages import SUBSCRIPTION
from edge.mqtt import MqttSession
from edge.mqttclient import visit
from fairlead.endpoint import MqttEndpoint, MqttWay, current

log = logging.getLogger(__name__)

EVERY = 10.0


class Nets:
    """Keeps a net up.

    Args:
        session, core: The core's own.
        subscribed: Waits until all intakes are subscribed, on connections made after now if these were lost.
    """

    def __init__(
        self,
        hub: Hub,
        endpoint: MqttWay,
        client_id: str,
        session: MqttSession,
        core: Source,
        subscribed: Callable[[], Awaitable[None]],
        *,
        every: float = EVERY,
    ) -> None:
        self._hub = hub
        self._way = endpoint
        self._client_id = client_id
        self._session = session
        self._core = core
        self._subscribed = subscribed
        self._every = every
        self._seen = 0  # connections of the core's session when the nets were last emptied
        self._up: list[str] = []
        self._sure = True  # those are all
        self._changed = asyncio.Event()
        self.emptied = 0

    @property
    def _endpoint(self) -> MqttEndpoint:
        return current(self._way)

    def changed(self) -> None:
        """The core's session is connected, or not any more."""
        self._changed.set()

    async def begin(self, leftovers: list[str]) -> list[str]:
        """Put the first net up; gives those of the sessions left over that are to be emptied and ended. Where they have
        all names of nets, one of them stays up as it is."""
        if await self.put_up(leftovers):
            return leftovers
        kept = next(iter(nets(self._client_id)))
        self._up.append(kept)
        return [name for name in leftovers if name != kept]

    async def put_up(self, taken: Collection[str]) -> bool:
        """A fresh net, under a name that is not taken; False when all of them are."""
        name = next((name for name in nets(self._client_id) if name not in taken), None)
        if name is not None:
            self._up.append(name)
            await asyncio.to_thread(visit, self._endpoint, name, clean=False, subscribe=SUBSCRIPTION)
        return name is not None

    async def run(self) -> None:
        """Renew the net again and again; until cancelled. Nobody else may be emptying a net."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    while self._session.connections <= self._seen:
                        self._changed.clear()
                        await self._changed.wait()
            await self._session.connected.wait()
            try:
                await self.renew()
            except MqttUnavailableError as error:
                self._sure = False
                log.info("%s; the net is renewed later", error.what)
                await asyncio.sleep(1.0)

    async def renew(self) -> None:
        """A fresh net, and away with those before it: unread, or emptied where they may be needed."""
        connections = self._session.connections

        def alive() -> bool:
            return self._session.connections == connections and self._session.connected.is_set()

        lost = connections > self._seen
        if lost:
            await self._subscribed()
        if lost or not self._sure:
            self._up = [name for name in nets(self._client_id) if await exists(self._endpoint, name)]
            self._sure = True
        old = tuple(self._up)
        fresh = await self.put_up(old)
        if not await self._hub.passed(self._core, alive=alive):
            return
        if lost:
            if self._seen:
                log.warning("%s: the MQTT broker may have been started again; taking what it kept", self._endpoint.site)
            go = asyncio.Event()
            go.set()
            done = old if fresh else old[1:]
            await empty(self._hub, self._endpoint, self._client_id, done, go)
            self.emptied += 1
            if fresh:
                self._seen = connections
        else:
            done = old if fresh else old[1:]
            for name in done:
                await end(self._endpoint, name)
        self._up = [name for name in self._up if name not in done]
