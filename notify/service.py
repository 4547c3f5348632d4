"""Run the routes of a topology at its site: follow the alerts, send, retry, and commit how far each route is.

Each route has a consumer group, ``fairlead.notify.<route>``, of which it commits the offsets by itself, without being a
member. It commits an alert after the receiver has it, so that nothing is lost; an alert that was delivered and not
committed (the machine stopped between the two) is sent again with the same id. Each commit's metadata says from which
offset on alerts wait for the end of quiet hours, when the route delivered last, and what was refused.

Run each route once: two processes of one route would both send everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from edge.alerts.rules.bookings import Bookings
from edge.logwriter.follower import LogFollower
from edge.logwriter.retry import retry_transient
from edge.site_logs import booking_logs, fixed_logs
from fairlead.errors import ConfigurationError, FairleadError, RefusedError, UnavailableError, UnknownNameError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange, Tail, extents, sweep
from fairlead.kafka.convention import is_data
from fairlead.kafka.endpoint import Endpoint, current
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TP
from fairlead.local.passwords import secret_variable
from fairlead.records import UNREADABLE, decoder
from fairlead.records.alert import Alert, is_own_alert
from fairlead.records.booking import Booking
from fairlead.waiting import in_background, wait_set
from notify.routes import Message, RouteBook
from notify.sender import Sender, sender_for
from replication.groups.client import GroupClient
from replication.groups.rules import Commit, own_metadata
from topologies.endpoints import SECRETS_FOLDER, EndpointResolver
from topologies.model import Notify, Route, SiteKind, Topology
from topologies.users import NOTIFY, NOTIFY_GROUPS, route_secret

log = logging.getLogger(__name__)

DELAYS: Final = (1.0, 300.0)  # seconds before the second attempt, and the longest pause after more
LOOK: Final = 5.0  # seconds between looks for new logs, and at the clock
STOPPING: Final = 40.0  # seconds that a stopping service waits for what is being sent
AT_ONCE: Final = 5.0  # the same while nothing is being sent
RENEW: Final = 3600.0  # seconds; brokers forget commits after seven days (offsets.retention.minutes), unless renewed
_ALERTS: Final = "alerts."
_REMEMBERED: Final = 1000
_alert = decoder(Alert)
_booking = decoder(Booking)


class CommitMetadata(msgspec.Struct, omit_defaults=True):
    """The metadata of a commit.

    Args:
        held: The first offset of this log that waits for the end of quiet hours.
        delivered: When the route last delivered anything, as far as this log is concerned.
        refused: How many notifications about this log's alerts were refused for good, and what the last answer was.
    """

    held: int | None = None
    delivered: dt.datetime | None = None
    refused: int = 0
    answer: str = ""


_progress = msgspec.json.Decoder(CommitMetadata)


@dataclass(slots=True)
class RoutePosition:
    """How far a route is in one log."""

    next: int
    progress: CommitMetadata = field(default_factory=CommitMetadata)

    def commit(self) -> Commit:
        return Commit(self.next, msgspec.json.encode(self.progress).decode())


def position_of(commit: Commit) -> RoutePosition:
    """Return the position that a commit has; other metadata than ours counts as none."""
    try:
        return RoutePosition(commit.offset, _progress.decode(own_metadata(commit).encode()))
    except UNREADABLE:
        return RoutePosition(commit.offset)


class KnownBookings:
    """The bookings that a site has, kept up to date while ``follow`` runs."""

    def __init__(self, topology: Topology, site: str) -> None:
        own = fixed_logs(topology, site).bookings if topology.sites[site].kind is not SiteKind.SHIP else None
        self.logs = (*((own,) if own else ()), *booking_logs(topology, site))
        self.bookings = Bookings(kept=None)
        self._unread: set[str] = set()
        self._follower: LogFollower | None = None

    async def catch_up(self, cluster: Cluster) -> None:
        """Read all bookings that are here, of each log up to a damaged batch."""
        self._follower = LogFollower(cluster, self.logs, self._apply, self._unread)
        await retry_transient(self._follower.catch_up, "reading bookings")

    async def follow(self) -> None:
        """Follow the logs until cancelled."""
        assert self._follower is not None  # noqa: S101 - after catch_up
        await self._follower.follow()

    async def read_to_ends(self) -> None:
        """Wait until every booking that is here now is known.

        Raises:
            UnavailableError: some cannot be known, so nobody can tell whose containers are whose.
            BrokerError, ConnectionLost: as ``LogFollower.read_to_ends``.
        """
        if self._follower is None:
            return
        async with in_background(self._follower.read_to_ends()) as reading:
            while not reading.done():
                if self._unread:  # perhaps only now: the reading would wait until the batch is whole
                    names = ", ".join(sorted(self._unread))
                    raise UnavailableError(
                        f"bookings cannot be read beyond a damaged batch in {names}",
                        hint="make a broker that has the log whole its leader",
                    )
                await asyncio.wait({reading}, timeout=LOOK)
            await reading

    def _apply(self, _topic: str, record: Record, _at_start: bool) -> None:
        if record.value is not None and is_data(record):
            with contextlib.suppress(*UNREADABLE):  # written by another version; shore reports it
                self.bookings.apply(_booking.decode(record.value))


class RouteRunner:
    """Follows the alerts for one route.

    Args:
        kafka: Called for every connection.
        known: The bookings; needed for a route with customers.
        delays: Seconds before a second attempt, and the longest pause.
    """

    def __init__(
        self,
        name: str,
        topology: Topology,
        sender: Sender,
        kafka: Endpoint,
        known: KnownBookings,
        *,
        delays: tuple[float, float] = DELAYS,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self.name = name
        self._route = route_of(topology, name)
        self._topology = topology
        self._sender = sender
        self._kafka = kafka
        self._known = known
        self._delays = delays
        self._now = now
        self._group = NOTIFY_GROUPS + name
        self._groups: GroupClient  # these two are new for every attempt to follow, with the password of then
        self._cluster: Cluster
        self._book = RouteBook(name, self._route, topology, known.bookings)
        self._positions: dict[TP, RoutePosition] = {}
        self._sent: dict[str, None] = {}  # done, and perhaps not committed: not sent again after an error of Kafka
        self._damaged: set[TP] = set()  # logs that wait until a damaged batch is whole
        self._stop = asyncio.Event()
        self._renewed = time.monotonic()
        self.busy = False  # between the first attempt to send a message and its commit
        self.delivered = self.refused = self.failed = self.lag = 0
        self.trouble = ""

    async def run(self, stop: asyncio.Event) -> None:
        """Follow the alerts until ``stop`` is set. What is being sent then is waited for and committed.

        After any error it begins again at what was committed.
        """
        self._stop = stop
        delay, longest = self._delays
        while not stop.is_set():
            began = time.monotonic()
            try:
                await self._follow()
            except FairleadError as error:
                self._set_trouble(error.what)
            except Exception as error:  # a mistake of ours in this route must not end the others
                log.exception("%s has an error", self.name)
                self._set_trouble(f"an error of the route itself: {type(error).__name__}")
            delay = self._delays[0] if time.monotonic() - began > longest else delay
            await wait_set(self._stop, delay)
            delay = min(delay * 2, longest)

    async def _follow(self) -> None:
        self._groups = await asyncio.to_thread(GroupClient, current(self._kafka))
        async with await Cluster.open(self._kafka, client_id=f"fairlead-{NOTIFY}") as cluster:
            self._cluster = cluster
            if self._route.customers:
                await self._known.read_to_ends()
            await self._begin(cluster)
            self.trouble = ""
            tail = Tail(cluster, {tp: each.next for tp, each in self._positions.items()})
            reading: asyncio.Task[tuple[TP, list[Record]]] | None = None
            stopping, looked = asyncio.ensure_future(self._stop.wait()), 0.0
            try:
                while not self._stop.is_set():
                    reading = reading or asyncio.ensure_future(anext(tail))
                    await asyncio.wait({reading, stopping}, timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
                    await self._digest()
                    if reading.done():
                        done, reading = reading, None
                        try:
                            tp, records = done.result()
                        except CorruptBatch as error:
                            self._leave(tail, error)
                        else:
                            self._damaged.discard(tp)
                            await self._take(tp, records)
                    if time.monotonic() - looked >= LOOK:
                        await self._look(tail)
                        await self._renew()
                        looked = time.monotonic()
            finally:
                for each in filter(None, (reading, stopping)):
                    each.cancel()
                    await asyncio.gather(each, return_exceptions=True)
                await tail.close()

    async def _begin(self, cluster: Cluster) -> None:
        """Take the committed positions, and make the book of all alerts before them."""
        committed = await self._groups.offsets(self._group)
        here = await extents(cluster, await _alert_logs(cluster))
        self._positions = {}
        self._damaged.clear()
        for tp, extent in here.items():
            # A route without any commit is new: it begins with what comes from now on.
            position = RoutePosition(extent.end if not committed else extent.start)
            if tp in committed:
                position = position_of(committed[tp])
            if not extent.start <= position.next <= extent.end:
                what = "are gone" if position.next < extent.start else "were replaced"
                log.error("%s: records of %s after offset %d %s", self.name, tp.topic, position.next, what)
                position.next, position.progress.held = extent.start, None
            self._positions[tp] = position
        before = {tp: OffsetRange(here[tp].start, each.next) for tp, each in self._positions.items()}
        while True:
            self._book = RouteBook(self.name, self._route, self._topology, self._known.bookings)
            try:
                await self._fill_book(cluster, before)
                break
            except CorruptBatch as error:
                tp = _log_of(error)
                log.error("%s: what it has told of %s is not known: %s", self.name, tp.topic, error)
                del before[tp]
                position = self._positions[tp]
                if position.progress.held is not None:
                    position.next, position.progress.held = position.progress.held, None
        if not committed:
            await self._commit(*self._positions)

    async def _fill_book(self, cluster: Cluster, before: Mapping[TP, OffsetRange]) -> None:
        async for tp, records in sweep(cluster, before):
            held = self._positions[tp].progress.held
            for record in records:
                alert = _decoded(tp.topic, record)
                change = self._book.take(alert) if alert is not None else None
                if alert is None or change is None or held is None or record.offset < held:
                    continue
                if self._route.quiet is None or self._book.may_wait(alert):  # None: the topology had some
                    self._book.hold(change, alert)
                else:
                    self._book.release(alert)

    def _leave(self, tail: Tail, error: CorruptBatch) -> None:
        """Go on without a log until its next batch is whole (``_look``)."""
        tp = _log_of(error)
        if tp not in self._damaged:
            log.error("%s: it goes on without %s: %s", self.name, tp.topic, error)
        self._damaged.add(tp)
        tail.remove(tp)

    async def _take(self, tp: TP, records: Sequence[Record]) -> None:
        if self._route.customers:
            await self._known.read_to_ends()
        position = self._positions[tp]
        for record in records:
            await self._digest()
            if self._stop.is_set():
                break
            alert = _decoded(tp.topic, record)
            change = self._book.take(alert) if alert is not None else None
            if alert is not None and change is not None:
                if self._book.may_wait(alert) and self._book.is_quiet(self._now()):
                    self._book.hold(change, alert)
                    if position.progress.held is None:
                        position.progress.held = record.offset
                else:
                    if not await self._deliver(self._book.message(change, alert), position):
                        break
                    position.next = record.offset + 1
                    await self._commit(tp)
            position.next = record.offset + 1
        await self._commit(tp)

    async def _digest(self) -> None:
        """Send what waits, if the quiet hours are over."""
        spans = {tp: each for tp, each in self._positions.items() if each.progress.held is not None}
        if not spans or self._book.is_quiet(self._now()):
            return
        await self._commit(*spans)  # a repeat after a crash is then about the same records, and has the same id
        span = [(tp.topic, each.progress.held or 0, each.next) for tp, each in spans.items()]
        message = self._book.digest(span)
        if message is not None and not await self._deliver(message, next(iter(spans.values()))):
            return
        self._book.held.clear()
        for each in spans.values():
            each.progress.held = None
        await self._commit(*spans)

    async def _deliver(self, message: Message, position: RoutePosition) -> bool:
        """Send until the receiver has it or refuses it. Return False if the route is to stop before that."""
        delay, longest = self._delays
        while message.id not in self._sent:
            self.busy = True
            outcome = await self._sender.send(message)
            if not outcome.delivered and not outcome.refused:
                self.failed += 1
                self._set_trouble(f"{outcome.said}; trying again in {delay:g} s")
                self.busy = False
                await wait_set(self._stop, delay)
                if self._stop.is_set():
                    return False
                await self._renew()
                await self._measure()
                delay = min(delay * 2, longest)
                continue
            self._sent[message.id] = None
            if outcome.delivered:
                self.delivered += 1
                position.progress.delivered = self._now()
            else:
                self.refused += 1
                position.progress.refused += 1
                position.progress.answer = outcome.said
                log.error(
                    "%s: refused, not sent again: %s: %s (%s)", self.name, outcome.said, message.title, message.id
                )
        if len(self._sent) > _REMEMBERED:
            del self._sent[next(iter(self._sent))]
        self.trouble = ""
        return True

    async def _commit(self, *logs: TP) -> None:
        refused = await self._groups.commit(self._group, {tp: self._positions[tp].commit() for tp in logs})
        if refused:
            tp, why = next(iter(refused.items()))
            raise RefusedError(
                f"{self._group} cannot be committed for {tp.topic}: {why.name}",
                hint="no other program may use this group; fairlead acl apply gives the right to commit",
                group=self._group,
            )
        self.busy = False

    async def _renew(self) -> None:
        """Commit everything once more, if that was long ago."""
        if time.monotonic() - self._renewed >= RENEW:
            await self._commit(*self._positions)
            self._renewed = time.monotonic()

    async def _look(self, tail: Tail) -> None:
        """Follow logs that are new, from their start, try those that were damaged, and measure the lag."""
        for tp, extent in (await self._measure()).items():
            position = self._positions.setdefault(tp, RoutePosition(extent.start))
            if tp not in tail.positions:
                tail.add(tp, position.next)

    async def _measure(self) -> Mapping[TP, OffsetRange]:
        """Measure the lag. Return the logs of alerts that are here."""
        here = await extents(self._cluster, await _alert_logs(self._cluster))
        self.lag = sum(max(0, here[tp].end - each.next) for tp, each in self._positions.items() if tp in here)
        return here

    def _set_trouble(self, what: str) -> None:
        log.warning("%s: %s", self.name, what)
        self.trouble = what

    def snapshot(self) -> dict[str, Any]:
        """Return what the metrics show of the route."""
        counted = {"delivered": self.delivered, "refused": self.refused, "failed": self.failed, "lag": self.lag}
        failing = bool(self.trouble or self._damaged)
        return {"route": self.name, **counted, "held": len(self._book.held), "failing": failing}


class NotifyService:
    """All routes of a topology.

    Args:
        chosen: The routes to run; empty: all.

    Raises:
        ConfigurationError: the topology has no such route, or a route's address or secret cannot be used.
    """

    def __init__(self, topology: Topology, resolver: EndpointResolver, chosen: Sequence[str] = ()) -> None:
        notify = notify_of(topology)
        self._kafka = lambda: resolver.kafka(notify.at, NOTIFY)
        self._known = KnownBookings(topology, notify.at)
        self._cluster: Cluster | None = None
        self.routes = [
            RouteRunner(name, topology, make_sender(topology, resolver, name), self._kafka, self._known)
            for name in dict.fromkeys(chosen or notify.routes)
        ]
        for_customers = [each.name for each in self.routes if notify.routes[each.name].customers]
        if for_customers and not self._known.logs:
            raise ConfigurationError(
                f"no booking reaches {notify.at}, so nobody there knows the containers of route {for_customers[0]}",
                hint=f"a link that brings stream bookings to {notify.at}, or another site in notify: {{at: ...}}",
                site=notify.at,
            )

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set.

        Raises:
            FairleadError: the site's Kafka refuses the login, or the bookings cannot be read.
        """
        stopping, starting = asyncio.create_task(stop.wait()), asyncio.create_task(self._start())
        work: list[asyncio.Task[Any]] = [stopping, starting]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                return
            starting.result()
            routes = [asyncio.create_task(each.run(stop)) for each in self.routes]
            work += [*routes, asyncio.create_task(self._known.follow() if self._known.logs else stop.wait())]
            done, _ = await asyncio.wait({*work} - {starting}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                busy = any(each.busy for each in self.routes)
                done, _ = await asyncio.wait(routes, timeout=STOPPING if busy else AT_ONCE)
            for each in done:
                each.result()
        finally:
            for each in work:
                each.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            if self._cluster is not None:
                await self._cluster.close()

    async def _start(self) -> None:
        self._cluster = await retry_transient(
            partial(Cluster.open, self._kafka, client_id=f"fairlead-{NOTIFY}"), "connecting for notifications"
        )
        await self._known.catch_up(self._cluster)

    def snapshot(self) -> dict[str, Any]:
        """Return what the metrics show."""
        return {"routes": [each.snapshot() for each in self.routes]}


async def positions(topology: Topology, kafka: Endpoint) -> dict[str, tuple[dict[TP, RoutePosition], int]]:
    """Return how far each route is: its position in each log, and how many records it has yet to look at.

    A route that never ran has no positions. Raises FairleadError: the site's Kafka cannot be asked.
    """
    groups = GroupClient(current(kafka))
    found: dict[str, tuple[dict[TP, RoutePosition], int]] = {}
    async with await Cluster.open(kafka, client_id=f"fairlead-{NOTIFY}") as cluster:
        here = await extents(cluster, await _alert_logs(cluster))
        for name in notify_of(topology).routes:
            committed = await groups.offsets(NOTIFY_GROUPS + name)
            at = {tp: position_of(each) for tp, each in committed.items() if tp in here}
            begun = {tp: at[tp].next if tp in at else here[tp].start for tp in here} if at else {}
            found[name] = (at, sum(max(0, here[tp].end - begun[tp]) for tp in begun))
    return found


def notify_of(topology: Topology) -> Notify:
    """Return the topology's notifications. Raises ConfigurationError if it has none."""
    if topology.notify is None:
        raise ConfigurationError(
            f"topology {topology.name} has no notifications",
            hint="notify: {at: SITE, routes: {NAME: {to: ...}}}; docs/notify.md has examples",
        )
    return topology.notify


def route_of(topology: Topology, name: str) -> Route:
    """Return a route. Raises UnknownNameError if there is none of this name."""
    routes: Mapping[str, Route] = notify_of(topology).routes
    if name not in routes:
        raise UnknownNameError("route", name, routes)
    return routes[name]


def make_sender(topology: Topology, resolver: EndpointResolver, name: str) -> Sender:
    """Return the sender of a route with its secret. Raises as ``sender_for``."""
    route, at, kept = route_of(topology, name), notify_of(topology).at, route_secret(name)
    hint = (
        f"set the environment variable {secret_variable(at, kept)}, or secrets: {{{at}: {{{kept}: ...}}}} in "
        f"{resolver.override_file}, or write it to the file {at}.{kept} in the folder that {SECRETS_FOLDER} names"
    )
    return sender_for(name, route, lambda: resolver.newest_secret(at, kept), hint)


async def _alert_logs(cluster: Cluster) -> list[TP]:
    return [TP(topic) for topic in await cluster.topics(refresh=True) if topic.startswith(_ALERTS)]


def _log_of(error: CorruptBatch) -> TP:
    return TP(str(error.fields["log"]))


def _decoded(topic: str, record: Record) -> Alert | None:
    """Return the alert in a record; None for a marker, a filler, what this version cannot read, and what a site says in
    another's name."""
    if record.value is None or not is_data(record):
        return None
    try:
        alert = _alert.decode(record.value)
    except UNREADABLE:
        return None
    if is_own_alert(alert, topic):
        return alert
    log.warning("%s: the alert at offset %d is in the name of %s", topic, record.offset, alert.raised_at)
    return None
