"""Decide which entries of a site's ledger to believe (docs/custody.md, "Who is believed").

A ship's machine stands in a container terminal, so its passwords may be stolen. A thief can write any entry into the
ship's ledger, and every site gets a copy. So each reader of ledgers judges every entry here before it acts on it. All
readers reach the same decision. Pure.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from fairlead.custody.ledger import LEDGER_PREFIX, Ledgers, Told
from fairlead.custody.view import SEIZING_TERMS, CustodyView, Grant, SplitCustodyError
from fairlead.kafka.convention import PRODUCER_ID, is_marker
from fairlead.kafka.protocol.batch import HEADER_BYTES, parse_header
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.record import decode_batch
from fairlead.names import LogName, is_container_number, owner_code
from fairlead.records import UNREADABLE, decoder
from fairlead.records.custody import ClaimEntry, CustodyEntry, LedgerEntry, Marker, RefusalEntry, ReturnEntry
from topologies.model import SiteKind, Topology

STRAYS_PREFIX: Final = "strays."
MOST_WAITING: Final = 100_000  # entries of one ledger; an honest ship's wait only while other sites' are late
MOST_DRAINED: Final = 300_000  # bytes of drained positions: an entry has them twice, once in its marker in base64
LONGEST_TEXT: Final = 1_000  # characters of what an entry tried, and of why it is not believed; alerts have both
_marker = decoder(Marker)


Aboard = dict[str, tuple[tuple[int, str], ...]]
"""For each log, the (term, ship) of every grant to a ship."""


class Doubt(NamedTuple):
    """The reason not to believe an entry. ``waits``: a later entry may remove the doubt."""

    why: str
    waits: bool = False


class Refused(NamedTuple):
    """An entry that is not believed, for logs and alerts."""

    ledger: str
    offset: int
    log: str
    tried: str
    why: str
    waits: bool

    @property
    def site(self) -> str:
        """The site of the ledger."""
        return self.ledger.removeprefix(LEDGER_PREFIX)

    def __str__(self) -> str:
        return f"{self.ledger}@{self.offset} is not believed: {self.tried}: {self.why}"


class Rules:
    """The rules by which entries are believed.

    Args:
        at_sea: The sites with a ledger, and whether each is a ship.
        is_box_log: Returns whether a topic is the log of a container.
        strays_at: For each site, the sites that can have its strays; None to skip the check of drained positions.
        others: Whether to believe sites that are not in the topology any more, like sites ashore. Readers of history
            need their entries.
    """

    def __init__(
        self,
        at_sea: Mapping[str, bool],
        is_box_log: Callable[[str], bool],
        strays_at: Mapping[str, Container[str]] | None,
        *,
        others: bool = False,
    ) -> None:
        self._sites = at_sea
        self._is_box_log = is_box_log
        self._strays_at = strays_at
        self._others = others

    @classmethod
    def of(cls, topology: Topology) -> Rules:
        """Return the rules of a topology."""
        at_sea = {
            name: spec.kind is SiteKind.SHIP
            for name, spec in topology.sites.items()
            if spec.kind is not SiteKind.CUSTOMER
        }
        streams = {owner: name for name in topology.moving_streams for owner in topology.streams[name].owners}
        return cls(at_sea, _box_logs(streams), {name: _strays_reach(topology, name) for name in at_sea})

    def ashore_first(self, ledgers: Iterable[str]) -> list[str]:
        """Sort ledgers for reading them whole: ships' last, because their entries wait for those of sites ashore."""
        return sorted(ledgers, key=lambda each: (self.is_of_ship(each), each))

    def is_of_ship(self, ledger: str) -> bool:
        """Return whether this is the ledger of a ship."""
        return self.is_ship(ledger.removeprefix(LEDGER_PREFIX))

    def is_ship(self, site: str) -> bool:
        """Return whether a site is a ship."""
        return self._sites.get(site, False)

    def note(self, entry: LedgerEntry, aboard: Aboard) -> None:
        """Record in ``aboard`` a believed grant to a ship; the judgement of later entries needs it."""
        if isinstance(entry, CustodyEntry) and entry.to_site is not None and self._sites.get(entry.to_site):
            known = aboard.get(entry.log, ())
            if (entry.term, entry.to_site) not in known:
                aboard[entry.log] = (*known, (entry.term, entry.to_site))

    def doubt(self, ledger: str, entry: LedgerEntry, view: CustodyView, aboard: Aboard) -> Doubt | None:
        """Return the doubt about an entry of a ledger; None if it is believed.

        Args:
            view: The reader's view of custody.
            aboard: The grants to ships that the reader has believed (``note``).
        """
        site = ledger.removeprefix(LEDGER_PREFIX)
        if ledger == site or (site not in self._sites and not self._others):
            return Doubt("the topology has no such site")
        author = _author(entry)
        if author != site:
            return Doubt(f"it names {author} as its author, but this is the ledger of {site}")
        if isinstance(entry, RefusalEntry):
            return None
        if not self._is_box_log(entry.log):
            return Doubt(f"{entry.log} is not the log of a container of this topology")
        match entry:
            case ReturnEntry():
                own = STRAYS_PREFIX + site
                return None if entry.strays_log == own else Doubt(f"{site} keeps returned readings only in {own}")
            case ClaimEntry():
                return Doubt("a box cannot enter the system at a ship") if self._sites.get(site) else None
            case CustodyEntry():
                return self._of_grant(site, entry, view, aboard)

    def _of_grant(self, site: str, entry: CustodyEntry, view: CustodyView, aboard: Aboard) -> Doubt | None:
        newest = view.grant(entry.log)
        at_sea = self._sites.get(site, False)
        if not _fits_marker(entry, closely=at_sea):
            return Doubt("the marker that it quotes does not match it")
        if entry.drained_since is not None and entry.drained_since > entry.marker_offset:
            return Doubt(f"its drained_since, offset {entry.drained_since}, is after its own marker")
        if entry.event == "SEIZURE":
            if entry.to_site != site:
                return Doubt(f"a site can seize a log only for itself, not for {entry.to_site}")
            if at_sea and (entry.term - SEIZING_TERMS, site) not in aboard.get(entry.log, ()):
                before = newest is None or newest.term != entry.term - SEIZING_TERMS
                return Doubt("a ship can seize only a log that it got in the newest term", waits=before)
            return self._of_positions(site, entry, None)
        if entry.term == 1:
            if at_sea:
                return Doubt("a ship cannot open the log of a box")
            if entry.from_site is not None or entry.to_site != site:
                return Doubt("a site can open a log only for itself")
            return self._of_positions(site, entry, None)
        comes_in = entry.from_site is None and entry.event == "GTIN" and entry.to_site == site
        if entry.from_site != site and not comes_in:
            return Doubt(f"it gives away a log that, by its own words, {entry.from_site} held")
        if newest is None or entry.term > newest.term + 1:
            if not at_sea:
                return self._of_positions(site, entry, None)
            known = f"term {newest.term} is the newest known" if newest is not None else "no term is known"
            return Doubt(f"no entry shows that {site} held the previous term ({known})", waits=True)
        if entry.term == newest.term + 1:
            if not self._may_pass_on(site, entry, newest, view):
                return Doubt(f"{newest.to_site or 'nobody'} held the log in the previous term, not {site}")
            return self._of_positions(site, entry, newest)
        if at_sea and entry.term == newest.term and newest.granted_by != site:
            return Doubt(f"{newest.granted_by} has opened that term")
        return None  # an entry of an older term changes nothing

    def _may_pass_on(self, site: str, entry: CustodyEntry, newest: Grant, view: CustodyView) -> bool:
        """Return whether a site held the previous term, or opens the log again after the box had left."""
        if site in view.could_hold(entry.log):
            return True
        if newest.to_site is not None or entry.event != "GTIN":
            return False
        return newest.from_site == site or (newest.from_site not in self._sites and not self._sites.get(site))

    def _of_positions(self, site: str, entry: CustodyEntry, newest: Grant | None) -> Doubt | None:
        """Return a doubt if an entry drains strays that its site cannot have, or so many that the next holder could not
        repeat them. It may repeat positions of the newest grant."""
        unchecked = entry.event == "SEIZURE" and self.is_ship(site)  # so it leaves room for what others add
        most = MOST_DRAINED // 2 if unchecked else MOST_DRAINED
        if entry.drained and len(msgspec.json.encode(entry.drained)) > most:
            return Doubt("it names more strays logs than the log's next marker can")
        for log, position in entry.drained.items():
            keeper = log.removeprefix(STRAYS_PREFIX)
            if keeper == log:
                return Doubt(f"{log} is not a strays log")
            if self._strays_at is None or (newest is None and entry.term > 1):
                continue  # it may repeat positions of an earlier term, which is unknown here
            if position > (newest.drained.get(log, -1) if newest is not None else -1):
                if site not in self._strays_at.get(keeper, ()):
                    return Doubt(f"it says that {log} is drained up to {position}, but {site} has no copy of {log}")
        return None


def history_rules(kinds: Mapping[str, str], streams: Mapping[str, str]) -> Rules:
    """Return the rules for readers that only show history. They believe entries of sites that have left the topology,
    and do not check drained positions of strays.

    Args:
        kinds: The kind of each site.
        streams: The stream of each owner code.
    """
    at_sea = {site: kind == SiteKind.SHIP for site, kind in kinds.items() if kind != SiteKind.CUSTOMER}
    return Rules(at_sea, _box_logs(streams), None, others=True)


def _box_logs(streams: Mapping[str, str]) -> Callable[[str], bool]:
    """Return a faster equivalent of ``Topology.is_box_log``.

    Args:
        streams: The stream of each owner code.
    """

    def is_box_log(topic: str) -> bool:
        stream, _, key = topic.partition(".")
        return streams.get(owner_code(key)) == stream and is_container_number(key)

    return is_box_log


class _WaitingEntries:
    """The entries of one log that wait. A ship's grant waits for the term before its own, or a later one. A ship's
    seizure waits for one term only, in which the ship must have got the log. So news of a term concerns few of them."""

    def __init__(self) -> None:
        self._number = 0
        self._grants: list[tuple[int, int, Told, Doubt]] = []  # a heap by the term that each waits for
        self._seizures: dict[int, dict[str | None, list[tuple[int, Told, Doubt]]]] = {}  # by that term and by ship

    def __bool__(self) -> bool:
        return bool(self._grants or self._seizures)

    def add(self, told: Told, doubt: Doubt) -> None:
        self._number += 1
        if isinstance(told.entry, CustodyEntry) and told.entry.event == "SEIZURE":
            ships = self._seizures.setdefault(told.entry.term - SEIZING_TERMS, {})
            ships.setdefault(told.entry.to_site, []).append((self._number, told, doubt))
        else:
            heapq.heappush(self._grants, (_term(told) - 1, self._number, told, doubt))

    def take(self, news: CustodyEntry, newest: int | None) -> list[tuple[int, int, int, Told]]:
        """Remove the entries that this news may clear; return each behind what puts it in order. News of an older term
        than the newest clears only seizures by the ship that got the log in it."""
        found: list[tuple[int, Told]] = []
        ships = self._seizures.pop(news.term, {})
        for ship in [*ships] if news.term == newest else {news.to_site}.intersection(ships):
            found += [(number, told) for number, told, _ in ships.pop(ship)]
        if ships:
            self._seizures[news.term] = ships
        while self._grants and self._grants[0][0] <= news.term:
            _, number, told, _ = heapq.heappop(self._grants)
            found.append((number, told))
        return [(_term(told), told.offset, number, told) for number, told in found]

    def entries(self) -> Iterator[tuple[Told, Doubt]]:
        yield from ((told, doubt) for *_, told, doubt in self._grants)
        for ships in self._seizures.values():
            yield from ((told, doubt) for _, told, doubt in chain.from_iterable(ships.values()))


class Believer:
    """Judge entries for one reader as they arrive, in any order; keep those that wait for others.

    Args:
        view: The reader's view of custody. The reader must apply each entry that ``hear`` yields before it takes the
            next one.
        on_refused: Called with each entry that is refused for good; ``doubtful`` has the entries that wait.
    """

    def __init__(self, rules: Rules, view: CustodyView, *, on_refused: Callable[[Refused], None]) -> None:
        self._rules = rules
        self._view = view
        self._on_refused = on_refused
        self._aboard: Aboard = {}
        self._waiting: dict[str, _WaitingEntries] = {}  # by log; only news of the log changes a doubt
        self._counts: Counter[str] = Counter()

    def hear(self, told: Told) -> Iterator[Told]:
        """Judge an entry. If it is believed, yield it and the entries that have waited for it."""
        doubt = self._doubt(told)
        if doubt is None:
            self._rules.note(told.entry, self._aboard)
            yield told
            if isinstance(told.entry, CustodyEntry):
                yield from self._released(told.entry)
        elif doubt.waits and self._counts[told.ledger] < MOST_WAITING:
            self._wait(told, doubt)
        else:
            self._on_refused(refused(told, doubt))

    def trusts_strays(self, strays: str, log: str) -> bool:
        """Return whether a site's strays of a log may be appended to the log. A ship's strays may only if the ship was
        once given the log."""
        keeper = strays.removeprefix(STRAYS_PREFIX)
        return not self._rules.is_ship(keeper) or any(site == keeper for _, site in self._aboard.get(log, ()))

    def refusal(self, site: str, entry: CustodyEntry) -> str | None:
        """Return why an entry of a site will never be believed, whatever else arrives; None if it is or may be."""
        doubt = self._doubt(Told(LEDGER_PREFIX + site, 0, entry))
        return doubt.why if doubt is not None and not doubt.waits else None

    def doubtful(self) -> Iterable[tuple[Told, Doubt]]:
        """Return the entries that wait now, each with its doubt, for one iteration before the next ``hear``.

        An entry may wait for late ones; one that keeps waiting is forged.
        """
        return chain.from_iterable(each.entries() for each in self._waiting.values())

    def __len__(self) -> int:
        """Return the number of waiting entries."""
        return self._counts.total()

    def _doubt(self, told: Told) -> Doubt | None:
        return self._rules.doubt(told.ledger, told.entry, self._view, self._aboard)

    def _wait(self, told: Told, doubt: Doubt) -> None:
        self._counts[told.ledger] += 1
        self._waiting.setdefault(told.entry.log, _WaitingEntries()).add(told, doubt)

    def _released(self, news: CustodyEntry) -> Iterator[Told]:
        """Judge the entries that have waited for this one, and those that have waited for these."""
        if (waiting := self._waiting.get(news.log)) is None:
            return
        due = waiting.take(news, self._view.term(news.log))
        heapq.heapify(due)
        while due:
            *_, told = heapq.heappop(due)
            self._counts[told.ledger] -= 1
            for each in self._again(told):
                yield each
                if isinstance(each.entry, CustodyEntry):  # no other entry waits
                    for next_due in waiting.take(each.entry, self._view.term(news.log)):
                        heapq.heappush(due, next_due)
        if not waiting:
            del self._waiting[news.log]

    def _again(self, told: Told) -> Iterator[Told]:
        doubt = self._doubt(told)
        if doubt is None:
            self._rules.note(told.entry, self._aboard)
            yield told
        elif doubt.waits:
            self._wait(told, doubt)
        else:
            self._on_refused(refused(told, doubt))


def sift(rules: Rules, told: Iterable[Told]) -> tuple[list[Told], list[Refused]]:
    """Return the entries that are believed, in the order given, and the others. ``told`` must have all entries of each
    log."""
    view, aboard = CustodyView(), Aboard()
    given = list(told)
    bad: dict[int, Refused] = {}
    for place in sorted(range(len(given)), key=lambda each: (_term(given[each]), given[each].ledger, each)):
        each = given[place]
        doubt = rules.doubt(each.ledger, each.entry, view, aboard)
        if doubt is not None:
            bad[place] = refused(each, doubt)
        elif isinstance(each.entry, CustodyEntry):
            rules.note(each.entry, aboard)
            with contextlib.suppress(SplitCustodyError):  # the log's chain of custody shows it
                view.apply(each.entry)
    return [each for place, each in enumerate(given) if place not in bad], [bad[place] for place in sorted(bad)]


def sifted(topology: Topology, ledgers: Ledgers) -> Ledgers:
    """Return a site's ledgers with the believed entries only; the others are in ``refused``."""
    good, bad = sift(Rules.of(topology), ledgers.told)
    return ledgers.keeping(good, tuple(map(str, bad)))


def believed(topology: Topology, several: Iterable[Ledgers]) -> list[LedgerEntry]:
    """Return the believed entries of the ledgers of several sites together, each once."""
    told = {(each.ledger, each.offset): each for ledgers in several for each in ledgers.told}
    return [each.entry for each in sift(Rules.of(topology), told.values())[0]]


def refused(told: Told, doubt: Doubt) -> Refused:
    """Return the facts of an entry that is not believed. A thief may have written names of any length."""
    tried, why = _tried(told.entry)[:LONGEST_TEXT], doubt.why[:LONGEST_TEXT]
    return Refused(told.ledger, told.offset, told.entry.log, tried, why, doubt.waits)


def _strays_reach(topology: Topology, keeper: str) -> frozenset[str]:
    """Return the sites that can have a site's strays: the site itself, and those that links copy them to."""
    log = LogName("strays", keeper)
    steps: dict[str, list[str]] = defaultdict(list)
    for link in topology.directed_links():
        if topology.takes(link, log):
            steps[link.from_].append(link.to)
    found, left = {keeper}, [keeper]
    while left:
        for site in steps[left.pop()]:
            if site not in found:
                found.add(site)
                left.append(site)
    return frozenset(found)


def _fits_marker(entry: CustodyEntry, *, closely: bool) -> bool:
    """Return whether the marker batch in an entry matches the entry; true without one.

    Args:
        closely: Compare the marker's fields too, and not only the batch header.
    """
    batch = entry.marker_batch
    if not batch:
        return True
    try:
        if len(batch) < HEADER_BYTES or (header := parse_header(batch)).size != len(batch):
            return False
        said = (header.producer_id, header.producer_epoch, header.base_sequence, header.count)
        if said != (PRODUCER_ID, entry.term, 0, 1):
            return False
        if not closely:
            return True
        (record,) = decode_batch(batch)
        if not is_marker(record) or record.value is None:
            return False
        marker = _marker.decode(record.value)
    except (*UNREADABLE, CorruptBatch):
        return False
    return all(
        getattr(marker, name) == getattr(entry, name)
        for name in ("log", "term", "from_site", "to_site", "event", "event_id", "drained", "drained_since")
    )


def _author(entry: LedgerEntry) -> str:
    match entry:
        case CustodyEntry():
            return entry.granted_by
        case ReturnEntry():
            return entry.returned_by
        case RefusalEntry():
            return entry.refused_by
        case ClaimEntry():
            return entry.claimed_by


def _term(told: Told) -> int:
    return told.entry.term if isinstance(told.entry, CustodyEntry) else 0


def _tried(entry: LedgerEntry) -> str:
    match entry:
        case CustodyEntry(event="SEIZURE"):
            return f"to seize {entry.log} in term {entry.term} for {entry.to_site}"
        case CustodyEntry():
            return f"to give {entry.log} in term {entry.term} to {entry.to_site or 'nobody'}"
        case ReturnEntry():
            return f"to report a return of {entry.log}"
        case RefusalEntry():
            return f"to refuse order {entry.order_id}"
        case ClaimEntry():
            return f"to claim {entry.log}"
