"""Plays a voyage: publishes each message to its site's MQTT broker when its time has come, and waits at barriers.

One ``Sender`` per site, opened when the site first has something to say. A broker that is away keeps its site's
messages waiting, never dropped, while the other sites go on; a barrier holds all of them, because before it everything
published is acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from fairlead.endpoint import MqttEndpoint
from fairlead.errors import UnavailableError
from simulators.pace import Pace
from simulators.sender import Sender
from simulators.steps import Barrier, LinkChange, Publish, Step

_BREATHE = 64  # messages between two chances for the rest of the event loop
_REPORT = 0.1  # seconds between two reports of progress
_LAST_WORDS = 5.0  # seconds for acknowledgements when the voyage is interrupted

log = logging.getLogger(__name__)


class BarrierTooLong(UnavailableError):
    """The real system did not get to where the voyage waits for it, in the time that it was given."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a voyage is. ``phase`` says what it does: ``publishing``, ``pausing`` (until all that was published is
    acknowledged), ``paused``, or what it waits for."""

    sim_time: dt.datetime
    published: int
    acknowledged: int
    phase: str
    troubles: dict[str, str]  # site -> why its broker cannot be used


@dataclass(slots=True)
class Played:
    """What was done. Seconds are wall time."""

    sim_time: dt.datetime | None = None
    finished: bool = False
    published: Counter[str] = field(default_factory=Counter)  # by site
    acknowledged: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    waited: list[tuple[Barrier, float]] = field(default_factory=list)

    @property
    def seconds_waited(self) -> float:
        return sum(seconds for _, seconds in self.waited)

    @property
    def unacknowledged(self) -> dict[str, int]:
        """Messages that an interrupted voyage handed over and no broker has confirmed."""
        return dict(self.published - self.acknowledged)


async def no_wait(barrier: Barrier) -> None:
    """For brokers with nothing behind them: every barrier is open."""


class Player:
    """Plays one voyage.

    Args:
        endpoint: The MQTT broker of a site, for its devices.
        wait: Returns when a barrier's condition holds in the real system.
        speed: Simulated seconds per wall second (1 is real time); None is as fast as the brokers take it.
        on_progress: Told where the voyage is, at most ten times a second and whenever the phase changes.
        on_published: Told of each message as it is handed to its broker, with the wall's time in UTC: the place for
            ``Truth.record``.
        on_step: Awaited before each step: tells, for faults that must strike at a certain point of the voyage, where
            it is, and holds it there.
        on_link: Switches a link; a scenario with link outages needs it.
        barrier_timeout: Seconds that one barrier may take; None leaves that to ``wait``.
    """

    def __init__(
        self,
        endpoint: Callable[[str], MqttEndpoint],
        wait: Callable[[Barrier], Awaitable[None]],
        *,
        speed: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        on_published: Callable[[Publish, dt.datetime], None] | None = None,
        on_step: Callable[[Step], Awaitable[None]] | None = None,
        on_link: Callable[[LinkChange], Awaitable[None]] | None = None,
        barrier_timeout: float | None = None,
    ) -> None:
        if speed is not None and not speed > 0:
            raise ValueError("speed is above zero, or None for as fast as it goes")
        self._endpoint = endpoint
        self._wait = wait
        self._speed = speed
        self._on_progress = on_progress or (lambda _: None)
        self._on_published = on_published or (lambda _message, _time: None)
        self._on_step = on_step
        self._on_link = on_link
        self._barrier_timeout = barrier_timeout
        self._pace: Pace | None = None
        self._paused = False
        self._senders: dict[str, Sender] = {}
        self._phase = "publishing"
        self._reported = 0.0
        self.played = Played()

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def clock(self) -> dt.datetime | None:
        """Simulated time now; None before the first step."""
        return self._pace.now if self._pace else None

    def pause(self) -> None:
        """Stop simulated time. Brokers still get what was published before; when all is acknowledged, the phase is
        ``paused``. What is published does not depend on pauses."""
        self._paused = True
        if self._pace:
            self._pace.pause()

    def resume(self) -> None:
        """Go on where it was paused; without effect when it is not."""
        self._paused = False
        if self._pace:
            self._pace.resume()

    def continued(self) -> None:
        """The process was stopped (SIGTSTP, SIGSTOP) and goes on: the time in between does not count."""
        if self._pace:
            self._pace.continued()

    async def play(self, steps: Iterable[Step]) -> Played:
        """Play all steps; on return every message is acknowledged.

        Cancelled (Ctrl-C), it waits a few seconds for acknowledgements that are under way and closes all connections;
        ``played`` then tells how far it came.

        Raises:
            RefusedError: a broker refuses the devices' user or password.
            BarrierTooLong: a barrier took longer than ``barrier_timeout``; what ``wait`` raises passes through.
        """
        began = time.monotonic()
        async with contextlib.AsyncExitStack() as stack:
            try:
                await self._play(steps, stack)
                await self._flush()
                self.played.finished = True
            except asyncio.CancelledError:
                self._report(phase="interrupted")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_WORDS):
                        await self._flush()
                raise
            finally:
                self.played.seconds = time.monotonic() - began
                self.played.acknowledged.update({site: s.acknowledged for site, s in self._senders.items()})
        return self.played

    async def _play(self, steps: Iterable[Step], stack: contextlib.AsyncExitStack) -> None:
        since_breath = 0
        for step in steps:
            if self._pace is None:
                self._pace = Pace(step.sim_time, self._speed)
                if self._paused:
                    self._pace.pause()
            while not await self._pace.due(step.sim_time):
                await self._stand_still(self._pace)
            self.played.sim_time = step.sim_time
            if self._on_step is not None:
                await self._on_step(step)
            match step:
                case Publish():
                    await self._publish(step, stack)
                    since_breath += 1
                    if since_breath >= _BREATHE:
                        since_breath = 0
                        await asyncio.sleep(0)
                case Barrier():
                    await self._stand(step)
                    self._pace.hold(step.sim_time)
                case LinkChange():
                    await self._switch(step)
            self._report()

    async def _publish(self, message: Publish, stack: contextlib.AsyncExitStack) -> None:
        sender = self._senders.get(message.site)
        if sender is None:
            name = f"fairlead-voyage-{message.site}-{os.getpid()}"
            trouble = lambda _: self._report(now=True)  # noqa: E731
            sender = Sender(self._endpoint(message.site), name, on_trouble=trouble)
            self._senders[message.site] = await stack.enter_async_context(sender)
        await sender.room()
        self._on_published(message, dt.datetime.now(dt.UTC))
        sender.send(message.topic, message.payload)
        self.played.published[message.site] += 1

    async def _stand_still(self, pace: Pace) -> None:
        """Paused: let the brokers take what was published, and wait to be resumed."""
        self._report(phase="pausing")
        resumed, settled = asyncio.create_task(pace.resumed()), asyncio.create_task(self._flush())
        try:
            await asyncio.wait({resumed, settled}, return_when=asyncio.FIRST_COMPLETED)
            if settled.done():
                settled.result()  # a broker that refuses ends the voyage, paused or not
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

    async def _stand(self, barrier: Barrier) -> None:
        """Wait for the brokers, then for what the barrier says."""
        began = time.monotonic()
        self._report(phase=f"waiting: {barrier.description}")
        try:
            async with asyncio.timeout(self._barrier_timeout) as limit:
                await self._flush()
                await self._wait(barrier)
        except TimeoutError as error:
            if not limit.expired():
                raise
            away = {site: s.trouble for site, s in self._senders.items() if s.trouble}
            brokers = "; ".join(f"MQTT broker of {site}: {why}" for site, why in away.items())
            raise BarrierTooLong(
                f"waited {self._barrier_timeout:.0f} s for: {barrier.description} ({barrier.kind})"
                + (f"; {brokers}" if brokers else ""),
                hint="look at 'fairlead status' and at the logs of the bridge and replicator of "
                + " and ".join(site for site in (barrier.site, barrier.peer) if site),
                barrier=barrier.kind.value,
                site=barrier.site,
                peer=barrier.peer,
            ) from error
        seconds = time.monotonic() - began
        self.played.waited.append((barrier, seconds))
        log.info("%s: waited %.2f s for: %s", barrier.sim_time.isoformat(), seconds, barrier.description)
        self._report(phase="publishing")

    async def _switch(self, change: LinkChange) -> None:
        if self._on_link is None:
            raise UnavailableError(
                f"the scenario switches the link between {' and '.join(change.between)}, and nothing here can do that",
                hint="play a scenario without 'links', or give the player on_link",
            )
        await self._on_link(change)

    def _report(self, *, phase: str | None = None, now: bool = False) -> None:
        moment = time.monotonic()
        if phase is None and not now and moment - self._reported < _REPORT:
            return
        self._phase = phase or self._phase
        self._reported = moment
        if self._pace is None:
            return
        senders = self._senders.items()
        self._on_progress(
            Progress(
                sim_time=self._pace.now,
                published=self.played.published.total(),
                acknowledged=sum(sender.acknowledged for _, sender in senders),
                phase=self._phase,
                troubles={site: sender.trouble for site, sender in senders if sender.trouble},
            )
        )
