"""Leads a network through a voyage: its weather follows the voyage's steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from simulators.links.network import Network
from simulators.steps import Barrier, BarrierKind, LinkChange, Step

OnStep = Callable[[Step], Awaitable[None]]


def steered(network: Network, then: OnStep | None = None) -> OnStep:
    """What a player awaits before each step: links are as at the step's time, and whole at the voyage's end."""

    async def before(step: Step) -> None:
        if isinstance(step, Barrier) and step.kind is BarrierKind.FINISHED:
            network.mend(step.sim_time)
        else:
            network.at(step.sim_time)
        if then is not None:
            await then(step)

    return before


async def already_switched(change: LinkChange) -> None:
    """For players whose links ``steered`` has switched before the step."""
