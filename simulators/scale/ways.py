"""Over which links a record travels from the site that writes it, once to each site that takes it. Pure functions.

A site fetches a record from whichever of its links has it first. Here that is: by cable rather than by satellite,
by satellite rather than at the next berth. What is ``aboard`` on a link follows custody and is counted by
``simulators.scale.sizing`` when a box is loaded.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from fairlead.names import parse_log
from simulators.linkweather import carrier_of
from topologies.model import Link, Topology

_COST = {"cable": 1, "satellite": 100, "berth": 10_000}


@dataclass(frozen=True, slots=True)
class Way:
    """One link that a record crosses; ``late`` when it or a link before it is at a berth."""

    link: Link
    late: bool


def ways(topology: Topology, log: str, origin: str, berth: str | None) -> tuple[Way, ...]:
    """The links that carry a record of ``log`` from ``origin`` to all who take it, each after the one before it.

    Args:
        berth: For a ship, the port at which it lies or calls next; its other berths come too late to count.
    """
    name = parse_log(log)
    if name is None:
        return ()
    reached: dict[str, int] = {}
    found: list[Way] = []
    heap: list[tuple[int, str, int, Link | None, bool]] = [(0, origin, 0, None, False)]
    number = 0
    while heap:
        cost, site, _, link, late = heapq.heappop(heap)
        if site in reached:
            continue
        reached[site] = cost
        if link is not None:
            found.append(Way(link, late))
        for onward in topology.links_from(site):
            if onward.to in reached or not onward.takes(name) or onward.streams.get(name.stream) == "aboard":
                continue
            if onward.when == "berthed" and (site != origin or onward.to != berth):
                continue
            number += 1
            step = _COST[carrier_of(onward, topology)]
            heapq.heappush(heap, (cost + step, onward.to, number, onward, late or onward.when == "berthed"))
    return tuple(found)
