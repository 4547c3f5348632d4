"""Sessions at the MQTT broker that nobody uses any more: found by their client ids, emptied, and ended.

They are left over by a change of the number of intakes, and by the nets (``edge.intakes.nets``). A session that is
ended takes with it what is queued for it, so it is emptied before; and as long as it is a member of the shared
subscription it gets its share, so that is ended first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any

from edge.errors import MqttUnavailableError
from edge.intakes.hub import Hub
from edge.intakes.names import WINDOW, intake_id, marks, nets, share
from edge.intakes.order import Source
from edge.messages import SUBSCRIPTION
from edge.mqtt import MqttSession
from edge.mqttclient import visit
from fairlead.endpoint import MqttEndpoint

log = logging.getLogger(__name__)

MOST_INTAKES = 16
_LOOK = 0.02


async def find(endpoint: MqttEndpoint, client_id: str, count: int) -> list[str]:
    """Client ids of the sessions that are left over when a bridge with so many intakes starts.

    Sessions of intakes are made in the order of their numbers, here, and ended in the other order: so there is none
    beyond one that is missing, and none of a net without that of intake 1.

    Raises:
        MqttUnavailableError, MqttRefusedError
    """
    for number in range(1, count + 1):
        await exists(endpoint, intake_id(client_id, number), keep=True)
    beyond: list[str] = []
    while await exists(endpoint, name := intake_id(client_id, count + len(beyond) + 1)):
        beyond.insert(0, name)
    if not count and not beyond:
        return []
    names = list(nets(client_id))
    there = await asyncio.gather(*(exists(endpoint, name) for name in names))
    return [*(name for name, is_there in zip(names, there, strict=True) if is_there), *beyond]


async def exists(endpoint: MqttEndpoint, name: str, *, keep: bool = False) -> bool:
    """Whether the broker has a session of this name. Asking makes one; it is ended again, unless ``keep``."""
    found = await asyncio.to_thread(visit, endpoint, name, clean=False)
    if not found and not keep:
        await end(endpoint, name)
    return found


async def end(endpoint: MqttEndpoint, name: str) -> None:
    """End a session, with all that is queued for it."""
    await asyncio.to_thread(visit, endpoint, name, clean=True)


async def empty(hub: Hub, endpoint: MqttEndpoint, client_id: str, names: Iterable[str], may_end: asyncio.Event) -> None:
    """Empty sessions, all at once because what they have belongs together, and end them.

    Args:
        client_id: The bridge's.
        may_end: Others have taken over the subscriptions.
    """
    names = list(names)
    sources = [hub.order.add(name) for name in names]  # all of them before anything comes
    await together(*(_empty(hub, endpoint, client_id, source, may_end) for source in sources))
    with contextlib.suppress(MqttUnavailableError):  # the rest is found again at the next start
        for name in names:  # in this order: see find
            await end(endpoint, name)


async def _empty(hub: Hub, endpoint: MqttEndpoint, client_id: str, source: Source, may_end: asyncio.Event) -> None:
    name = source.name
    source.away_since = time.monotonic()
    session = MqttSession(
        endpoint,
        client_id=name,
        subscriptions=[(marks(client_id), 1)],
        on_message=hub.drained(source),
        window=WINDOW,
        on_change=lambda: hub.changed(source, connected=session.connected.is_set()),
    )
    source.stuck = lambda: session.full and hub.order.holds(session.head)
    running = asyncio.create_task(session.run())
    try:
        await may_end.wait()
        while True:
            await unless_ended(running, session.connected.wait())
            try:
                await session.unsubscribe(share(client_id), SUBSCRIPTION)
                break
            except MqttUnavailableError:
                await asyncio.sleep(_LOOK)
        await unless_ended(running, hub.passed(source))
        while session.outstanding:  # noqa: ASYNC110 - mostly about Kafka
            await asyncio.sleep(_LOOK)
        if session.acknowledged > 1:
            log.info("%s: took %d messages from the session %s", endpoint.site, session.acknowledged - 1, name)
    finally:
        hub.order.remove(source)
        with contextlib.suppress(OSError):
            await session.disconnect()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def unless_ended(running: asyncio.Task[Any], waiting: Coroutine[Any, Any, Any] | Awaitable[Any]) -> None:
    """Wait for something that only comes about while a task runs; raises what the task raises."""
    wait = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait((running, wait), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        await wait
    finally:
        wait.cancel()


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Run until the first fails, or all have ended; what fails is raised, and the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
