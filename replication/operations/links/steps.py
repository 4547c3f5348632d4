"""Define the steps of link operations. Each step describes and carries out itself; the first failure ends the plan."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

from fairlead.errors import FairleadError, RefusedError, UnavailableError
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.plan import LineStyle, Plan, PlanLine, PlanStep, Tell, execute, shortened, silent
from replication.operations.links.access import ClusterAccess, has_acted
from replication.overrides import ORDERS_TOPIC, Override, OverrideKind
from replication.states import LinkState

WAIT: Final = 30.0  # seconds for a replicator to act: it lists topics every few seconds and reports every second
PAUSE: Final = 0.1


@dataclass(slots=True)
class LinkRun:
    """The context of one plan's steps, and their results.

    Args:
        wait: Seconds for a replicator to act.
        tell: Called with a line of text about the event that a step waits for.
        done: The results, in sentences.
        pending: Sites whose replicator does not run; it will act on its orders when it starts.
    """

    access: ClusterAccess
    wait: float = WAIT
    tell: Tell = silent
    done: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)  # per site, the offset after the orders written there
    fenced: dict[str, dict[str, int]] = field(default_factory=dict)  # per site, the offsets of its logs' fences
    silent_site: str | None = None  # the site whose replicator did not show that it has acted

    async def ends(self, site: str, ends: Iterable[EndOffset]) -> dict[str, int]:
        """Return the current ends of these logs at a site, including new partitions."""
        topics = {each.log.partition("/")[0] for each in ends}
        found: dict[TopicPartition, int] = await self.access.ends(site, topics.__contains__)
        return {str(tp): end for tp, end in found.items()}

    async def take_back(self, why: str, site: str, undo: Sequence[Override]) -> NoReturn:
        """Undo a site's orders, then raise ``RefusedError``."""
        await self.access.append(site, undo)
        raise RefusedError(
            f"{why} while the order was carried out, so it was undone",
            hint="stop the writers first; or failover, which does not wait for them",
            target=site,
        )


async def carry_out(plan: Plan[LinkRun], run: LinkRun) -> LinkRun:
    """Carry out a plan.

    Logs are fenced even if the replicator does not show that it has acted: a replicator on a suspended host may still
    have records in flight.

    Raises:
        RefusedError: a log changed since the plan was made, or while it was carried out; no log is released.
        UnavailableError: an order is written, but the replicator does not show that it has acted;
            ``fields["written"]`` names the sites.
    """
    try:
        await execute(plan.steps, run)
    except UnavailableError:
        for step in plan.steps:
            if isinstance(step, Fence) and step.site == run.silent_site:
                await step.carry_out(run)
        raise
    return run


@dataclass(frozen=True, slots=True)
class EndOffset:
    """A log (``topic`` or ``topic/partition``) and its end offset."""

    log: str
    end: int


@dataclass(frozen=True, slots=True)
class Settle(PlanStep[LinkRun]):
    """Check that both ends stay equal to ``ends`` for ``seconds``; refuse if they move."""

    source: str
    target: str
    ends: tuple[EndOffset, ...]
    seconds: float

    def describe(self) -> str:
        return f"make sure that {self.source} and {self.target} are equal and quiet for {self.seconds:g} s"

    def details(self) -> Iterator[PlanLine]:
        return _each_end(self.ends)

    async def carry_out(self, context: LinkRun) -> None:
        wanted = _offsets(self.ends)
        until = time.monotonic() + self.seconds
        while True:
            for site in (self.target, self.source):
                moved = _first_moved(wanted, await context.ends(site, self.ends))
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


@dataclass(frozen=True, slots=True)
class WriteLinkOrders(PlanStep[LinkRun]):
    """Append these orders to the topic of orders at ``site``."""

    site: str
    orders: tuple[Override, ...]

    @property
    def kind(self) -> str:
        return "WriteOrders"

    def describe(self) -> str:
        return f"append to {ORDERS_TOPIC} at {self.site}"

    def details(self) -> Iterator[PlanLine]:
        return shortened([describe(order) for order in self.orders])

    async def carry_out(self, context: LinkRun) -> None:
        context.positions[self.site] = await context.access.append(self.site, self.orders)
        context.done += [f"written at {self.site}: {describe(order)}" for order in self.orders]


@dataclass(frozen=True, slots=True)
class AwaitActed(PlanStep[LinkRun]):
    """Wait until the replicator of ``site`` shows that it has acted on ``orders``."""

    site: str
    orders: tuple[Override, ...]

    def describe(self) -> str:
        return f"wait until the replicator of {self.site} has acted on it"

    async def carry_out(self, context: LinkRun) -> None:
        position = context.positions[self.site]
        deadline = time.monotonic() + context.wait
        while True:
            status = context.access.status(self.site)
            if status is None or not status.running:
                context.pending.append(self.site)
                context.done.append(f"no replicator runs at {self.site}: it is acted on when it starts")
                return
            if has_acted(status, self.orders, position):
                context.done.append(f"the replicator of {self.site} has acted on it")
                if status.elsewhere:
                    where = ", ".join(status.elsewhere)
                    context.done.append(f"members of its group on other machines act on it as they read it: {where}")
                return
            if time.monotonic() > deadline:
                context.silent_site = self.site
                raise UnavailableError(
                    f"the order is written at {self.site}, but its replicator has not acted on it within "
                    f"{context.wait:g} s",
                    hint="fairlead status; the replicator acts on it as soon as it can; --wait SECONDS waits longer",
                    site=self.site,
                    written=position,
                )
            await asyncio.sleep(PAUSE)


@dataclass(frozen=True, slots=True)
class StillEqual(PlanStep[LinkRun]):
    """Check that the source's ends have not moved; else write ``undo`` at ``target`` and refuse."""

    source: str
    target: str
    ends: tuple[EndOffset, ...]
    undo: tuple[Override, ...]

    def describe(self) -> str:
        return f"check that {self.source} got no new records; else append to {ORDERS_TOPIC} at {self.target}"

    def details(self) -> Iterator[PlanLine]:
        return shortened([describe(order) for order in self.undo])

    async def carry_out(self, context: LinkRun) -> None:
        try:
            moved = _first_moved(_offsets(self.ends), await context.ends(self.source, self.ends))
            why = f"records came to {moved[0]} at {self.source} ({moved[1]} to {moved[2]})" if moved else ""
        except FairleadError as error:
            why = f"{self.source} could not be reached ({error.what})"
        if why:
            await context.take_back(why, self.target, self.undo)
        context.done.append(f"{self.source} has no records that {self.target} lacks")


@dataclass(frozen=True, slots=True)
class Fence(PlanStep[LinkRun]):
    """Append a filler to each of these logs of ``site``. After it the broker accepts no replicator's append, not even
    those already in flight.

    With ``undo`` the logs must still end at ``ends``. If they do not, write the orders ``undo`` at ``undo_at`` and
    refuse the operation.
    """

    site: str
    ends: tuple[EndOffset, ...]
    time_ms: int  # timestamp of the fillers, the same at both ends
    undo_at: str = ""
    undo: tuple[Override, ...] = ()

    def describe(self) -> str:
        return f"append one filler to each log at {self.site}, after which no replicator's append is accepted"

    def details(self) -> Iterator[PlanLine]:
        yield from _each_end(self.ends)
        if self.undo:
            text = f"if records came meanwhile, append to {ORDERS_TOPIC} at {self.undo_at}:"
            yield PlanLine(text, LineStyle.DETAIL)
            yield from shortened([describe(order) for order in self.undo])

    async def carry_out(self, context: LinkRun) -> None:
        logs = [TopicPartition.parse(each.log) for each in self.ends]
        found = await context.access.fence(self.site, logs, self.time_ms)
        fenced = {str(tp): at for tp, at in found.items()}
        moved = _first_moved(_offsets(self.ends), fenced)
        if self.undo and moved is not None:
            why = f"records came to {moved[0]} at {self.site} ({moved[1]} to {moved[2]})"
            await context.take_back(why, self.undo_at, self.undo)
        context.fenced[self.site] = fenced
        context.done += [
            f"{log} at {self.site}: a filler at offset {at} makes the broker refuse a replicator's late appends"
            for log, at in fenced.items()
        ]


@dataclass(frozen=True, slots=True)
class TellMissing(PlanStep[LinkRun]):
    """Report whether ``source`` may have records that ``target`` lacks, from the offset of the fence on."""

    source: str
    target: str
    ends: tuple[EndOffset, ...]

    def describe(self) -> str:
        return f"report records that {self.source} may have and {self.target} lacks"

    async def carry_out(self, context: LinkRun) -> None:
        here = context.fenced[self.target]
        try:
            there = await context.ends(self.source, self.ends)
        except FairleadError:
            there = None
        for each in self.ends:
            end = here[each.log]
            if there is None:
                what = f"{self.source} may have records from offset {end} on that {self.target} lacks"
            elif there.get(each.log, 0) > end:
                what = f"{self.source} has offsets {end} to {there[each.log] - 1}, which {self.target} lacks"
            else:
                what = f"{self.target} has every record of {self.source}"
            context.done.append(f"{each.log} ends at {end}: {what}")


@dataclass(frozen=True, slots=True)
class AwaitFollowing(PlanStep[LinkRun]):
    """Wait until the replicator of ``site`` follows these logs over ``link`` without trouble."""

    site: str
    link: str
    logs: tuple[str, ...]

    def describe(self) -> str:
        return f"wait until the replicator of {self.site} follows over {self.link}"

    def details(self) -> Iterator[PlanLine]:
        return shortened(self.logs)

    async def carry_out(self, context: LinkRun) -> None:
        deadline = time.monotonic() + context.wait
        topics = set(self.logs)
        while True:
            status = context.access.status(self.site)
            link = status.link(self.link) if status is not None else None
            if status is None or link is None or not status.running:
                raise UnavailableError(
                    f"the replicator of {self.site} has stopped",
                    hint=f"fairlead replicate --site {self.site}",
                )
            troubles = {log: each for log, each in status.troubles().items() if log.partition("/")[0] in topics}
            if link["state"] == LinkState.MIRRORING and not troubles:
                context.done.append(f"{self.site} follows over {self.link}")
                return
            if link["state"] == LinkState.CLOSED:
                context.pending.append(self.site)
                context.done.append(f"{self.site} follows when {self.link} opens: {link['cause']}")
                return
            if time.monotonic() > deadline:
                cause = next((f"{log} is {each['state']}: {each['cause']}" for log, each in troubles.items()), "")
                raise UnavailableError(
                    f"{self.site} does not follow over {self.link}: {cause or link['state']}",
                    hint=next(
                        (f"fairlead link resolve {log} --site {self.site}" for log in troubles), "fairlead status"
                    ),
                    site=self.site,
                )
            await asyncio.sleep(PAUSE)


def describe(order: Override) -> str:
    """Describe one order in words: ``promote log s.orders, which ends at 120``."""
    match order.log, order.stream:
        case str() as log, _:
            what = f"log {log}"
        case _, str() as stream:
            what = f"stream {stream}"
        case _:
            what = ""
    on = f"link {order.link}" if order.link else "" if what else "everything"
    end = ""
    if order.kind is OverrideKind.SKIP:
        end = f", offsets {order.start} to before {order.stop}"
    elif order.stop is not None:
        end = f", which ends at {order.stop}"
    return f"{order.kind} {' on '.join(part for part in (what, on) if part)}{end}"


def _each_end(ends: Sequence[EndOffset]) -> Iterator[PlanLine]:
    return shortened([f"{each.log} ends at {each.end}" for each in ends])


def _offsets(ends: Iterable[EndOffset]) -> dict[str, int]:
    return {each.log: each.end for each in ends}


def _first_moved(wanted: dict[str, int], found: dict[str, int]) -> tuple[str, int, int] | None:
    """Return the first log whose end differs from the expected one, with both ends. The expected end of a new partition
    is 0."""
    for log in {**wanted, **found}:
        if wanted.get(log) != found.get(log):
            return log, wanted.get(log, 0), found.get(log, 0)
    return None
