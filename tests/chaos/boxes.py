"""Move simulated boxes at random between ports and ships, publish their readings and events, and record the readings.

A box is at one place at a time. Some of its messages reach the wrong site, it moves on before custody has followed it,
it leaves through one port's gate and comes in at another's, and operators grant and seize custody by hand.

A box comes in at another port only when that port knows the box's log. Two ports that do not know of each other's log
would both open one. Nothing can prevent that; the ledgers then report it (``SplitCustodyError``).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from edge.logwriter.dedup import MAX_BOOTS
from fairlead.errors import FairleadError
from fairlead.kafka.clusters import Clusters
from fairlead.names import container_check_digit
from simulators.voyage.sender import MqttSender
from simulators.voyage.waiting import Waiter
from tests.chaos.operators import Operators, now
from tests.support.edge.samples import event, reading, readings_topic
from tests.support.invariants import Name
from topologies.model import SiteKind, Topology

EVENTS: Final = "fairlead/v1/events"
WRONG_SITE: Final = 0.08
SENT_TWICE: Final = 0.1
SEIZED: Final = 0.4  # share of the operators' orders
MOST_BOOTS: Final = MAX_BOOTS - 2  # a log remembers MAX_BOOTS boots of a device and recognises no repeats of older ones
_PATIENCE: Final = 30  # seconds to wait until the next port knows the log of a box
_serials = itertools.count(100_000)
_events = itertools.count()


class Box:
    """One container: its place, and what its device has published."""

    def __init__(self, at: str) -> None:
        ten = f"BIGU{next(_serials):06d}"
        self.number = ten + container_check_digit(ten)
        self.log = f"boxes.{self.number}"
        self.at = at
        self.boot = 1
        self.sequence = 0
        self.published: list[Name] = []


class Harbour:
    """The boxes, cranes and operators at the sites of a topology. ``done`` counts their actions."""

    def __init__(
        self, topology: Topology, clusters: Clusters, senders: Mapping[str, MqttSender], *, seizures: bool
    ) -> None:
        kinds = {name: site.kind for name, site in topology.sites.items()}
        self.ports = [name for name, kind in kinds.items() if kind is SiteKind.PORT]
        self.ships = [name for name, kind in kinds.items() if kind is SiteKind.SHIP]
        self.done: Counter[str] = Counter()
        self._topology = topology
        self._senders = senders
        self._waiter = Waiter(topology, clusters)
        self._operators = Operators(clusters, self.done)
        self._seizures = seizures

    async def live(self, box: Box, chance: random.Random, over: asyncio.Event) -> None:
        """Move a box and publish its readings until ``over``."""
        self.say("GTIN", box, at=box.at)
        while not over.is_set():
            what = chance.random()
            if what < 0.7:
                self.measure(box, chance)
            elif what < 0.93:
                await self.move(box, chance)
            else:
                await self.order(box, chance)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), chance.choice((0.02, 0.1, 0.5, 2.0)) * chance.random())

    def measure(self, box: Box, chance: random.Random) -> None:
        """Publish a few readings; sometimes at the wrong site, sometimes twice."""
        at = box.at if chance.random() > WRONG_SITE else chance.choice([*self.ports, *self.ships])
        if chance.random() < 0.02 and box.boot < MOST_BOOTS:
            box.boot, box.sequence = box.boot + 1, 0
        for _ in range(chance.choice((1, 1, 2, 10))):
            name = f"dev-{box.number}"
            body = reading(box.sequence, number=box.number, boot=box.boot, at=now(), name=name)
            for _ in range(1 + (chance.random() < SENT_TWICE)):
                self._senders[at].send(readings_topic(box.number), body)
            box.published.append((name, box.boot, box.sequence))
            box.sequence += 1
        self.done["readings at the wrong site" if at != box.at else "readings"] += 1

    async def move(self, box: Box, chance: random.Random) -> None:
        """Load the box onto a ship, discharge it, or send it out through one gate and in through another."""
        if box.at in self.ships:
            to = chance.choice(self.ports)
            self.say("DISC", box, at=box.at, UNLocationCode=self._topology.sites[to].unlocode)
        elif chance.random() < 0.8:
            to = chance.choice(self.ships)
            self.say("LOAD", box, at=box.at, vesselIMONumber=self._topology.sites[to].imo)
        else:
            to = chance.choice(self.ports)
            self.say("GTOT", box, at=box.at)
            if await self._heard(to, box):
                self.say("GTIN", box, at=to)
        box.at = to

    async def _heard(self, site: str, box: Box) -> bool:
        """Wait until a site knows the log of a box; return False when it does not learn of it in time."""
        for _ in range(_PATIENCE):
            with contextlib.suppress(FairleadError):
                if (await self._waiter.custody(site)).grant(box.log) is not None:
                    return True
            await asyncio.sleep(1.0)
        return False

    def say(self, code: str, box: Box, *, at: str, **more: Any) -> str:
        """Publish an event of a box at site ``at``; return its id."""
        name = f"{box.number}-{next(_events)}"
        self._senders[at].send(EVENTS, event(code, number=box.number, event_id=name, at=now(), **more))
        self.done[code] += 1
        return name

    async def give(self, log: str, *, at: str, to: str, term: int) -> None:
        """Order the holder of a log to give it to a ship."""
        with contextlib.suppress(FairleadError):  # the site is away; the caller orders again later
            await self._operators.grant(log, at=at, to=to, term=term)
            self.done["orders to give a log to a ship that never had it"] += 1

    async def order(self, box: Box, chance: random.Random) -> None:
        """Order a seizure at a random port, or a grant: to the place of the box, or if it has custody, to any site.

        The operator knows what a random site knows. That may be out of date; the bridge then refuses the order.
        """
        somewhere = chance.choice([*self.ports, *self.ships])
        try:
            grant = (await self._waiter.custody(somewhere)).grant(box.log)
            if grant is None or grant.to_site is None:
                return
            if self._seizures and chance.random() < SEIZED and somewhere in self.ports and somewhere != grant.to_site:
                await self._operators.seize(box.log, at=somewhere, term=grant.term)
                return
            to = box.at if grant.to_site != box.at else somewhere
            if to != grant.to_site:
                await self._operators.grant(box.log, at=grant.to_site, to=to, term=grant.term)
        except FairleadError as error:  # the site does not answer: skip this order
            if not error.retriable:
                raise
