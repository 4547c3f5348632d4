"""A link's state, with time and cause, and its counters since the replicator started."""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass

from replication.batch.prepared import PreparedBatch
from replication.states import LinkState, now

log = logging.getLogger(__name__)


class LinkStatus:
    """The state of one link, for the status file. ``cause`` is empty if the state needs none."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = LinkState.CONNECTING
        self.since: dt.datetime = now()
        self.cause = ""
        self.last_error = ""  # kept after the link has recovered

    def set_state(self, state: LinkState, cause: str = "") -> None:
        """Set state and cause; ``since`` changes only with the state."""
        if (state, cause) == (self.state, self.cause):
            return
        if state is LinkState.UNAVAILABLE and self.state is not state:
            log.warning("%s %s: %s", self._name, state, cause)
        if state is not self.state:
            self.since = now()
        self.state, self.cause = state, cause

    def set_unavailable(self, cause: str) -> None:
        """Set the link to unavailable."""
        self.last_error = cause
        self.set_state(LinkState.UNAVAILABLE, cause)

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
    fetched_bytes: int = 0  # over the link, including batches that another link had brought already

    def add_batch(self, prepared: PreparedBatch) -> None:
        """Count a batch that was appended."""
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
