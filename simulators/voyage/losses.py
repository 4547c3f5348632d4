"""Lose ships during a voyage, as its scenario says: end their sites for good, and let ports take over their logs.

``ShipLosses.on_step`` carries out the steps ``ShipSinks`` and ``ShipSeized``. A seizure is the plan of
``fairlead custody seize --holder``, carried out with the sites' real bridges.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from edge.custody.operator.execute import open_ledgers
from edge.custody.operator.takeover import (
    TakeoverRequest,
    TakeoverRun,
    build_takeover,
    carry_out_takeover,
    look_at_takeover,
)
from fairlead.errors import FairleadError
from simulators.steps import ShipSeized, ShipSinks, Step
from topologies.endpoints import EndpointResolver
from topologies.model import Topology
from topologies.users import ADMIN


class TakeoverFailed(FairleadError):
    """A port did not take over all logs of a lost ship."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """A lost ship's logs at their new holder. ``seconds``: wall time from the first look to the last answer."""

    ship: str
    port: str
    logs: tuple[str, ...]
    seconds: float


class ShipLosses:
    """Carries out the losses of one voyage.

    Args:
        end_site: Ends every process of a site. Blocks.
        wait: Seconds without a new answer after which a takeover fails.
    """

    def __init__(
        self, topology: Topology, resolver: EndpointResolver, end_site: Callable[[str], None], *, wait: float
    ) -> None:
        self._topology = topology
        self._resolver = resolver
        self._end_site = end_site
        self._wait = wait
        self.sunk: set[str] = set()
        self.takeovers: list[Takeover] = []

    async def on_step(self, step: Step) -> None:
        """Carry out the step if it is about a loss.

        Raises:
            TakeoverFailed: logs are left, refused or unanswered.
            FairleadError: the port does not answer.
        """
        match step:
            case ShipSinks():
                await asyncio.to_thread(self._end_site, step.ship)
                self.sunk.add(step.ship)
            case ShipSeized():
                self.takeovers.append(await self._take_over(step))

    async def _take_over(self, step: ShipSeized) -> Takeover:
        began = time.monotonic()
        request = TakeoverRequest(step.ship, step.port, "voyage", f"{step.ship} was lost at sea")
        async with open_ledgers(self._topology, lambda site: self._resolver.kafka(site, ADMIN)) as access:
            plan = build_takeover(await look_at_takeover(self._topology, access, request))
            run = TakeoverRun(access, self._wait)
            await carry_out_takeover(plan, run)
        if plan.left or run.refused or run.unanswered:
            raise TakeoverFailed(
                f"{step.port} took over {len(run.seized)} logs of {step.ship}; {len(plan.left)} are left, "
                f"{len(run.refused)} refused, {len(run.unanswered)} unanswered",
                hint=f"fairlead custody list --held-by {step.ship} --site {step.port}; the log of the bridge",
                left=[each.log for each in plan.left],
                refused=[each.reason for each in run.refused],
            )
        logs = tuple(sorted(entry.log for entry in run.seized))
        return Takeover(step.ship, step.port, logs, round(time.monotonic() - began, 2))
