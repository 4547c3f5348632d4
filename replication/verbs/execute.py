"""Carries out a plan, step by step; the first thing that is not as the plan needs it ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from fairlead.errors import FairleadError, RefusedError, UnavailableError
from fairlead.wire.types import TopicPartition
from replication.orders import Order
from replication.states import LinkState
from replication.verbs.explain import describe
from replication.verbs.ground import Ground
from replication.verbs.plan import (
    AwaitActed,
    AwaitFollowing,
    LogEnd,
    Plan,
    Settle,
    Step,
    StillEqual,
    TellMissing,
    WriteOrders,
)
from replication.verbs.status import shows

WAIT: Final = 30.0  # seconds for a replicator to act: it looks for topics every few seconds and reports each second
QUIET: Final = 1.0  # seconds without an append after which nothing is in flight any more
PAUSE: Final = 0.1
Progress = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What was done, in sentences; and the sites whose replicator will act only when it runs."""

    done: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)


class Executor:
    """Carries out one plan on a ground.

    Args:
        wait: Seconds for a replicator to act.
        quiet: Seconds without an append after which a released log is taken to have its last one.
        progress: Hears what it waits for.
    """

    def __init__(
        self,
        ground: Ground,
        *,
        wait: float = WAIT,
        quiet: float = QUIET,
        progress: Progress = lambda text: None,
    ) -> None:
        self._ground = ground
        self._quiet_seconds = quiet
        self._wait = wait
        self._progress = progress
        self._positions: dict[str, int] = {}  # per site, the offset after what was written there
        self._outcome = Outcome()

    async def run(self, plan: Plan) -> Outcome:
        """Carry out the steps in order.

        Raises:
            RefusedError: something changed since the plan was made, or while it was carried out; nothing is released.
            UnavailableError: an order is written, but its effect does not show; ``fields["written"]`` says where.
        """
        for step in plan.steps:
            await self._do(step)
        return self._outcome

    async def _do(self, step: Step) -> None:
        match step:
            case Settle():
                await self._settle(step)
            case WriteOrders(site, orders):
                self._progress(f"writing to {site}")
                self._positions[site] = await self._ground.append(site, orders)
                self._outcome.done += [f"written at {site}: {describe(order)}" for order in orders]
            case AwaitActed(site, orders):
                await self._await_acted(site, orders)
            case StillEqual():
                await self._still_equal(step)
            case TellMissing():
                await self._tell_missing(step)
            case AwaitFollowing():
                await self._await_following(step)

    async def _settle(self, step: Settle) -> None:
        self._progress(f"asking {step.source} and {step.target} for {step.seconds:g} s")
        wanted = _offsets(step.ends)
        until = time.monotonic() + step.seconds
        while True:
            for site in (step.target, step.source):
                moved = _first_moved(wanted, await self._ends(site, step.ends))
                if moved is not None:
                    log, before, now = moved
                    raise RefusedError(
                        f"{log} is still written: its end at {site} went from {before} to {now}",
                        hint="stop its writers first; or failover, which does not wait for them",
                        log=log,
                        site=site,
                    )
            if time.monotonic() >= until:
                return
            await asyncio.sleep(PAUSE)

    async def _await_acted(self, site: str, orders: Sequence[Order]) -> None:
        position = self._positions[site]
        deadline = time.monotonic() + self._wait
        self._progress(f"waiting for the replicator of {site}")
        while True:
            status = self._ground.status(site)
            if status is None or not status.running:
                self._outcome.pending.append(site)
                self._outcome.done.append(f"no replicator runs at {site}: it is acted on when it starts")
                return
            if shows(status, orders, position):
                self._outcome.done.append(f"the replicator of {site} has acted on it")
                return
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"the order is written at {site}, but its replicator has not acted on it within {self._wait:g} s",
                    hint="fairlead status; it acts on it when it can, and --wait waits longer",
                    site=site,
                    written=position,
                )
            await asyncio.sleep(PAUSE)

    async def _still_equal(self, step: StillEqual) -> None:
        try:
            moved = _first_moved(_offsets(step.ends), await self._ends(step.source, step.ends))
            why = f"records came to {moved[0]} at {step.source} ({moved[1]} to {moved[2]})" if moved else ""
        except FairleadError as error:
            why = f"{step.source} went away ({error.what})"
        if why:
            await self._ground.append(step.target, step.undo)
            raise RefusedError(
                f"{why} while the order was carried out; it was taken back",
                hint="stop the writers first; or failover, which does not wait for them",
                source=step.source,
                target=step.target,
            )
        self._outcome.done.append(f"{step.source} has nothing that {step.target} has not")

    async def _tell_missing(self, step: TellMissing) -> None:
        here = await self._quiet(step)
        try:
            there = await self._ends(step.source, step.ends)
        except FairleadError:
            there = None
        for each in step.ends:
            end = here.get(each.log, each.end)
            if there is None:
                what = f"{step.source} may have records from {end} on that {step.target} has not"
            elif there.get(each.log, 0) > end:
                what = f"{step.source} has offsets {end} to {there[each.log] - 1}, which {step.target} has not"
            else:
                what = f"{step.target} has all that {step.source} has"
            self._outcome.done.append(f"{each.log} ends at {end}: {what}")

    async def _quiet(self, step: TellMissing) -> dict[str, int]:
        """Where the target's logs end once nothing moves there: what was in flight when they were let go has landed."""
        self._progress(f"waiting until nothing is appended at {step.target}")
        deadline = time.monotonic() + self._wait
        ends, since = await self._ends(step.target, step.ends), time.monotonic()
        while time.monotonic() - since < self._quiet_seconds:
            await asyncio.sleep(PAUSE)
            now = await self._ends(step.target, step.ends)
            if now != ends:
                ends, since = now, time.monotonic()
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"the order is written, but these logs still grow at {step.target} after {self._wait:g} s",
                    hint="who writes there already? fairlead link describe tells whether the replicator has let go",
                    site=step.target,
                )
        return ends

    async def _await_following(self, step: AwaitFollowing) -> None:
        deadline = time.monotonic() + self._wait
        self._progress(f"waiting for {step.link}")
        topics = set(step.logs)
        while True:
            status = self._ground.status(step.site)
            link = status.link(step.link) if status is not None else None
            if status is None or link is None or not status.running:
                raise UnavailableError(
                    f"the replicator of {step.site} does not run any more", hint=f"fairlead replicate --at {step.site}"
                )
            troubles = {log: each for log, each in status.troubles().items() if log.partition("/")[0] in topics}
            if link["state"] == LinkState.MIRRORING and not troubles:
                self._outcome.done.append(f"{step.site} follows over {step.link}")
                return
            if link["state"] == LinkState.CLOSED:
                self._outcome.pending.append(step.site)
                self._outcome.done.append(f"{step.site} follows when {step.link} opens: {link['cause']}")
                return
            if time.monotonic() > deadline:
                cause = next((f"{log} is {each['state']}: {each['cause']}" for log, each in troubles.items()), "")
                raise UnavailableError(
                    f"{step.site} does not follow over {step.link}: {cause or link['state']}",
                    hint=next((f"fairlead link resolve {log} --at {step.site}" for log in troubles), "fairlead status"),
                    site=step.site,
                )
            await asyncio.sleep(PAUSE)

    async def _ends(self, site: str, ends: Iterable[LogEnd]) -> dict[str, int]:
        topics = {each.log.partition("/")[0] for each in ends}
        found: dict[TopicPartition, int] = await self._ground.ends(site, topics.__contains__)
        return {str(tp): end for tp, end in found.items()}


def _offsets(ends: Iterable[LogEnd]) -> dict[str, int]:
    return {each.log: each.end for each in ends}


def _first_moved(wanted: dict[str, int], found: dict[str, int]) -> tuple[str, int, int] | None:
    """The first log that ends elsewhere than it should, with both ends; a new partition ends before 0."""
    for log in {**wanted, **found}:
        if wanted.get(log) != found.get(log):
            return log, wanted.get(log, 0), found.get(log, 0)
    return None
