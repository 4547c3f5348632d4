"""Write why a log is not copied to the replicator's own log. A log that is tried every few seconds is told of once."""

from __future__ import annotations

import logging
import time
from typing import Final

from fairlead.kafka.protocol.types import TopicPartition
from replication.states import LogState

TELL_AGAIN: Final = 600.0  # seconds


class TroubleTeller:
    """Remembers which logs' states were written, and when."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: dict[TopicPartition, tuple[LogState, float]] = {}

    def tell(self, tp: TopicPartition, state: LogState, cause: str) -> None:
        """Write a log's state and its cause, unless this state was the last one written and less than ``TELL_AGAIN``
        seconds ago."""
        told, when = self._told.get(tp, (None, 0.0))
        if told is not state or time.monotonic() - when > TELL_AGAIN:
            self._log.error("%s %s: %s", tp, state, cause)
            self._told[tp] = state, time.monotonic()
