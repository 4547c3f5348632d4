"""Play a voyage: publish each message to its site's MQTT broker when it is due, and wait at barriers.

``VoyageClock`` maps simulated time to the wall clock: it has a speed and pauses, and does not catch up after a wait.
``Player`` has one ``MqttSender`` per site, opened when the site first publishes. While a broker is away, its messages
wait and none is dropped. The other sites go on until the next barrier, where every broker must have acknowledged
everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from fairlead.errors import UnavailableError
from fairlead.kafka.endpoint import MqttEndpoint
from simulators.steps import LinkChange, Publish, ShipSeized, ShipSinks, Step, VoyageBarrier
from simulators.voyage.sender import MqttSender

_SLICE = 0.25  # seconds; the longest sleep, so that a pause takes effect within them


class VoyageClock:
    """Sleeps until a simulated time is due.

    Args:
        start: Simulated time until the first call.
        speed: Simulated seconds per wall second; None is as fast as possible.
    """

    def __init__(self, start: dt.datetime, speed: float | None) -> None:
        self._origin_sim = start
        self._origin_wall: float | None = None
        self._speed = speed
        self._reached = self._next = start  # times of the last step that was due, and of the next one
        self._looked = 0.0  # wall time of the last look at the clock
        self._running = asyncio.Event()
        self._running.set()

    @property
    def paused(self) -> bool:
        return not self._running.is_set()

    @property
    def now(self) -> dt.datetime:
        """Simulated time now, not before the last step that was due and not after the next one."""
        if self._speed is None or self._origin_wall is None:
            return self._reached
        elapsed = dt.timedelta(seconds=(time.monotonic() - self._origin_wall) * self._speed)
        return min(max(self._reached, self._origin_sim + elapsed), self._next)

    def pause(self) -> None:
        """Stop simulated time."""
        if not self.paused:
            self.hold(self.now)
            self._running.clear()

    def resume(self) -> None:
        """Continue simulated time after a pause."""
        self._running.set()

    def hold(self, at: dt.datetime) -> None:
        """Continue from ``at``; the wall time since the last step does not count."""
        self._origin_sim, self._origin_wall = at, None
        self._reached = max(self._reached, at)

    def continued(self) -> None:
        """Leave out the time during which the process was stopped (Ctrl-Z); call this when it runs again."""
        if self._origin_wall is not None:
            self._origin_wall += max(0.0, time.monotonic() - self._looked - _SLICE)
            self._looked = time.monotonic()

    async def resumed(self) -> None:
        """Wait while paused."""
        await self._running.wait()

    async def due(self, sim_time: dt.datetime) -> bool:
        """Wait until ``sim_time`` is due and return True; return False as soon as the clock is paused."""
        self._next = max(sim_time, self._reached)
        if self._speed is not None and not self.paused:
            self._looked = time.monotonic()
            if self._origin_wall is None:
                self._origin_wall = self._looked
            while (delay := self._delay(sim_time)) > 0 and not self.paused:
                await asyncio.sleep(min(delay, _SLICE))
                self._looked = time.monotonic()
        if self.paused:
            return False
        self._reached = self._next
        return True

    async def until(self, sim_time: dt.datetime) -> None:
        """Wait until ``sim_time`` is due, through pauses."""
        while not await self.due(sim_time):
            await self.resumed()

    def _delay(self, sim_time: dt.datetime) -> float:
        """Return the wall seconds until a simulated time."""
        if self._speed is None or self._origin_wall is None:
            return 0.0
        due = self._origin_wall + (sim_time - self._origin_sim).total_seconds() / self._speed
        return due - time.monotonic()


_YIELD_EVERY = 64  # messages; then other tasks of the event loop run
_REPORT = 0.1  # seconds between two reports of progress
_FLUSH_SECONDS = 5.0  # seconds for acknowledgements when the voyage is interrupted

log = logging.getLogger(__name__)


class BarrierTimeout(UnavailableError):
    """The sites made no progress while the voyage waited for them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The position of a voyage. ``phase`` is ``publishing``, ``pausing`` (until all messages are acknowledged),
    ``paused``, or the name of the barrier at which it waits."""

    sim_time: dt.datetime
    published: int
    acknowledged: int
    phase: str
    troubles: dict[str, str]  # site -> why its broker cannot be used


@dataclass(slots=True)
class Played:
    """The result of a voyage. Seconds are wall time."""

    sim_time: dt.datetime | None = None
    finished: bool = False
    published: Counter[str] = field(default_factory=Counter)  # by site
    acknowledged: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    waited: list[tuple[VoyageBarrier, float]] = field(default_factory=list)

    @property
    def seconds_waited(self) -> float:
        return sum(seconds for _, seconds in self.waited)


class Player:
    """Plays one voyage.

    Args:
        endpoint: Returns the MQTT endpoint of a site for its devices.
        wait: Returns when a barrier's condition holds in the real system.
        on_progress: Called with the progress, at most ten times a second and whenever the phase changes.
        on_published: Called with each message just before it is queued for its broker, and the wall time in UTC.
        on_step: Awaited before each step. It carries out all steps but messages and barriers (links that change, ships
            that are lost), and may delay the voyage, for example to inject a fault at a certain step.
        patience: Seconds without any acknowledgement after which a voyage that waits for its brokers fails; None waits
            for ever. Pauses and ``wait`` do not count.
    """

    def __init__(
        self,
        endpoint: Callable[[str], MqttEndpoint],
        wait: Callable[[VoyageBarrier], Awaitable[None]],
        *,
        on_progress: Callable[[Progress], None] | None = None,
        on_published: Callable[[Publish, dt.datetime], None] | None = None,
        on_step: Callable[[Step], Awaitable[None]] | None = None,
        patience: float | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._wait = wait
        self._on_progress = on_progress or (lambda _: None)
        self._on_published = on_published or (lambda _message, _time: None)
        self._on_step = on_step
        self._patience = patience
        self._clock: VoyageClock | None = None
        self._paused = False
        self._senders: dict[str, MqttSender] = {}
        self._phase = "publishing"
        self._reported = 0.0
        self.played = Played()

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def clock(self) -> dt.datetime | None:
        """Simulated time now; None before the first step."""
        return self._clock.now if self._clock else None

    def pause(self) -> None:
        """Stop simulated time. Brokers still get the messages published before; when all are acknowledged, the phase is
        ``paused``. Pauses do not change what is published."""
        self._paused = True
        if self._clock:
            self._clock.pause()

    def resume(self) -> None:
        """Continue after a pause; do nothing otherwise."""
        self._paused = False
        if self._clock:
            self._clock.resume()

    def continued(self) -> None:
        """Leave out the time during which the process was stopped (SIGTSTP, SIGSTOP); call this when it runs again."""
        if self._clock:
            self._clock.continued()

    async def play(self, steps: Iterable[Step], *, speed: float | None = None) -> Played:
        """Play all steps; on return every message is acknowledged.

        When cancelled (Ctrl-C), wait up to 5 seconds for outstanding acknowledgements and close all connections;
        ``played`` then has the progress so far.

        Args:
            speed: Simulated seconds per wall second (1 is real time); None is as fast as the brokers accept messages.

        Raises:
            ValueError: ``speed`` is not above zero.
            RefusedError: a broker refuses the devices' user or password.
            BarrierTimeout: no broker has acknowledged anything for ``patience`` seconds.
            Exception: an error that ``wait`` raises.
        """
        if speed is not None and not speed > 0:
            raise ValueError("speed is above zero, or None for as fast as possible")
        began = time.monotonic()
        async with contextlib.AsyncExitStack() as stack:
            try:
                await self._play(steps, speed, stack)
                await self._flush()
                self.played.finished = True
            except asyncio.CancelledError:
                self._report(phase="interrupted")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_FLUSH_SECONDS):
                        await self._flush()
                raise
            finally:
                self.played.seconds = time.monotonic() - began
                self.played.acknowledged.update({site: s.acknowledged for site, s in self._senders.items()})
        return self.played

    async def _play(self, steps: Iterable[Step], speed: float | None, stack: contextlib.AsyncExitStack) -> None:
        since_yield = 0
        for step in steps:
            if self._clock is None:
                self._clock = VoyageClock(step.sim_time, speed)
                if self._paused:
                    self._clock.pause()
            while not await self._clock.due(step.sim_time):
                await self._wait_while_paused(self._clock)
            self.played.sim_time = step.sim_time
            if isinstance(step, ShipSinks):
                await self._end_sender(step.ship)
            if self._on_step is not None:
                await self._on_step(step)
            match step:
                case Publish():
                    await self._publish(step, stack)
                    since_yield += 1
                    if since_yield >= _YIELD_EVERY:
                        since_yield = 0
                        await asyncio.sleep(0)
                case VoyageBarrier():
                    await self._wait_at_barrier(step)
                    self._clock.hold(step.sim_time)
                case LinkChange() | ShipSinks() | ShipSeized():
                    pass  # ``on_step`` has done it
            self._report()

    async def _publish(self, message: Publish, stack: contextlib.AsyncExitStack) -> None:
        sender = self._senders.get(message.site)
        if sender is None:
            name = f"fairlead-voyage-{message.site}-{os.getpid()}"
            trouble = lambda _: self._report(now=True)  # noqa: E731
            sender = MqttSender(self._endpoint(message.site), name, on_trouble=trouble)
            self._senders[message.site] = await stack.enter_async_context(sender)
        if sender.full:
            await self._acknowledged(sender.room(), f"room for more messages to {message.site}")
        self._on_published(message, dt.datetime.now(dt.UTC))
        sender.send(message.topic, message.payload)
        self.played.published[message.site] += 1

    async def _end_sender(self, site: str) -> None:
        """Close the connection to a site that ends; messages that its broker had not saved yet are not sent again."""
        sender = self._senders.pop(site, None)
        if sender is not None:
            self.played.acknowledged[site] += sender.acknowledged
            await sender.close()

    async def _wait_while_paused(self, pace: VoyageClock) -> None:
        """Wait until the brokers have acknowledged everything, and then until ``resume``."""
        self._report(phase="pausing")
        resumed, settled = asyncio.create_task(pace.resumed()), asyncio.create_task(self._flush())
        try:
            await asyncio.wait({resumed, settled}, return_when=asyncio.FIRST_COMPLETED)
            if settled.done():
                settled.result()  # a broker's refusal ends the voyage, paused or not
                if pace.paused:
                    self._report(phase="paused")
                await resumed
        finally:
            for task in (resumed, settled):
                task.cancel()
            await asyncio.gather(resumed, settled, return_exceptions=True)
        self._report(phase="publishing")

    async def _flush(self) -> None:
        await asyncio.gather(*(sender.flush() for sender in self._senders.values()))

    async def _acknowledged(self, waiting: Coroutine[Any, Any, None], what: str) -> None:
        """Await ``waiting``; raise ``BarrierTimeout`` if no broker acknowledges anything for ``patience`` seconds."""
        task = asyncio.create_task(waiting)
        try:
            before = -1
            while not (await asyncio.wait({task}, timeout=self._patience))[0]:
                now = sum(sender.acknowledged for sender in self._senders.values())
                if now == before:
                    raise self._not_acknowledged(what)
                before = now
            task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _not_acknowledged(self, what: str) -> BarrierTimeout:
        late = {site: s.trouble or "it acknowledges nothing" for site, s in self._senders.items() if s.waiting}
        brokers = "; ".join(f"MQTT broker of {site}: {why}" for site, why in late.items())
        return BarrierTimeout(
            f"no message was acknowledged for {self._patience:.0f} s, waiting for: {what}; {brokers}",
            hint=f"look at 'fairlead status': is Mosquitto up at {' and '.join(late)}?",
            sites=sorted(late),
        )

    async def _wait_at_barrier(self, barrier: VoyageBarrier) -> None:
        """Wait for the brokers, then for the barrier's condition."""
        began = time.monotonic()
        self._report(phase=f"waiting: {barrier.description}")
        await self._acknowledged(self._flush(), barrier.description)
        await self._wait(barrier)
        seconds = time.monotonic() - began
        self.played.waited.append((barrier, seconds))
        log.info("%s: waited %.2f s for: %s", barrier.sim_time.isoformat(), seconds, barrier.description)
        self._report(phase="publishing")

    def _report(self, *, phase: str | None = None, now: bool = False) -> None:
        moment = time.monotonic()
        if phase is None and not now and moment - self._reported < _REPORT:
            return
        self._phase = phase or self._phase
        self._reported = moment
        if self._clock is None:
            return
        senders = self._senders.items()
        self._on_progress(
            Progress(
                sim_time=self._clock.now,
                published=self.played.published.total(),
                acknowledged=sum(sender.acknowledged for _, sender in senders),
                phase=self._phase,
                troubles={site: sender.trouble for site, sender in senders if sender.trouble},
            )
        )
