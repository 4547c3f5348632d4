"""The site where shore runs, as its storage records it, and the logs in which that site lacks what shore has read.

The record is ``site.json`` beside ``delta`` and ``checkpoints``. Every run reads it, so a machine at a site that shore
has left does not write on. ``shore.jobs.move`` changes it.

A log is *held* when shore has read more of it at an earlier site than its site has now. A job does not read a held log
on: the offsets that it would skip may get other records. Once the log has grown to where it was read, its records are
compared with the rows of the tables. If they are the same, the log is read on; if not, it stays held.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

import msgspec

from fairlead.errors import ConfigurationError
from shore.errors import ShoreMovedError
from shore.paths import TablePaths
from shore.storage import Storage
from topologies.model import Topology

_FILE = "site.json"


class HeldLog(msgspec.Struct, frozen=True):
    """A log that a job has read up to ``position``, and of which shore's site had only the records before ``end``.

    ``differs``: the first offset where the site has another record than the tables; None where that is not known.
    """

    end: int
    position: int
    differs: int | None = None

    def describe(self, log: str, site: str) -> str:
        """Return a sentence about it."""
        if self.differs is not None:
            return f"{log} has other records at {site} from offset {self.differs:,} on than shore has read"
        return f"{log} was read up to {self.position:,}, and {site} had it up to {self.end:,}: it waits for the rest"


class SiteRecord(msgspec.Struct, frozen=True):
    """Where shore runs.

    Args:
        generation: Counts the moves, from 1.
        moved_from, moved_at: The last move; None before the first.
        feeds_at: The site whose feeds shore has taken over; differs from ``site`` until the job for feeds has begun.
        held: Held logs by job and log.
    """

    site: str
    feeds_at: str
    generation: int = 1
    moved_from: str | None = None
    moved_at: dt.datetime | None = None
    held: dict[str, dict[str, HeldLog]] = msgspec.field(default_factory=dict)

    def moved(self, site: str, held: dict[str, dict[str, HeldLog]], at: dt.datetime) -> SiteRecord:
        """Return the record after a move to another site."""
        return SiteRecord(site, self.feeds_at, self.generation + 1, self.site, at, held)

    def parted(self) -> list[str]:
        """Return a sentence for each log with other records than shore has read."""
        return sorted(
            {
                each.describe(log, self.site)
                for logs in self.held.values()
                for log, each in logs.items()
                if each.differs is not None
            }
        )


def read_site(paths: TablePaths) -> SiteRecord | None:
    """Return where shore runs; None when it never ran on this storage.

    Raises:
        UnavailableError: the storage does not answer.
        ConfigurationError: the file cannot be read.
    """
    try:
        return msgspec.json.decode(Storage(paths.base).read(_FILE), type=SiteRecord)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            f"{paths.base}/{_FILE} does not say where shore runs: {error}",
            hint="put it back from a copy; without it, shore takes the site of the topology",
        ) from error


def write_site(paths: TablePaths, record: SiteRecord) -> None:
    """Replace the record."""
    Storage(paths.base).write(_FILE, msgspec.json.format(msgspec.json.encode(record), indent=2))


def site_now(topology: Topology, paths: TablePaths) -> str:
    """Return the site where shore runs, or last ran; the topology's when it never ran.

    Raises:
        ConfigurationError: the topology has no shore.
    """
    if topology.shore is None:
        raise ConfigurationError(
            f"topology {topology.name} does not say where shore runs", hint="add 'shore: {at: <site>}' to it"
        )
    record = read_site(paths)
    return topology.shore.at if record is None else record.site


def check_may_run(topology: Topology, site: str) -> None:
    """Check that the topology lets shore run at a site.

    Raises:
        ConfigurationError: it does not; the error names the sites where shore may run.
    """
    sites = () if topology.shore is None else topology.shore.sites
    if site not in sites:
        raise ConfigurationError(
            f"shore may not run at {site}",
            hint=f"it may run at {', '.join(sites) or 'no site'}; add the site to 'shore: {{standby: [...]}}' of the "
            "topology, then 'fairlead acl apply'",
            site=site,
        )


def check_is_here(paths: TablePaths, site: str) -> None:
    """Check that shore has not moved away from a site: only there its tables and feeds may be written.

    Raises:
        ShoreMovedError: shore is at another site.
    """
    record = read_site(paths)
    if record is not None and record.site != site:
        raise moved_away(record, site)


def moved_away(record: SiteRecord, site: str) -> ShoreMovedError:
    """Return the error for a site where shore is not."""
    since = f" since {record.moved_at:%Y-%m-%d %H:%M} UTC" if record.moved_at else ""
    return ShoreMovedError(
        f"shore is at {record.site}{since}, and not at {site}: its tables and feeds go on there",
        hint=f"run it there with --site {record.site}; 'fairlead shore run --site {site}' moves it to {site}, which no "
        "other process may hinder",
        site=record.site,
    )


def lacking(positions: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, HeldLog]:
    """Return the logs that end before the position up to which a job has read them. A log that is not there ends at 0.
    Pure."""
    return {
        log: HeldLog(ends.get(log, 0), position) for log, position in positions.items() if ends.get(log, 0) < position
    }


def cut_off(positions: Mapping[str, int], seizures: Iterable[tuple[str, int]]) -> dict[str, HeldLog]:
    """Return the logs that were seized at an offset before the position up to which a job has read them. Pure.

    Args:
        seizures: Log and offset of the marker of each seizure.
    """
    found: dict[str, HeldLog] = {}
    for log, marker in seizures:
        if marker < positions.get(log, 0):
            end = min(marker, found[log].end) if log in found else marker
            found[log] = HeldLog(end, positions[log])
    return found


def first_difference(records: Iterable[tuple[int, bytes | None]], stored: Mapping[int, bytes | None]) -> int | None:
    """Return the first offset of a record of which the tables have no equal row; None if there is none. Pure.

    Args:
        records: Offsets and values of data records.
        stored: Values by offset, as the tables have them.
    """
    return next((offset for offset, value in records if offset not in stored or stored[offset] != value), None)
