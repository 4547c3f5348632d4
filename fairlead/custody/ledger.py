"""Read all custody ledgers that one site has: the entries of its ``custody.*`` logs, and the gaps in them.

In: a connected cluster. Out: entries, damaged records, and missing offsets (retention, a truncated ledger, fillers).
With missing offsets, conclusions from the entries are incomplete, and commands show that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import extents, sweep
from fairlead.kafka.convention import is_data, is_filler
from fairlead.kafka.protocol.types import TP
from fairlead.records import UNREADABLE
from fairlead.records.custody import LedgerEntry, ledger_entries

LEDGER_PREFIX: Final = "custody."


class Told(NamedTuple):
    """An entry with its ledger and offset."""

    ledger: str
    offset: int
    entry: LedgerEntry


@dataclass(frozen=True, slots=True)
class Damaged:
    """A ledger record that this version of Fairlead cannot decode."""

    ledger: str
    offset: int
    problem: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Offsets of a ledger, ``start`` to before ``stop``, that this site does not have; each may have been an entry."""

    ledger: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Ledgers:
    """The entries in one site's copies of the ledgers.

    Args:
        site: The site whose copies were read.
        ledgers: The ledgers' names.
        entries: In offset order within each ledger, with ledgers interleaved.
        logs: Every log that an entry names, even if only the entries of one log were asked for.
        told: The entries again, each with its ledger and offset.
        refused: Reasons for leaving out entries that are not believed (``topologies.ledger_trust``), a sentence each.
    """

    site: str
    ledgers: tuple[str, ...]
    entries: tuple[LedgerEntry, ...]
    logs: frozenset[str]
    damaged: tuple[Damaged, ...] = ()
    missing: tuple[Missing, ...] = ()
    told: tuple[Told, ...] = ()
    refused: tuple[str, ...] = ()

    def keeping(self, told: Sequence[Told], refused: tuple[str, ...]) -> Ledgers:
        """Return a copy with only these entries."""
        return replace(self, entries=tuple(each.entry for each in told), told=tuple(told), refused=refused)


async def read_ledgers(cluster: Cluster, site: str, *, about: str | None = None) -> Ledgers:
    """Read every ledger that a site has, each up to its current end; skip damaged records and list them in the result.

    Args:
        site: The site's name, for the result.
        about: Keep only the entries of this log.

    Raises:
        BrokerError: a ledger may not be read. ConnectionLost, RequestTimeout: no broker answers.
    """
    topics = await cluster.topics(refresh=True)
    names = sorted(name for name in topics if name.startswith(LEDGER_PREFIX))
    wanted = await extents(cluster, [TP(name) for name in names])
    reached = dict.fromkeys(names, 0)
    told: list[Told] = []
    damaged: list[Damaged] = []
    missing: list[Missing] = []
    logs: set[str] = set()

    def skipped(ledger: str, start: int, stop: int) -> None:
        last = missing[-1] if missing else None
        if last is not None and last.ledger == ledger and last.stop == start:
            missing[-1] = Missing(ledger, last.start, stop)
        else:
            missing.append(Missing(ledger, start, stop))

    decode = ledger_entries.decode
    async for log, records in sweep(cluster, wanted):
        ledger = log.topic
        expected = reached[ledger]
        for record in records:
            if record.offset > expected:
                skipped(ledger, expected, record.offset)
            expected = record.offset + 1
            if not is_data(record):
                if is_filler(record):
                    skipped(ledger, record.offset, expected)
                continue
            try:
                entry = decode(record.value or b"")
            except UNREADABLE as error:
                damaged.append(Damaged(ledger, record.offset, str(error)))
                continue
            logs.add(entry.log)
            if about is None or entry.log == about:
                told.append(Told(ledger, record.offset, entry))
        reached[ledger] = expected
    for log, extent in wanted.items():
        if reached[log.topic] < extent.end:
            skipped(log.topic, reached[log.topic], extent.end)
    entries = tuple(each.entry for each in told)
    return Ledgers(site, tuple(names), entries, frozenset(logs), tuple(damaged), tuple(missing), tuple(told))
