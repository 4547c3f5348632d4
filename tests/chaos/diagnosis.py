"""Describe why readings are missing in their log, for a person who looks at a failed storm.

The description shows, for each site, who holds the log by that site's ledgers and which copies and strays logs have the
missing readings. It only reads, and draws no conclusion.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from edge.logwriter.records import event_of, identity
from edge.strays.store import readable
from fairlead.custody.ledger import LEDGER_PREFIX, Ledgers, read_ledgers
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.clusters import Clusters
from fairlead.kafka.protocol.types import TP
from fairlead.records.custody import ClaimEntry, CustodyEntry, LedgerEntry, RefusalEntry, ReturnEntry
from tests.chaos.world import World
from tests.support.invariants import Name, names, stored, view_of
from topologies.ledger_trust import sifted

STRAYS: Final = "strays."
_COUNTED: Final = (
    "ready",
    "mqtt_connected",
    "unacked",
    "mqtt_dropped",
    "qos0_dropped",
    "strays_waiting",
    "strays_gone",
    "events_waiting",
    "dead_letters",
    "custody",
)


class Diagnosis:
    """Describe logs that lack readings, from the ledgers, copies and strays of all sites."""

    def __init__(self, world: World, clusters: Clusters) -> None:
        self._world = world
        self._clusters = clusters

    async def describe(self, missing: Mapping[str, Collection[Name]]) -> str:
        """Return what is known of the readings missing in each log, one fact a line."""
        lines = [f"the bridge of {site}: {self._counts(site)}" for site in self._world.bridges]
        for log, lost in missing.items():
            lines.append(f"{log} lacks {len(lost)} readings, {min(lost)} to {max(lost)}")
            lines += [f"  {line}" for line in await self._of_log(log, set(lost))]
        return "\n".join(lines)

    def _counts(self, site: str) -> dict[str, Any]:
        status = self._world.status("bridge", site)
        return {name: status.get(name) for name in _COUNTED}

    async def _of_log(self, log: str, lost: set[Name]) -> list[str]:
        lines: list[str] = []
        found: set[Name] = set()
        for site in self._world.sites:
            cluster = await self._clusters.at(site)
            topics = await cluster.topics(refresh=True)
            ledgers = await read_ledgers(cluster, site, about=log)
            lines.append(f"ledgers at {site}: {self._grant(log, ledgers)}")
            if log in topics:
                copy = await stored(cluster, log)
                there = lost & names(copy).keys()
                lines.append(f"copy at {site}: {len(copy)} records, {len(there)} of the missing ones")
                found |= there
            for keeper in self._world.sites:
                if STRAYS + keeper in topics:
                    kept = await kept_at(cluster, keeper, log)
                    lines += [f"{STRAYS}{keeper} at {site}: {line}" for line in kept.lines(lost)]
                    found |= lost & kept.readings.keys()
        lines.append(f"{len(lost - found)} of them are nowhere: {sorted(lost - found)[:5]}")
        return lines + await self._history(log)

    def _grant(self, log: str, ledgers: Ledgers) -> str:
        """Describe the newest grant of a log that the readers of a site's ledgers accept."""
        believed = sifted(self._world.topology, ledgers)
        grant = view_of(believed.entries).grant(log)
        if grant is None:
            return "no grant"
        refused = f"; refused: {believed.refused}" if believed.refused else ""
        return (
            f"term {grant.term} from {grant.from_site} to {grant.to_site} by {grant.event} {grant.event_id}, marker at "
            f"{grant.marker}, drained {dict(grant.drained)} since {grant.drained_since}{refused}"
        )

    async def _history(self, log: str) -> list[str]:
        """Return the sites that no entry ever gave the log to, then every entry about it, as its own site has it."""
        lines: list[str] = []
        given: set[str | None] = set()
        for site in self._world.sites:
            ledgers = await read_ledgers(await self._clusters.at(site), site, about=log)
            own = [told for told in ledgers.told if told.ledger == LEDGER_PREFIX + site]
            lines += [f"{told.ledger}@{told.offset}: {_short(told.entry)}" for told in own]
            given |= {told.entry.to_site for told in own if isinstance(told.entry, CustodyEntry)}
        never = [site for site in self._world.sites if site not in given]
        return [f"never given to {never}; strays of a ship that never had the log wait", *lines]


class Kept:
    """The strays of one log in one strays log: offsets by reading, and the ids of events by offset."""

    def __init__(self) -> None:
        self.readings: dict[Name, list[int]] = {}
        self.events: dict[int, str] = {}

    def lines(self, lost: Collection[Name]) -> list[str]:
        """Return lines that say which of the lost readings this strays log has, and which events."""
        offsets = [self.readings[name] for name in lost if name in self.readings]
        lines: list[str] = []
        if offsets:
            lines.append(f"{len(offsets)} of the missing ones, at offsets {min(offsets)[0]} to {max(offsets)[-1]}")
        if self.events:
            lines.append(f"events {self.events}")
        return lines


async def kept_at(cluster: Cluster, keeper: str, log: str) -> Kept:
    """Return the strays of a log that a site has ever kept, from a cluster's copy of the site's strays log."""
    kept = Kept()
    async for record in read_log(cluster, TP(STRAYS + keeper)):
        stray = readable(record)
        if stray is None or stray.log != log:
            continue
        if stray.event:
            event = event_of(stray.payload)
            kept.events[record.offset] = event.metadata.event_id if event is not None else "?"
        elif (name := identity(stray.payload)) is not None:
            kept.readings.setdefault((name.device, name.boot, name.sequence), []).append(record.offset)
    return kept


def _short(entry: LedgerEntry) -> str:
    match entry:
        case CustodyEntry():
            return (
                f"term {entry.term} from {entry.from_site} to {entry.to_site} by {entry.event} {entry.event_id} at "
                f"{entry.granted_date_time:%H:%M:%S.%f}, marker at {entry.marker_offset}, drained {entry.drained} "
                f"since {entry.drained_since}"
            )
        case ReturnEntry():
            return f"returned {entry.marker_offset} to {entry.end_offset}, {entry.kept} readings, term {entry.term}"
        case RefusalEntry():
            return f"refused {entry.order_id}: {entry.reason}"
        case ClaimEntry():
            return f"claim of {entry.left_site} in term {entry.term} by {entry.event_id}"
