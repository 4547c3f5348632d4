"""Define the named states of links, logs and members of a group, the remedy for each state, and how often a log's is
written to the replicator's own log.

A log that cannot be copied stops in one of these states, with its cause and time; every other log continues
(docs/replication.md). ``mirroring`` is the normal state and is not listed anywhere.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from fairlead.kafka.protocol.types import TopicPartition


class LogState(StrEnum):
    """The reason why a log is not mirrored."""

    MIRRORING = "mirroring"
    BEHIND_RETENTION = "behind-retention"  # the source deleted records that the target does not have yet
    SOURCE_TRUNCATED = "source-truncated"  # the site that holds the log has less than the target
    SOURCE_RECREATED = "source-recreated"  # the source's topic was deleted and created again
    DIVERGED = "diverged"  # two different batches at one offset
    REBUILDING = "rebuilding"  # a seizure cut this copy off; it is rebuilt automatically
    MISPLACED = "misplaced"  # an append landed at another offset than it has at the source
    QUARANTINED = "quarantined"  # content that cannot be appended here
    UNAVAILABLE = "unavailable"  # a broker does not serve this log, or refuses its records, for now; it is retried
    PAUSED = "paused"  # by an operator


ELSEWHERE: Final = "elsewhere"
"""The state of the groups' offsets in a member that does not copy them, because the leader of the members does."""


class LinkState(StrEnum):
    """The state of a whole link."""

    CONNECTING = "connecting"
    MIRRORING = "mirroring"
    CLOSED = "closed"  # its policy does not allow it now: the ship is not at this berth
    PAUSED = "paused"  # by an operator
    UNAVAILABLE = "unavailable"  # the source cannot be reached; retried with backoff


class MemberState(StrEnum):
    """The state of a replicator as a member of the group that shares its site's logs."""

    JOINING = "joining"
    MEMBER = "member"
    UNAVAILABLE = "unavailable"  # the coordinator cannot be asked now; the member goes on with the logs that it has
    REFUSED = "refused"  # by the coordinator: login, rights, settings
    INCOMPATIBLE = "incompatible"  # the other members are of a release with another protocol


_RESOLVE = "'fairlead link resolve LOG --site SITE"
_KEEPS = "which keeps this version under another name and copies the log again"

REMEDY: dict[LogState, str] = {
    LogState.MIRRORING: "",
    LogState.BEHIND_RETENTION: f"{_RESOLVE} --skip' marks the lost offsets and goes on; or --refill, {_KEEPS}; or let "
    "a site that still has them be a source, then --retry",
    LogState.SOURCE_TRUNCATED: "find out why the holder lost records that this site still has; then "
    f"{_RESOLVE} --refill', {_KEEPS}; or --retry when the holder has them again",
    LogState.SOURCE_RECREATED: f"{_RESOLVE} --refill', {_KEEPS}; or --retry to see whether the new topic begins as the "
    "old one did",
    LogState.DIVERGED: "see where with 'fairlead audit' of both sites; where the source is right: "
    f"{_RESOLVE} --refill', {_KEEPS}; or --retry when the source has been put right",
    LogState.REBUILDING: "none needed: the replicator rebuilds the copy as soon as a source has the log's current "
    f"version, and readings that only this site has are among its strays; if no source ever will: {_RESOLVE} "
    f"--refill', {_KEEPS}; or --retry to check it again",
    LogState.MISPLACED: "another client writes to this replica: look for it with 'fairlead acl drift'; then "
    f"{_RESOLVE} --refill', {_KEEPS}",
    LogState.QUARANTINED: f"remove the cause, then {_RESOLVE} --retry'; or --skip, which keeps the batch's bytes and "
    "marks its offsets, or those of a hole",
    LogState.UNAVAILABLE: "the replicator retries by itself; if it lasts, check the replicator's rights with "
    f"'fairlead acl drift', then {_RESOLVE} --retry'",
    LogState.PAUSED: f"{_RESOLVE}', or 'fairlead link resume' if the whole link or stream is paused",
}
"""The remedy for each state, with placeholders that ``remedy`` replaces by the log and the site."""


def remedy(state: LogState, log: str = "LOG", site: str = "SITE") -> str:
    """Return the remedy for a log in this state, with the commands to type."""
    return REMEDY[state].replace("LOG --site SITE", f"{log} --site {site}")


@dataclass(frozen=True, slots=True)
class LogTrouble:
    """The state of one log that is not mirrored. ``link`` is set if the trouble concerns only that link's source.
    ``hint`` says what ends the cause, if that is known."""

    state: LogState
    cause: str
    since: dt.datetime
    link: str | None = None
    hint: str = ""

    def as_json(self, log: str = "LOG", site: str = "SITE") -> dict[str, Any]:
        """Return the trouble as JSON-ready data; ``what_to_do`` has the hint and the remedy for ``log`` at ``site``."""
        return {
            "state": str(self.state),
            "cause": self.cause,
            "since": self.since.isoformat(timespec="milliseconds"),
            "link": self.link,
            "what_to_do": (f"{self.hint}; " if self.hint else "") + remedy(self.state, log, site),
        }


def unavailable(cause: str, known: LogTrouble | None, *, link: str | None = None, hint: str = "") -> LogTrouble:
    """Return the trouble of a log that is unavailable: from now on, or since ``known``, if it already was."""
    return LogTrouble(LogState.UNAVAILABLE, cause, now() if known is None else known.since, link, hint)


TELL_AGAIN: Final = 600.0  # seconds; a log that cannot be copied is tried every few seconds
TELL_MOST: Final = 50  # logs of one state in that time: a broker that is away has 15,000


class TroubleTeller:
    """Remembers which logs' states were written, and when."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: dict[TopicPartition, tuple[LogState, float]] = {}
        self._written: dict[LogState, tuple[float, int]] = {}  # since when, and of how many logs

    def tell(self, tp: TopicPartition, state: LogState, cause: str) -> None:
        """Write a log's state and its cause, unless this state was its last one and was told less than ``TELL_AGAIN``
        seconds ago. In that time, write at most ``TELL_MOST`` logs of a state, and then once that there are more."""
        told, when = self._told.get(tp, (None, 0.0))
        moment = time.monotonic()
        if told is state and moment - when <= TELL_AGAIN:
            return
        self._told[tp] = state, moment
        since, number = self._written.get(state, (moment, 0))
        if moment - since > TELL_AGAIN:
            since, number = moment, 0
        self._written[state] = since, number + 1
        if number < TELL_MOST:
            self._log.error("%s %s: %s", tp, state, cause)
        elif number == TELL_MOST:
            self._log.error("more logs are %s: fairlead status shows all", state)


def now_ms() -> int:
    """Return wall time in milliseconds since 1970."""
    return int(now().timestamp() * 1000)


def now() -> dt.datetime:
    """Return wall time in UTC."""
    return dt.datetime.now(dt.UTC)
