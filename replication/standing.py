"""What a link is doing at the moment, since when and why."""

from __future__ import annotations

import datetime as dt
import logging

from replication.states import LinkState, now

log = logging.getLogger(__name__)


class Standing:
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
