"""Sites as custody orders by hand see them, without brokers: ledgers, copies, and bridges with scripted answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edge.strays.report import WaitingLog
from fairlead.custody.ledger import Damaged, Ledgers, Missing
from fairlead.errors import FairleadError, UnavailableError
from fairlead.kafka.client.reader import OffsetRange
from fairlead.records.custody import CustodyEntry, CustodyOrder, LedgerEntry
from tests.support.ledgers import entry

Answer = Callable[[CustodyOrder], LedgerEntry | None]


@dataclass
class FakeLedgers:
    """``entries``: the ledger entries at each site. ``answer``: what a site's bridge writes when it gets an order."""

    entries: dict[str, list[LedgerEntry]]
    copies: dict[tuple[str, str], OffsetRange] = field(default_factory=dict)
    strays: tuple[WaitingLog, ...] = ()
    away: set[str] = field(default_factory=set)
    damaged: tuple[Damaged, ...] = ()
    missing: tuple[Missing, ...] = ()
    answer: Answer = lambda order: None
    orders: list[tuple[str, CustodyOrder]] = field(default_factory=list)
    written: list[LedgerEntry] = field(default_factory=list)
    trouble: FairleadError | None = None  # raised when the ledger is read after an order
    asked: list[str] = field(default_factory=list)

    async def ledgers(self, site: str, *, about: str | None = None) -> Ledgers:
        self._reach(site)
        entries = self.entries.get(site, [])
        own = tuple(each for each in entries if about is None or each.log == about)
        names = frozenset(each.log for each in entries)
        return Ledgers(site, ("custody.tokyo",), own, names, self.damaged, self.missing)

    async def copy(self, site: str, log: str) -> OffsetRange | None:
        self._reach(site)
        return self.copies.get((site, log))

    async def waiting(self, site: str, ledgers: Ledgers) -> tuple[WaitingLog, ...]:
        self._reach(site)
        return self.strays

    async def answers(self, site: str) -> bool:
        return site not in self.away

    async def append(self, site: str, order: CustodyOrder) -> int:
        self._reach(site)
        self.orders.append((site, order))
        entry = self.answer(order)
        self.written += [entry] if entry is not None else []
        return len(self.orders) - 1

    async def ledger_end(self, site: str) -> int:
        self._reach(site)
        return 0

    async def ledger_since(self, site: str, position: int) -> tuple[Sequence[LedgerEntry], int]:
        if self.trouble is not None:
            raise self.trouble
        return self.written[position:], len(self.written)

    def _reach(self, site: str) -> None:
        self.asked.append(site)
        if site in self.away:
            raise UnavailableError(f"{site} is away", hint="start it")


def carried_out(order: CustodyOrder) -> CustodyEntry:
    """Return the ledger entry of a bridge that has carried out an order."""
    return entry(3, 31, order.to_site, log=order.log, event_id=order.order_id)
