"""Named states of links and logs, and what a person can do about each. Pure data.

Loss is loud (design, section 6): a log that cannot be copied as it is stops in one of these states, with its cause
and since when, and every other log goes on. ``mirroring`` is the normal state and is not listed anywhere.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class LogState(StrEnum):
    """What keeps a log from being mirrored."""

    MIRRORING = "mirroring"
    BEHIND_RETENTION = "behind-retention"  # the source has deleted records that the target does not have yet
    SOURCE_TRUNCATED = "source-truncated"  # the site that holds the log has less than the target
    SOURCE_RECREATED = "source-recreated"  # the source's topic is another one than before
    DIVERGED = "diverged"  # two different batches at one offset
    MISPLACED = "misplaced"  # an append landed at another offset than it has at the source
    QUARANTINED = "quarantined"  # content that cannot be appended here
    UNAVAILABLE = "unavailable"  # the broker refuses this log for now; tried again
    PAUSED = "paused"  # an operator wants it so


class LinkState(StrEnum):
    """What a link is doing."""

    CONNECTING = "connecting"
    MIRRORING = "mirroring"
    CLOSED = "closed"  # its policy does not allow it now: the ship is not at this berth
    PAUSED = "paused"  # an operator wants it so
    UNAVAILABLE = "unavailable"  # the source cannot be reached; tried again with backoff


REMEDY: dict[LogState, str] = {
    LogState.MIRRORING: "",
    LogState.BEHIND_RETENTION: "copy the missing offsets from a site that still has them, or keep this replica under "
    "another name and let it be made again",
    LogState.SOURCE_TRUNCATED: "find out why the holder lost records; this site still has them: keep both versions",
    LogState.SOURCE_RECREATED: "keep this replica under another name, then delete it and let it be made again",
    LogState.DIVERGED: "compare both sites with 'fairlead audit'; keep both versions, then delete the wrong replica "
    "and let it be made again",
    LogState.MISPLACED: "another client writes to this replica: check its ACLs, keep it under another name, then "
    "delete it and let it be made again",
    LogState.QUARANTINED: "see the cause; the log goes on when the replicator is started again without it",
    LogState.UNAVAILABLE: "nothing: it is tried again by itself; check the replicator's ACLs when it lasts",
    LogState.PAUSED: "fairlead link resume",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why one log is not mirrored. ``link`` is set when only this source of the log is concerned."""

    state: LogState
    cause: str
    since: dt.datetime
    link: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "state": str(self.state),
            "cause": self.cause,
            "since": self.since.isoformat(timespec="milliseconds"),
            "link": self.link,
            "what_to_do": REMEDY[self.state],
        }


def now() -> dt.datetime:
    """Wall time in UTC."""
    return dt.datetime.now(dt.UTC)
