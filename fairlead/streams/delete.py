"""Delete the topics of a stream that the topology no longer has.

A stream that the topology declares is never deleted: its links would copy the topics back, and its holders would go on
writing, some of them at sites that cannot be reached now. So a stream is first taken out of the topology, which the
loader allows only together with its links; then ``plan_deletion`` plans what is left of it at the sites.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from edge.status import read_bridge
from fairlead.errors import ConfigurationError, RefusedError, UnavailableError
from fairlead.kafka.admin import BATCH, delete_logs
from fairlead.names import STREAM_NAME
from fairlead.plan import LineStyle, Plan, PlanLine, PlanStep, Tell, shortened, silent
from fairlead.streams.inventory import (
    RESERVED,
    FindKafka,
    Inventory,
    StoredLog,
    UnreachedSite,
    take_inventory,
)
from replication.operations.links.access import read_status
from topologies.loader.load import locate
from topologies.model import DEFAULT_STREAMS, Topology

SETTLE: Final = 2.0  # seconds for which no log may grow before it is deleted


@dataclass(frozen=True, slots=True)
class DoomedLog:
    """A log to delete.

    Args:
        topic_id: In hexadecimal; another topic of the same name stays.
        ends: The offset after the last record of each partition, by which a writer is noticed.
        records, bytes: None if the site does not tell.
    """

    log: str
    topic_id: str
    ends: tuple[tuple[int, int], ...]
    records: int | None
    bytes: int | None


def doomed(stored: StoredLog) -> DoomedLog:
    """Return a log of an inventory as one to delete."""
    return DoomedLog(
        stored.log, stored.topic_id.hex(), tuple(sorted(stored.ends.items())), stored.records, stored.bytes
    )


@dataclass(slots=True)
class DeletionRun:
    """The context of the steps: the sites, and what was done so far."""

    kafka: FindKafka
    tell: Tell = silent
    done: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteTopics(PlanStep[DeletionRun]):
    """Delete a stream's topics at one site, if nobody has written to them since the plan was made."""

    site: str
    stream: str
    logs: tuple[DoomedLog, ...]

    def describe(self) -> str:
        return f"{self.site}: delete {_counted(self.logs)} of {self.stream}"

    def details(self) -> Iterator[PlanLine]:
        largest = sorted(self.logs, key=lambda each: (-(each.bytes or 0), -(each.records or 0), each.log))
        for line in shortened([f"{each.log}: {_amount(each.records, each.bytes)}" for each in largest]):
            yield PlanLine(line.text, LineStyle.REMOVE)

    async def carry_out(self, context: DeletionRun) -> None:
        found = await take_inventory(context.kafka, [self.site], only=self.stream)
        for away in found.unreached:
            raise UnavailableError(f"{self.site}: {away.why}", hint=away.hint, site=self.site)
        here = {each.log: doomed(each) for site in found.sites for each in site.logs(self.stream)}
        check_unwritten(self.site, self.logs, here)
        left = [each.log for each in self.logs if each.log in here]
        deleted = 0
        for first in range(0, len(left), BATCH):
            part = left[first : first + BATCH]
            deleted += len(await asyncio.to_thread(delete_logs, context.kafka(self.site), part))
            context.tell(f"{self.site}: {deleted} of {len(left)} topics of {self.stream} are deleted")
        context.done.append(f"{self.site}: deleted {_topics(deleted)} of {self.stream}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionPlan(Plan[DeletionRun]):
    """The topics to delete, site by site, and the sites that could not be asked. Carrying it out stops at the first
    site that fails; another plan does the rest."""

    shows_identity: ClassVar[bool] = True
    stream: str
    unreached: tuple[UnreachedSite, ...] = ()


async def plan_deletion(
    topology: Topology, kafka: FindKafka, stream: str, sites: Sequence[str], *, settle: float = SETTLE
) -> DeletionPlan:
    """Ask the sites for the stream's topics, look again after ``settle`` seconds, and make the plan.

    Raises:
        ConfigurationError: no stream can have this name.
        RefusedError: the stream is built in, the topology declares it, or somebody writes to it.
        UnavailableError: no site answers.
    """
    check_not_declared(topology, stream)
    first = await take_inventory(kafka, sites, only=stream)
    if first.streams():
        await asyncio.sleep(settle)
    second = await take_inventory(kafka, sites, only=stream) if first.streams() else first
    return build_deletion(topology, stream, first, second)


def build_deletion(topology: Topology, stream: str, first: Inventory, second: Inventory) -> DeletionPlan:
    """Make the plan from two looks at the sites. Raises as ``plan_deletion``."""
    check_not_declared(topology, stream)
    before = {site.site: [doomed(each) for each in site.logs(stream)] for site in first.sites}
    seen_twice = [site for site in second.sites if site.site in before]
    seen_once = [site.site for site in second.sites if site.site not in before]
    late = (UnreachedSite(site, f"{site} answered only at the second look", "repeat the command") for site in seen_once)
    unreached = (*second.unreached, *late)
    if not seen_twice and unreached:
        away = unreached[0]
        raise UnavailableError(f"{away.site}: {away.why}", hint=away.hint, site=away.site)
    steps: list[DeleteTopics] = []
    notes: list[str] = []
    for site in seen_twice:
        logs = {each.log: doomed(each) for each in site.logs(stream)}
        check_unwritten(site.site, before[site.site], logs)
        if new := logs.keys() - {each.log for each in before[site.site]}:
            raise _still_used(site.site, min(new), "was made meanwhile")
        if not logs:
            continue
        steps.append(DeleteTopics(site.site, stream, tuple(logs.values())))
        if not topology.sites[site.site].is_local:
            notes.append(f"fairlead up did not start {site.site}: make sure that every topic {stream}.* there is yours")
    if not steps:
        notes.append(f"no site that answers has a topic {stream}.*")
    notes += (f"{each.site} was not reached, what it has stays: {each.why}" for each in unreached)
    return DeletionPlan(stream=stream, steps=tuple(steps), notes=tuple(notes), unreached=unreached)


def check_not_declared(topology: Topology, stream: str) -> None:
    """Check that a stream may be deleted.

    Raises:
        ConfigurationError: no stream can have this name.
        RefusedError: it is built in, or the topology still has it; the hint says where.
    """
    if not STREAM_NAME.fullmatch(stream):
        raise ConfigurationError(
            f"{stream!r} cannot be a stream's name",
            hint="small letters, digits and -, at most 40, a letter first; fairlead stream list shows what sites have",
            stream=stream,
        )
    if stream == RESERVED:
        what, hint = f"topics {stream}.* hold orders and records of access", "no stream has this name"
        raise RefusedError(what, hint=hint, stream=stream)
    if stream in DEFAULT_STREAMS:
        raise RefusedError(
            f"{stream} is built into Fairlead and cannot be deleted",
            hint=f"fairlead stream set {stream} --retention SITE=DURATION shortens it",
            stream=stream,
        )
    if stream not in topology.streams:
        return
    links = [link.name for link in topology.directed_links() if stream in link.streams]
    kept = [name for name, site in topology.sites.items() if stream in site.retention]
    carried = f", and {_some(links)} carr{'y' if len(links) > 1 else 'ies'} it" if links else ""
    places = [f"streams.{stream}"]
    places += [f"links: {_some(links)}"] if links else []
    places += [f"retention of {_some(kept)}"] if kept else []
    raise RefusedError(
        f"topology {topology.name} has stream {stream}: its holders write it{carried}",
        hint=f"take it out of the topology's file ({', '.join(places)}); then fairlead acl apply, restart bridges and "
        "replicators, and repeat this command",
        stream=stream,
        links=links,
    )


def check_unwritten(site: str, before: Collection[DoomedLog], now: Mapping[str, DoomedLog]) -> None:
    """Check that no log has grown or was made again. A log that is gone is no matter, and neither is one that has no
    leader either time.

    Raises:
        RefusedError: somebody writes to a log, or has made it again.
    """
    for each in before:
        found = now.get(each.log)
        if found is None or (found.topic_id, found.ends) == (each.topic_id, each.ends):
            continue
        why = "is still written"
        if found.topic_id != each.topic_id:
            why = "was made again"
        elif dict(found.ends).keys() != dict(each.ends).keys():
            why = "answers only now and then"
        raise _still_used(site, each.log, why)


def _still_used(site: str, log: str, why: str) -> RefusedError:
    return RefusedError(
        f"{log} at {site} {why}; its topics there stay",
        hint="stop its writers (fairlead status shows what runs; fairlead acl apply takes their rights), then "
        "repeat the command",
        site=site,
        log=log,
    )


def check_workers(folder: Path, source: str, sites: Collection[str]) -> None:
    """Check that no bridge or replicator on this machine runs with an older topology than the file's.

    Such a worker may write to the stream, and would make its topics again.

    Raises:
        RefusedError: one started before the file was changed.
    """
    changed = dt.datetime.fromtimestamp(locate(source).stat().st_mtime, dt.UTC)
    old = [name for name, started in _workers(folder, sites) if started < changed]
    if old:
        raise RefusedError(
            f"{_some(old)} started before the topology's file was changed, and may still write the stream",
            hint="restart it: workers read the topology when they start",
            workers=old,
        )


def _workers(folder: Path, sites: Collection[str]) -> Iterator[tuple[str, dt.datetime]]:
    for site in sites:
        bridge, status = read_bridge(folder, site), read_status(folder, site)
        if bridge is not None and bridge["running"]:
            yield f"the bridge of {site}", dt.datetime.fromtimestamp(float(bridge["started"]), dt.UTC)
        if status is not None and status.running:
            yield f"the replicator of {site}", dt.datetime.fromisoformat(status.snapshot["started"])


def _counted(logs: Collection[DoomedLog]) -> str:
    records = [each.records for each in logs]
    sizes = [each.bytes for each in logs]
    total = None if None in records else sum(each or 0 for each in records)
    size = None if None in sizes else sum(each or 0 for each in sizes)
    return f"{_topics(len(logs))} with {_amount(total, size)}"


def _topics(count: int) -> str:
    return f"{count:,} topic{'s' * (count != 1)}"


def _amount(records: int | None, size: int | None) -> str:
    counted = "an unknown number of" if records is None else f"{records:,}"
    return f"{counted} record{'s' * (records != 1)}, " + ("unknown bytes" if size is None else f"{size:,} bytes")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
