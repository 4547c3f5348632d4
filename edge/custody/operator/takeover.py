"""Take over all logs of a lost holder as one plan: ``fairlead custody seize --holder``.

``look_at_takeover`` asks the sites ashore; ``build_takeover`` is pure; ``carry_out_takeover`` writes the orders in a
few requests and follows the answers. A plan is made from what the ledgers and the topics of orders say now, so a second
run after an interruption continues: logs that are taken over are counted, orders that stand are awaited and not written
again, and an order for the same log, site and term always has the same id.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from edge.custody.operator.execute import PAUSE, WAIT, LedgerAccess, describe
from edge.custody.operator.plan import nobody_answers, sites_ashore
from fairlead.custody.history import Chain, TermInterval, chains
from fairlead.custody.ledger import LEDGER_PREFIX, Ledgers
from fairlead.custody.view import SEIZING_TERMS
from fairlead.errors import FairleadError, RefusedError, UnknownNameError
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.convention import LAST_TERM
from fairlead.plan import Plan, PlanLine, PlanStep, Tell, execute, shortened, silent
from fairlead.records.custody import CUSTODY_ORDERS, CustodyEntry, CustodyOrder, RefusalEntry
from topologies.ledger_trust import believed
from topologies.model import Topology

_ORDER_IDS: Final = uuid.UUID("5b3c9d0e-2f0a-4f0e-9a53-7a1f6d1a4c11")  # the namespace of these orders' ids


@dataclass(frozen=True, slots=True)
class TakeoverRequest:
    """An operator's wish to take over everything that ``holder`` holds.

    Args:
        at: The site that takes over; None means for each log the site ashore with the longest copy.
    """

    holder: str
    at: str | None
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """What one site ashore knows.

    Args:
        position: An end of the site's own ledger, from before its ledgers were read.
        terms: The newest term of each log in the ledgers at this site.
        standing: Orders of seizures at this site that its bridge has not answered, by log.
        copies: The offsets of its copies of the holder's logs.
        complete: False when entries of the ledgers there are damaged or missing.
    """

    position: int
    terms: Mapping[str, int]
    standing: Mapping[str, CustodyOrder]
    copies: Mapping[str, OffsetRange]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class TakeoverFacts:
    """The facts that ``build_takeover`` makes a plan from.

    Args:
        chains: The chains of all logs, from the ledgers of all sites ashore that answer.
        sites: The sites ashore that answer.
        away: The other sites ashore, each with the reason.
        holder_answers: Whether the holder's Kafka answers.
    """

    topology: Topology
    request: TakeoverRequest
    chains: tuple[Chain, ...]
    sites: Mapping[str, SiteFacts]
    away: Mapping[str, str]
    holder_answers: bool
    at: dt.datetime


@dataclass(frozen=True, slots=True)
class LeftLog:
    """A log of the holder that the plan cannot take over, and why."""

    log: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverPlan(Plan["TakeoverRun"]):
    """Write all orders, then wait for the answers.

    Args:
        already: By site, how many logs of the holder an earlier seizure has moved there.
        standing: How many orders of an earlier run stand and are only awaited.
        left: The logs that stay with the holder.
    """

    holder: str
    already: Mapping[str, int]
    standing: int
    left: tuple[LeftLog, ...]

    @property
    def orders(self) -> list[CustodyOrder]:
        """Every order that is to be answered, also those that an earlier run wrote."""
        return [order for step in self.steps if isinstance(step, AwaitAnswers) for order in step.orders]

    def heading(self) -> str:
        orders = len(self.orders)
        if not orders and not self.left:
            return f"{self.holder} holds no log{self._already()}"
        left = f", {len(self.left):,} cannot be taken over" if self.left else ""
        logs = _number(orders + len(self.left), "log")
        return f"{self.holder} holds {logs}: {orders:,} to take over{left}{self._already()}"

    def _already(self) -> str:
        sites = ", ".join(f"{site} {count:,}" for site, count in self.already.items())
        return f"; taken over already: {sites}" if sites else ""


@dataclass(slots=True)
class TakeoverRun:
    """The context and the results of a takeover's steps.

    Args:
        wait: Seconds without any new answer after which a site's bridge is no longer waited for.
        tell: Receives one line of progress at a time.
        seized, refused: The ledger entries that answer the orders.
        unanswered: Orders without an answer. They stand; the site's bridge carries them out when it runs.
        trouble: By site, why there was no answer.
    """

    access: LedgerAccess
    wait: float = WAIT
    tell: Tell = silent
    seized: list[CustodyEntry] = field(default_factory=list)
    refused: list[RefusalEntry] = field(default_factory=list)
    unanswered: list[CustodyOrder] = field(default_factory=list)
    trouble: dict[str, str] = field(default_factory=dict)


async def carry_out_takeover(plan: TakeoverPlan, run: TakeoverRun) -> None:
    """Carry the plan out; ``run`` has the results. After an interruption, a new plan continues.

    Raises:
        FairleadError: orders could not be written; those that were written stand.
    """
    await execute(plan.steps, run)


@dataclass(frozen=True, slots=True)
class WriteOrders(PlanStep[TakeoverRun]):
    """Append orders to ``fairlead.custody`` at ``site``. A bridge ignores an order that it has seen."""

    site: str
    orders: tuple[CustodyOrder, ...]

    def describe(self) -> str:
        reason = self.orders[0].reason
        return (
            f"append {_number(len(self.orders), 'order')} to {CUSTODY_ORDERS} at {self.site}: seize, because: {reason}"
        )

    def details(self) -> Iterable[PlanLine]:
        return shortened([f"{order.log} (term {order.term})" for order in self.orders])

    async def carry_out(self, context: TakeoverRun) -> None:
        await context.access.append(self.site, self.orders)


@dataclass(frozen=True, slots=True)
class AwaitAnswers(PlanStep[TakeoverRun]):
    """Wait until the bridge of ``site`` has answered the orders in its ledger.

    Args:
        since: An offset in the site's ledger before all answers.
    """

    site: str
    orders: tuple[CustodyOrder, ...]
    since: int

    def describe(self) -> str:
        what = _number(len(self.orders), "order")
        return f"wait until the bridge of {self.site} has answered {what}, by its ledger {LEDGER_PREFIX}{self.site}"

    async def carry_out(self, context: TakeoverRun) -> None:
        waiting = {order.order_id: order for order in self.orders}
        began = newest = time.monotonic()
        position, seized, refused, trouble = self.since, 0, 0, ""
        while waiting:
            try:
                entries, position = await context.access.ledger_since(self.site, position)
                trouble = ""
            except FairleadError as error:
                entries, trouble = (), error.what
            for entry in entries:
                if isinstance(entry, CustodyEntry) and entry.event_id in waiting:
                    del waiting[entry.event_id]
                    context.seized.append(entry)
                    seized += 1
                elif isinstance(entry, RefusalEntry) and entry.order_id in waiting:
                    del waiting[entry.order_id]
                    context.refused.append(entry)
                    refused += 1
                else:
                    continue
                newest = time.monotonic()
            now = time.monotonic()
            context.tell(
                f"{self.site}: {seized:,} of {len(self.orders):,} seized"
                + (f", {refused:,} refused" if refused else "")
                + f" ({now - began:.0f} s)"
            )
            if waiting and now - newest > context.wait:
                context.trouble[self.site] = trouble or f"its bridge has answered nothing for {context.wait:g} s"
                break
            if waiting:
                await asyncio.sleep(PAUSE)
        context.unanswered += waiting.values()


# -- the facts


def check_takeover(topology: Topology, request: TakeoverRequest) -> None:
    """Check a request against the topology, without asking any site.

    Raises:
        UnknownNameError: the topology has no such site.
        RefusedError: the site may not seize, it is the holder itself, or there is no reason.
    """
    ashore = [site for site in sites_ashore(topology) if site != request.holder]
    doing = f"cannot seize the logs of {request.holder}"
    valid = f"sites that can: {', '.join(ashore) or '(none)'}"
    if request.at is not None:
        if request.at not in topology.sites:
            raise UnknownNameError("site", request.at, ashore)
        if request.at == request.holder:
            raise RefusedError(f"{doing}: it is to take them over itself", hint=valid, site=request.at)
        if request.at not in ashore:
            kind = topology.sites[request.at].kind.value
            raise RefusedError(f"{doing}: {request.at} is a {kind}, not a site ashore", hint=valid, site=request.at)
    if not request.reason.strip():
        raise RefusedError(
            f"{doing}: a seizure needs a reason",
            hint="--reason 'MV Duck Star sank off Sydney', for example",
            holder=request.holder,
        )


async def look_at_takeover(topology: Topology, access: LedgerAccess, request: TakeoverRequest) -> TakeoverFacts:
    """Ask every site ashore for ledgers, orders and copies, and the holder whether it answers.

    Raises:
        UnavailableError: no site ashore answers, or the site that is to take over does not.
    """
    ashore = [site for site in sites_ashore(topology) if site != request.holder]
    asked = await asyncio.gather(*(_ask(access, site) for site in ashore))
    away = {site: found for site, found in zip(ashore, asked, strict=True) if isinstance(found, FairleadError)}
    if request.at in away:
        raise away[request.at]
    found = {site: each for site, each in zip(ashore, asked, strict=True) if not isinstance(each, FairleadError)}
    if not found:
        raise nobody_answers(ashore, next(iter(away.items()), None))
    every = tuple(chains(believed(topology, (ledgers for ledgers, _, _ in found.values()))))
    wanted = [each.log for each in every if each.holder == request.holder]
    sites: dict[str, SiteFacts] = {}
    for site, (ledgers, position, orders) in found.items():
        terms: dict[str, int] = {}
        answered: set[str] = set()
        for entry in ledgers.entries:
            if isinstance(entry, CustodyEntry):
                terms[entry.log] = max(entry.term, terms.get(entry.log, 0))
                answered.add(entry.event_id)
            elif isinstance(entry, RefusalEntry):
                answered.add(entry.order_id)
        standing = {
            order.log: order
            for order in orders
            if order.kind == "seize" and order.at_site == site and order.order_id not in answered
        }
        copies = await access.copies(site, wanted)
        sites[site] = SiteFacts(position, terms, standing, copies, not (ledgers.damaged or ledgers.missing))
    answers = request.holder in topology.sites and await access.answers(request.holder)
    reasons = {site: error.what for site, error in away.items()}
    return TakeoverFacts(topology, request, every, sites, reasons, answers, dt.datetime.now(dt.UTC))


async def _ask(access: LedgerAccess, site: str) -> tuple[Ledgers, int, Sequence[CustodyOrder]] | FairleadError:
    try:
        orders = await access.orders(site)  # read first: an order that is answered meanwhile counts as answered
        position = await access.ledger_end(site)
        return await access.ledgers(site), position, orders
    except FairleadError as error:
        return error


# -- the plan


def build_takeover(facts: TakeoverFacts) -> TakeoverPlan:
    """Return the plan; logs that cannot be taken over are in ``left`` with the reason, and stop no other.

    Raises:
        UnknownNameError: neither the topology nor a ledger knows the holder.
        UnknownNameError, RefusedError: as ``check_takeover``.
    """
    request = facts.request
    check_takeover(facts.topology, request)
    holders = {each.holder for chain in facts.chains for each in chain.intervals if each.holder is not None}
    if request.holder not in facts.topology.sites and request.holder not in holders:
        raise UnknownNameError("site", request.holder, {*facts.topology.sites, *holders})
    already: Counter[str] = Counter()
    left: list[LeftLog] = []
    fresh: dict[str, list[CustodyOrder]] = defaultdict(list)
    standing: dict[str, list[CustodyOrder]] = defaultdict(list)
    shorter = _Shorter()
    for chain in facts.chains:
        newest = chain.newest
        if newest is None:
            continue
        if newest.holder != request.holder:
            if newest.event == "SEIZURE" and newest.from_site == request.holder and newest.holder is not None:
                already[newest.holder] += 1
            continue
        ordered = _standing_at(facts, chain.log, newest.term)
        site = ordered or _best_site(facts, chain, newest)
        why = _hindrance(facts, chain, newest, site, ordered)
        if why is not None or site is None:
            left.append(LeftLog(chain.log, why or "no site can take it over"))
        elif ordered is not None:
            standing[site].append(facts.sites[site].standing[chain.log])
        else:
            fresh[site].append(_order(facts, chain, newest, site))
            shorter.add(chain.log, site, facts.sites)
    steps: list[PlanStep[TakeoverRun]] = [WriteOrders(site, tuple(orders)) for site, orders in fresh.items()]
    for site in dict.fromkeys([*fresh, *standing]):
        steps.append(AwaitAnswers(site, (*standing[site], *fresh[site]), facts.sites[site].position))
    stand = sum(map(len, standing.values()))
    return TakeoverPlan(
        holder=request.holder,
        already=dict(already),
        standing=stand,
        left=tuple(left),
        steps=tuple(steps),
        notes=tuple(_notes(facts, len(steps), stand, left, shorter)),
    )


def _standing_at(facts: TakeoverFacts, log: str, term: int) -> str | None:
    """Return the site where an unanswered order to seize the log in this term stands."""
    for site, each in facts.sites.items():
        order = each.standing.get(log)
        if order is not None and order.term in (None, term):
            return site
    return None


def _best_site(facts: TakeoverFacts, chain: Chain, newest: TermInterval) -> str | None:
    """Return the site whose copy can be continued and reaches furthest; of equal ones, the last holder."""
    if facts.request.at is not None:
        return facts.request.at
    able = [site for site in facts.sites if _hindrance(facts, chain, newest, site, None) is None]
    before = chain.past_sites

    def rank(site: str) -> tuple[int, int]:
        return facts.sites[site].copies[chain.log].end, -before.index(site) if site in before else -len(before)

    return max(able, key=rank, default=None)


def _hindrance(
    facts: TakeoverFacts, chain: Chain, newest: TermInterval, site: str | None, ordered: str | None
) -> str | None:
    """Return why ``site`` cannot take the log over; None when it can. Raises nothing: other logs go on."""
    if any(split.term == newest.term for split in chain.splits):
        return f"its term {newest.term} was granted in more than one way: fairlead custody show {chain.log}"
    if newest.term + SEIZING_TERMS > LAST_TERM:
        return f"its term {newest.term} is too close to the last possible one ({LAST_TERM})"
    if site is None:
        return "no site ashore that answers has a copy that it could continue"
    if ordered is not None:
        at = facts.request.at
        if at is not None and at != ordered:
            return f"an order to seize it stands at {ordered}: start the bridge there, or take over at {ordered}"
        return None
    there = facts.sites[site]
    copy = there.copies.get(chain.log)
    if copy is None or copy.start == copy.end:
        return f"{site} has no copy of it"
    if not any(copy.start <= each.marker_offset < copy.end for each in chain.standing):
        return f"the copy at {site} has no marker of any term"
    if (known := there.terms.get(chain.log, 0)) != newest.term:
        return f"the ledgers at {site} know term {known} and not yet term {newest.term}: fairlead status"
    return None


def _order(facts: TakeoverFacts, chain: Chain, newest: TermInterval, site: str) -> CustodyOrder:
    """Return the order; after a refusal its id is another one, otherwise the same in every run."""
    refusals = sum(each.refused_by == site for each in chain.refusals)
    name = f"{chain.log} {site} {newest.term} {refusals}"
    return CustodyOrder(
        order_id=uuid.uuid5(_ORDER_IDS, name).hex,
        kind="seize",
        log=chain.log,
        at_site=site,
        to_site=site,
        ordered_date_time=facts.at,
        ordered_by=facts.request.by,
        reason=facts.request.reason,
        term=newest.term,
    )


class _Shorter:
    """Counts logs that are seized at a site with a shorter copy than another site ashore."""

    def __init__(self) -> None:
        self.logs = 0
        self.most = 0

    def add(self, log: str, site: str, sites: Mapping[str, SiteFacts]) -> None:
        longest = max(each.copies[log].end for each in sites.values() if log in each.copies)
        if (beyond := longest - sites[site].copies[log].end) > 0:
            self.logs += 1
            self.most = max(self.most, beyond)


def _notes(
    facts: TakeoverFacts, orders: int, standing: int, left: Sequence[LeftLog], shorter: _Shorter
) -> Iterator[str]:
    holder = facts.request.holder
    if orders:
        yield (
            "each log continues where the copy of its new holder ends; what other sites have from there on is cut off, "
            "and its readings become strays when that site hears of the seizure"
        )
    if standing:
        yield f"orders of an earlier run that stand: {standing:,}; they are awaited, and not written again"
    if shorter.logs:
        yield (
            f"for {_number(shorter.logs, 'log')} another site ashore has a longer copy, by up to {shorter.most:,} "
            "records; without --site each log is taken over where its copy is longest"
        )
    if orders and facts.holder_answers:
        yield (
            f"{holder} answers; it can grant its logs itself, which cuts nothing off: "
            "fairlead custody grant LOG --to SITE"
        )
    for site, why in facts.away.items():
        yield (
            f"{site} does not answer ({why}); if an earlier run gave orders there, wait for it: two seizures that do "
            "not know of each other split a log"
        )
    for site, each in facts.sites.items():
        if not each.complete:
            yield f"ledgers at {site} have damaged or missing entries: fairlead custody list --site {site}"
    for why, count in Counter(each.why for each in left).items():
        example = next(each.log for each in left if each.why == why)
        yield f"left with {holder}: {_number(count, 'log')}, for example {example}: {why}"


def describe_unanswered(run: TakeoverRun) -> str:
    """Return a sentence about orders that stand without an answer."""
    sites = "; ".join(f"{site}: {why}" for site, why in run.trouble.items())
    stand = f"{_number(len(run.unanswered), 'order')} {'stand' if len(run.unanswered) > 1 else 'stands'}"
    return f"{stand} without an answer, for example {describe(run.unanswered[0])} ({sites})"


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("s" if count != 1 else "")
