"""Sites as custody orders by hand see them, without brokers: ledgers, copies, and bridges with scripted answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from edge.strays.report import WaitingLog
from fairlead.custody.ledger import Damaged, Ledgers, Missing, Told
from fairlead.errors import FairleadError, UnavailableError
from fairlead.kafka.client.reader import OffsetRange
from fairlead.records.custody import CustodyEntry, CustodyOrder, LedgerEntry
from tests.support.ledgers import entry

Answer = Callable[[CustodyOrder], LedgerEntry | None]


@dataclass
class FakeLedgers:
    """``entries``: the ledger entries at each site. ``answer``: what a site's bridge writes when it gets an order."""

    entries: dict[str, list[LedgerEntry]]
    copies_of: dict[tuple[str, str], OffsetRange] = field(default_factory=dict)
    strays: tuple[WaitingLog, ...] = ()
    away: set[str] = field(default_factory=set)
    damaged: tuple[Damaged, ...] = ()
    missing: tuple[Missing, ...] = ()
    answer: Answer = lambda order: None
    given: list[tuple[str, CustodyOrder]] = field(default_factory=list)
    written: list[LedgerEntry] = field(default_factory=list)
    trouble: FairleadError | None = None  # raised when the ledger is read after an order
    asked: list[str] = field(default_factory=list)
    _known: list[LedgerEntry] = field(default_factory=list)

    async def ledgers(self, site: str, *, about: str | None = None) -> Ledgers:
        self._reach(site)
        entries = self.entries.get(site, [])
        own = tuple(each for each in entries if about is None or each.log == about)
        names = frozenset(each.log for each in entries)
        told = tuple(Told(f"custody.{_writer(each) or site}", self._offset(each), each) for each in own)
        return Ledgers(site, ("custody.tokyo",), own, names, self.damaged, self.missing, told)

    async def copy(self, site: str, log: str) -> OffsetRange | None:
        self._reach(site)
        return self.copies_of.get((site, log))

    async def copies(self, site: str, logs: Collection[str]) -> Mapping[str, OffsetRange]:
        self._reach(site)
        return {log: self.copies_of[site, log] for log in logs if (site, log) in self.copies_of}

    async def waiting(self, site: str, ledgers: Ledgers) -> tuple[WaitingLog, ...]:
        self._reach(site)
        return self.strays

    async def answers(self, site: str) -> bool:
        return site not in self.away

    async def append(self, site: str, orders: Sequence[CustodyOrder]) -> None:
        self._reach(site)
        for order in orders:
            self.given.append((site, order))
            entry = self.answer(order)
            self.written += [entry] if entry is not None else []

    async def orders(self, site: str) -> Sequence[CustodyOrder]:
        self._reach(site)
        return [order for at, order in self.given if at == site]

    async def ledger_end(self, site: str) -> int:
        self._reach(site)
        return 0

    async def ledger_since(self, site: str, position: int) -> tuple[Sequence[LedgerEntry], int]:
        if self.trouble is not None:
            raise self.trouble
        return self.written[position:], len(self.written)

    def _offset(self, entry: LedgerEntry) -> int:
        """Return a number of its own for each entry: copies of one entry at several sites have the same."""
        if entry not in self._known:
            self._known.append(entry)
        return self._known.index(entry)

    def _reach(self, site: str) -> None:
        self.asked.append(site)
        if site in self.away:
            raise UnavailableError(f"{site} is away", hint="start it")


def _writer(entry: LedgerEntry) -> str | None:
    return entry.granted_by if isinstance(entry, CustodyEntry) else None


def carried_out(order: CustodyOrder) -> CustodyEntry:
    """Return the ledger entry of a bridge that has carried out an order."""
    return entry(3, 31, order.to_site, log=order.log, event_id=order.order_id)
