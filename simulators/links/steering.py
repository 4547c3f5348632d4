"""Leads a network through a voyage: its weather follows the voyage's steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from simulators.links.leader import Leader
from simulators.steps import Barrier, BarrierKind, LinkChange, Step

LEAST_CUT: Final = 5.0
OnStep = Callable[[Step], Awaitable[None]]


def steered(network: Leader, then: OnStep | None = None, *, least: float = LEAST_CUT) -> OnStep:
    """What a player awaits before each step: links are as at the step's time, and whole at the voyage's end.

    Args:
        least: Real seconds that a cut lasts at least: played fast, ten days may be over before anybody has noticed.
    """

    async def before(step: Step) -> None:
        if isinstance(step, Barrier) and step.kind is BarrierKind.FINISHED:
            network.mend(step.sim_time)
        else:
            if (missing := network.too_early(step.sim_time, least)) > 0:
                await asyncio.sleep(missing)
            network.at(step.sim_time)
        if then is not None:
            await then(step)

    return before


async def already_switched(change: LinkChange) -> None:
    """For players whose links ``steered`` has switched before the step."""
