"""What a link is doing, since when and why, and what it has moved since its replicator started."""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass

from replication.batch.prepared import PreparedBatch
from replication.states import LinkState, now

log = logging.getLogger(__name__)


class LinkStatus:
    """The state of one link, as it is shown. ``cause`` is empty where the state says everything."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = LinkState.CONNECTING
        self.since: dt.datetime = now()
        self.cause = ""
        self.last_error = ""  # also when all is well again

    def enter(self, state: LinkState, cause: str = "") -> None:
        """The link is in this state from now on; ``since`` stays where it was in it already."""
        if (state, cause) == (self.state, self.cause):
            return
        if state is LinkState.UNAVAILABLE and self.state is not state:
            log.warning("%s %s: %s", self._name, state, cause)
        if state is not self.state:
            self.since = now()
        self.state, self.cause = state, cause

    def fail(self, cause: str) -> None:
        """The link is not to be had."""
        self.last_error = cause
        self.enter(LinkState.UNAVAILABLE, cause)

    def as_json(self) -> dict[str, str]:
        return {
            "state": str(self.state),
            "since": self.since.isoformat(timespec="milliseconds"),
            "cause": self.cause,
        }


@dataclass(slots=True)
class Counters:
    """Shared by all fetchers of a link."""

    records: int = 0
    batches: int = 0
    bytes: int = 0  # of batches appended to the target
    fetched_bytes: int = 0  # over the link, with what another link had brought already

    def add(self, prepared: PreparedBatch) -> None:
        """A batch has been appended."""
        self.records += prepared.records
        self.batches += 1
        self.bytes += len(prepared.data)

    def as_json(self) -> dict[str, int]:
        return {
            "records": self.records,
            "batches": self.batches,
            "bytes": self.bytes,
            "fetched_bytes": self.fetched_bytes,
        }
