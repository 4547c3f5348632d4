"""Answering claims: the log of a box that left here goes to the site where the box has come in (``edge.claims``)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from edge.boxes import BoxLane
from edge.custodian import Custodian
from edge.errors import LostCustodyError, NotHolderError, ReplicaBehindError
from edge.lanes import SiteLanes
from edge.metrics import Metrics
from edge.patience import patiently

log = logging.getLogger(__name__)

_AGAIN: Final = 1.0  # seconds until a claim is looked at again that could not be answered


class Answering:
    """Gives away what is claimed of one site."""

    def __init__(self, site: str, lanes: SiteLanes, custodian: Custodian, metrics: Metrics) -> None:
        self._site = site
        self._lanes = lanes
        self._custodian = custodian
        self._metrics = metrics
        self._wanted = asyncio.Event()
        self._told: dict[str, str] = {}  # why a claim waits, once in the log

    def wake(self) -> None:
        """There is a claim."""
        self._wanted.set()

    async def run(self) -> None:
        """Answer claims until cancelled."""
        while True:
            self._wanted.clear()
            await patiently(self._answer_all, f"{self._site}: answering claims")
            left = any(self._custodian.claims.next(topic) for topic in self._custodian.claims.logs())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), _AGAIN if left else None)

    async def _answer_all(self) -> None:
        claims = self._custodian.claims
        topics = [topic for topic in claims.logs() if claims.next(topic) is not None]
        await asyncio.gather(*(self._answer(self._lanes.box(topic)) for topic in topics))

    async def _answer(self, lane: BoxLane) -> None:
        async def give() -> None:
            try:
                if await self._custodian.answer(lane):
                    self._metrics.grants += 1
            except (ReplicaBehindError, LostCustodyError, NotHolderError) as error:
                if self._told.get(lane.log) != error.what:
                    log.warning("%s: the claim to %s waits: %s", self._site, lane.log, error.what)
                self._told[lane.log] = error.what
            else:
                self._told.pop(lane.log, None)

        await lane.run_alone(give)
