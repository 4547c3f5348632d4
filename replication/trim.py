"""Deletes the fillers that positioned a log, many logs in a request.

Twice per log: when the fillers are in, all but the last of them, so that a crash leaves at most one; when the first
real batch is in, that one too. Never everything: an emptied log forgets its producer state (docs/append-convention.md).
"""

from __future__ import annotations

import asyncio
import logging

from fairlead.errors import FairleadError
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import BrokerError
from fairlead.wire.types import TopicPartition

log = logging.getLogger(__name__)


class Trimmer:
    """Collects what is to be deleted and does it in the background."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before: dict[TopicPartition, int] = {}
        self._wanted = asyncio.Event()

    def before(self, tp: TopicPartition, offset: int) -> None:
        """Delete the log's records below ``offset`` soon."""
        if offset > 0:
            self._before[tp] = max(offset, self._before.get(tp, 0))
            self._wanted.set()

    async def run(self) -> None:
        """Delete until cancelled; what fails stays, marked, and is said."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            some, self._before = self._before, {}
            try:
                for tp, result in (await self._cluster.delete_records(some)).items():
                    if isinstance(result, BrokerError):
                        log.warning("%s: fillers below %d stay: %s", tp, some[tp], result.what)
            except FairleadError as error:
                log.warning("fillers at the start of %d logs stay: %s", len(some), error.what)
