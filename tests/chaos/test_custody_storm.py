"""Move boxes at random while processes are killed and links cut; then check the invariants of docs/custody.md.

Operators seize logs, too; ``FAIRLEAD_CHAOS_SEIZURES=0`` leaves that out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from fairlead.custody.ledger import read_ledgers
from fairlead.custody.view import CustodyView
from fairlead.kafka.admin import create_logs
from fairlead.kafka.clusters import Clusters
from fairlead.kafka.protocol.types import TP
from fairlead.records import encode
from fairlead.records.custody import CUSTODY_ORDERS, CustodyEntry, LedgerEntry, ReturnEntry, ledger_entries
from replication.audit import Audit, compare, compare_records
from simulators.voyage.sender import MqttSender
from simulators.voyage.waiting import wait_until_settled
from tests.chaos.boxes import Box, Harbour
from tests.chaos.diagnosis import Diagnosis, kept_at
from tests.chaos.world import World
from tests.support.invariants import (
    Name,
    Stored,
    in_ledgers,
    in_order,
    in_terms,
    names,
    once,
    same_copies,
    stored,
    view_of,
)

BOXES: Final = 12
PATIENCE: Final = 240.0  # seconds without any progress
_LOOK: Final = 1.0
_REST: Final = 10.0  # seconds without any append anywhere
_LONGEST: Final = 1800.0
SITES: Final[Mapping[str, Any]] = {
    "north": {"kind": "port", "unlocode": "JPTYO"},
    "south": {"kind": "port", "unlocode": "SGSIN"},
    "star": {"kind": "ship", "imo": "9074729"},
    "marlin": {"kind": "ship", "imo": "9321483"},
}

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(24 * 3600)]


def waters(folder: Path, chance: random.Random) -> Path:
    """Write a topology of two ports and two ships. At random, ships get the logs of all boxes or of those aboard."""
    carried = dict.fromkeys(("custody", "alerts", "events", "strays", "deadletters", "boxes"), "all")
    aboard = {**carried, "boxes": chance.choice(("all", "aboard"))}
    links: list[dict[str, Any]] = [{"from": "north", "to": "south", "both": True, "streams": carried}]
    for ship in ("star", "marlin"):
        for port in ("north", "south"):
            links += [{"from": ship, "to": port, "streams": carried}, {"from": port, "to": ship, "streams": aboard}]
    body = {
        "name": "storm",
        "sites": {name: {**site, "retention": {"default": "forever"}} for name, site in SITES.items()},
        "streams": {"boxes": {"insert_point": "moves", "owners": ["BIGU"]}},
        "links": links,
    }
    file = folder / "storm.yaml"
    file.write_text(yaml.safe_dump(body), encoding="utf-8")
    return file


async def blow(world: World, chance: random.Random, over: asyncio.Event) -> None:
    """Inject faults until ``over``, then repair everything."""

    async def again_and_again(least: float, most: float, what: Any) -> None:
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), chance.uniform(least, most))
                return
            await what()

    async def worker() -> None:
        await world.kill_worker(chance.choice(("bridge", "replicate")), chance.choice(world.sites))

    async def broker() -> None:
        await world.kill_broker(chance.choice(world.sites), chance.choice((0.0, 1.0, 10.0)))

    async def link() -> None:
        pair = chance.choice(world.pairs)
        await world.break_link(*pair, chance.choice((0.5, 3.0, 20.0)) * chance.random(), freeze=chance.random() < 0.3)

    async with asyncio.TaskGroup() as group:
        group.create_task(again_and_again(1.0, 8.0, worker))
        group.create_task(again_and_again(8.0, 25.0, broker))
        for _ in range(2):
            group.create_task(again_and_again(0.5, 5.0, link))


class Aftermath:
    """Wait for and check the state of the logs after the faults have ended."""

    def __init__(self, world: World, clusters: Clusters, harbour: Harbour, boxes: Sequence[Box]) -> None:
        self._world = world
        self._clusters = clusters
        self._harbour = harbour
        self._boxes = boxes

    async def drained(self) -> None:
        """Wait until every reading is in the log where it belongs.

        People help where docs/custody.md needs them: a box without a holder comes in again somewhere, and a ship that
        keeps readings of a log that it was never given gets the log by hand.
        """
        missing = await self._missing()
        moved, asked = time.monotonic(), 0.0
        while missing:
            self._world.check()
            if time.monotonic() - asked > 10.0:
                asked = time.monotonic()
                await self._call_in()
                await self._give_to_keepers(missing)
            await asyncio.sleep(_LOOK)
            before, missing = missing, await self._missing()
            if missing != before:
                moved = time.monotonic()
            if time.monotonic() - moved > PATIENCE:
                pytest.fail(await Diagnosis(self._world, self._clusters).describe(missing))

    async def at_rest(self) -> None:
        """Wait until no log grows any more. Events that waited for custody trigger each other for some time."""
        topology, folder = self._world.topology, self._world.folder
        began, before = time.monotonic(), None
        while before != (now := await self._ends()):
            self._world.check()
            assert time.monotonic() - began < _LONGEST, "the boxes never come to rest"
            before = now
            await asyncio.sleep(_REST)
            await wait_until_settled(topology, self._world.resolver, folder, patience=PATIENCE)

    async def _ends(self) -> dict[tuple[str, str], object]:
        found: dict[tuple[str, str], object] = {}
        for site in self._world.sites:
            cluster = await self._clusters.at(site)
            ends = await cluster.end_offsets([TP(topic) for topic in await cluster.topics(refresh=True)])
            found |= {(site, log.topic): end for log, end in ends.items()}
        return found

    async def _missing(self) -> dict[str, set[Name]]:
        """Return, per log, the published readings that the holder's copy lacks."""
        view = await self.view()
        out: dict[str, set[Name]] = {}
        for box in self._boxes:
            holder = view.holder(box.log)
            there = names(await self._stored(holder, box.log)) if holder else {}
            if lost := set(box.published) - there.keys():
                out[box.log] = lost
        return out

    async def _stored(self, site: str, topic: str) -> list[Stored]:
        cluster = await self._clusters.at(site)
        return await stored(cluster, topic) if topic in await cluster.topics(refresh=True) else []

    async def _call_in(self) -> None:
        """Publish a gate-in for every box without a holder: at the port where it is, or else where it left."""
        view = await self.view()
        for box in self._boxes:
            grant = view.grant(box.log)
            if grant is not None and grant.to_site is None and grant.from_site is not None:
                self._harbour.say("GTIN", box, at=box.at if box.at in self._harbour.ports else grant.from_site)

    async def _give_to_keepers(self, missing: Mapping[str, Set[Name]]) -> None:
        """Order a grant to each ship that keeps missing readings of a log that no entry has ever given to it."""
        entries = await self.entries()
        view = view_of(entries)
        given = {(each.log, each.to_site) for each in entries if isinstance(each, CustodyEntry)}
        for log, lost in missing.items():
            grant = view.grant(log)
            if grant is None or grant.to_site is None:
                continue
            for ship in self._harbour.ships:
                keeps = (log, ship) not in given and await kept_at(await self._clusters.at(ship), ship, log)
                if keeps and lost & keeps.readings.keys():
                    await self._harbour.give(log, at=grant.to_site, to=ship, term=grant.term)
                    break  # another grant needs the next term

    async def view(self) -> CustodyView:
        return view_of(await self.entries())

    async def entries(self) -> list[LedgerEntry]:
        """Return every entry of every ledger, once for each site that has it."""
        found: list[LedgerEntry] = []
        for site in self._world.sites:
            ledgers = await read_ledgers(await self._clusters.at(site), site)
            assert (ledgers.damaged, ledgers.missing) == ((), ())
            found += ledgers.entries
        return found

    async def seized(self) -> dict[str, int]:
        """Count seizures, returns (reports of a copy with records beyond one), and readings kept from such copies."""
        entries = set(map(encode, await self.entries()))
        found = [ledger_entries.decode(each) for each in entries]
        seizures = [each for each in found if isinstance(each, CustodyEntry) and each.event == "SEIZURE"]
        returns = [each for each in found if isinstance(each, ReturnEntry)]
        kept = sum(each.kept for each in returns)
        return {"seizures": len(seizures), "returns": len(returns), "readings that came back": kept}

    async def wrong(self) -> list[str]:
        """Return every violation of an invariant, in all logs of boxes."""
        entries = await self.entries()
        view = view_of(entries)
        found: list[str] = []
        for box in self._boxes:
            copies = {site: await self._stored(site, box.log) for site in self._world.sites}
            mine = copies[view.holder(box.log) or self._harbour.ports[0]]
            found += same_copies(box.log, copies)
            found += once(box.log, mine, box.published)
            found += in_order(box.log, mine)
            found += in_ledgers(box.log, mine, entries)
            for copy in copies.values():
                found += in_terms(box.log, copy)
        return found

    async def audits(self) -> list[Audit]:
        """Run both audits over every pair of linked sites."""
        topology, kafka = self._world.topology, self._world.resolver.kafka
        out = []
        for a, b in self._world.pairs:
            for one in (compare, compare_records):
                out.append(await one(topology, kafka(a, "admin"), kafka(b, "admin")))
        return out


async def test_custody_survives_a_storm_of_moves_and_kills(
    home: Path, seed: int, seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """After random moves, kills and cut links, all boxes' logs keep the custody invariants and both audits agree."""
    chance = random.Random(f"boxes {seed}")  # noqa: S311 - moments, not secrets
    async with World(waters(home, chance)) as world, contextlib.AsyncExitStack() as stack:
        clusters = await stack.enter_async_context(
            Clusters(lambda site: world.resolver.kafka(site, "admin"), client_id="fairlead-chaos")
        )
        senders: dict[str, MqttSender] = {}
        for site in world.sites:
            await asyncio.to_thread(create_logs, world.resolver.kafka(site, "admin"), {CUSTODY_ORDERS: {}})
            sender = MqttSender(world.resolver.mqtt(site, "device"), f"storm-{site}")
            senders[site] = await stack.enter_async_context(sender)
        seizures = os.environ.get("FAIRLEAD_CHAOS_SEIZURES") != "0"
        harbour = Harbour(world.topology, clusters, senders, seizures=seizures)
        boxes = [Box(chance.choice(harbour.ports)) for _ in range(BOXES)]
        over = asyncio.Event()
        async with asyncio.TaskGroup() as storm:
            for box in boxes:
                own = random.Random(f"{seed} {box.number}")  # noqa: S311 - moments, not secrets
                storm.create_task(harbour.live(box, own, over))
            storm.create_task(blow(world, chance, over))
            storm.create_task(_end(world, over, seconds))
        for sender in senders.values():
            await sender.flush()  # from now on every published reading is acknowledged
        after = Aftermath(world, clusters, harbour, boxes)
        await after.drained()
        await after.at_rest()
        assert await after.wrong() == []
        for audit in await after.audits():
            assert audit.ok and audit.compared > 0 and not audit.apart, audit.as_json()
        world.check()
        done = {**harbour.done, **world.done, **await after.seized()}
        said = sum(len(box.published) for box in boxes)
        with capsys.disabled():
            print(f"{said} readings of {BOXES} boxes are in their logs once: {done}")  # noqa: T201


async def _end(world: World, over: asyncio.Event, seconds: float) -> None:
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            world.check()
            await asyncio.sleep(_LOOK)
    finally:
        over.set()
