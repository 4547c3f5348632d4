"""Plan the faults of a voyage: three kills on every leg of every ship, and cut links. Pure.

A leg is a ship's way from one departure to the next, with the port call at its end, where custody moves. Places are
step numbers, which are the same each time the same voyage is played.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from simulators.steps import BarrierKind, Publish, Step, VoyageBarrier

KILLS: Final = 3
_LEAST_CUTS, _MOST_CUTS = 2, 4


@dataclass(frozen=True, slots=True)
class Leg:
    """A leg from step ``first`` to step ``last``, both inclusive.

    Args:
        port: Port at its end; empty where the voyage ends.
        moves: Steps in which a box changes custody to or from the ship.
    """

    ship: str
    port: str
    first: int
    last: int
    moves: tuple[int, ...]


def legs(steps: Iterable[Step], ships: Sequence[str]) -> list[Leg]:
    """Return every leg of these ships, ordered by its last step."""
    began = dict.fromkeys(ships, 0)
    moves: list[tuple[int, str]] = []
    found: list[Leg] = []

    def end(ship: str, port: str, at: int) -> None:
        own = {ship, port} if port else {ship}
        here = tuple(number for number, site in moves if site in own and began[ship] <= number <= at)
        found.append(Leg(ship, port, began[ship], at, here))
        began[ship] = at + 1

    for number, step in enumerate(steps):
        match step:
            case Publish(moves_log=str()):
                moves.append((number, step.site))
            case VoyageBarrier(kind=BarrierKind.DEPARTURE):
                end(step.peer, step.site, number)
            case VoyageBarrier(kind=BarrierKind.FINISHED):
                for ship in ships:
                    end(ship, "", number)
            case _:
                pass
    return found


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault at a step: a kill at ``site``, or the link from ``site`` to ``peer`` broken for ``seconds``.

    Args:
        delay: Seconds after the step.
        leg: Number of the leg that it belongs to.
    """

    step: int
    delay: float
    leg: int
    site: str
    peer: str = ""
    seconds: float = 0.0
    freeze: bool = False


def strikes(
    ways: Sequence[Leg], sites: Sequence[str], links: Sequence[tuple[str, str]], chance: random.Random
) -> list[Strike]:
    """Return the faults by step: for each leg ``KILLS`` kills, one of them while a box changes custody, and some broken
    links.
    """
    out: list[Strike] = []
    for number, leg in enumerate(ways):
        concerned = [leg.ship, leg.port or chance.choice(sites)]
        for nth in range(KILLS):
            step = chance.choice(leg.moves) if nth == 0 and leg.moves else chance.randint(leg.first, leg.last)
            site = chance.choice(concerned if chance.random() < 0.6 else sites)
            out.append(Strike(step, chance.uniform(0.0, 1.5), number, site))
        for _ in range(chance.randint(_LEAST_CUTS, _MOST_CUTS)):
            near = [pair for pair in links if leg.ship in pair]
            site, peer = chance.choice(near if chance.random() < 0.6 else links)
            step, delay = chance.randint(leg.first, leg.last), chance.uniform(0.0, 1.0)
            broken = Strike(step, delay, number, site, peer, chance.uniform(0.2, 6.0), chance.random() < 0.3)
            out.append(broken)
    return sorted(out, key=lambda strike: strike.step)
