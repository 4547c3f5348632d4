"""From a ship whose passwords were stolen, a port accepts only the ship's own logs and boxes in terms that it holds."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from fairlead.kafka.admin import create_logs
from fairlead.kafka.convention import term_batch
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records import encode
from fairlead.records.custody import CustodyEntry
from replication.plan import maintenance
from replication.plan.topics import FOLLOWED
from replication.replicator import Replicator
from tests.support.replication.lab import NOW_MS, WHEN, Lab, records, states, until
from topologies.model import Topology

pytestmark = pytest.mark.integration


@dataclass
class Berth:
    """A ship (broker alpha) and a port (beta) under names of one test's own, and a link that carries everything."""

    lab: Lab
    ship: str
    port: str

    def topology(self) -> Topology:
        everything = dict.fromkeys((self.lab.stream, "custody", "metrics"), "all")
        return Topology.model_validate(
            {
                "name": "berth",
                "sites": {
                    self.ship: {"kind": "ship", "imo": "9074729"},
                    self.port: {"kind": "port", "unlocode": "JPTYO"},
                },
                "streams": {
                    self.lab.stream: {"insert_point": "moves", "owners": ["BIGU"]},
                    "custody": {"priority": "control"},
                    "metrics": {},
                },
                "links": [{"from": self.ship, "to": self.port, "streams": everything}],
            }
        )

    def kafka(self, site: str) -> KafkaEndpoint:
        return replace(self.lab.kafka("alpha" if site == self.ship else "beta"), site=site)

    def replicator(self) -> Replicator:
        return Replicator(self.topology(), self.port, self.kafka(self.port), self.kafka)

    async def opened(self, broker: str, topic: str) -> int:
        await self.lab.make(broker, topic)
        return await self.lab.open_term(broker, topic, term=1, at=0)

    async def grant(self, broker: str, ledger: str, at: int, log: str, *, term: int, marker: int, to: str) -> int:
        """Enter a grant in a ledger; return the ledger's end."""
        by = ledger.partition(".")[2]
        entry = CustodyEntry(
            log=log,
            term=term,
            marker_offset=marker,
            from_site=by if term > 1 else None,
            to_site=to,
            event="HAND",
            event_id=f"{log}-{term}-{by}",
            event_date_time=WHEN,
            granted_date_time=WHEN,
            granted_by=by,
            marker_batch=b"",
        )
        batch = term_batch([NewRecord(encode(entry), timestamp_ms=NOW_MS)], term=1, offset=at, marker=0)
        await self.lab.append(broker, {ledger: batch})
        return at + 1


@pytest.fixture
async def berth(lab: Lab) -> AsyncIterator[Berth]:
    token = secrets.token_hex(3)
    yield Berth(lab, f"ship-{token}", f"port-{token}")


async def test_a_ship_extends_nothing_but_its_own_logs_and_the_boxes_it_holds(berth: Berth) -> None:
    """A ship can extend only its own logs and the boxes it holds."""
    lab, ledger, of_ship = berth.lab, f"custody.{berth.port}", f"custody.{berth.ship}"
    aboard, ashore, no_box = lab.log("BIGU1234560"), lab.log("BIGU7654322"), lab.log("NOTABOX")
    theirs, nobodys = f"metrics.{berth.port}", f"metrics.{lab.stream}"
    # The port grants the box to the ship with the marker of term 2, at offset 6 of its log.
    entries = await berth.opened("beta", ledger)
    end = await lab.write("beta", aboard, 5, at=await berth.opened("beta", aboard))
    end = await lab.open_term("beta", aboard, term=2, at=end)
    entries = await berth.grant("beta", ledger, entries, aboard, term=2, marker=6, to=berth.ship)
    entries = await berth.grant("beta", ledger, entries, ashore, term=1, marker=0, to=berth.port)
    # The ship has a copy and appends to it; the thief of its passwords writes everything that its brokers accept.
    for batch in await lab.stored("beta", aboard):
        if aboard not in await (await lab.cluster("alpha")).topics([aboard], refresh=True):
            await lab.make("alpha", aboard)
        await lab.append("alpha", {aboard: bytes(8) + batch[8:]})
    end = await lab.write("alpha", aboard, 8, term=2, marker=6, at=end)
    for topic in (ashore, no_box, ledger, theirs, nobodys, f"{of_ship}.more"):
        await lab.write("alpha", topic, 40, at=await berth.opened("alpha", topic))
    own = await berth.opened("alpha", of_ship)
    wanted = FOLLOWED
    here = await (await lab.cluster("beta")).topic_settings([aboard], wanted)
    stored = {topic: await lab.stored("beta", topic) for topic in (ledger,)}
    await asyncio.to_thread(create_logs, lab.kafka("alpha"), {lab.log("BIGU1000010"): {}}, partitions={})
    port = berth.replicator()
    async with lab.running(port):
        await lab.reaches("beta", aboard, end)
        await lab.reaches("beta", of_ship, own)
        # The ship ends its term with the next marker, which it may, and appends more, which it may not.
        end = await lab.open_term("alpha", aboard, term=3, at=end)
        await lab.write("alpha", aboard, 5, term=3, marker=end - 1, at=end)

        async def held_back() -> bool:
            return aboard in states(port.snapshot())

        await until(held_back, f"nothing is said about {aboard}: {port.snapshot()}")
        cause = port.snapshot()["logs"][aboard]["cause"]
        assert f"the batch at offset {end} is of term 3" in cause and berth.ship in cause
        await lab.append("alpha", {of_ship: term_batch(records(own, 3), term=1, offset=own, marker=0)})
        await lab.reaches("beta", of_ship, own + 3)
        assert await lab.end("beta", aboard) == end
        # After custody has returned, the port continues from the marker; nothing of the forged tail ever arrived.
        assert {topic: await lab.stored("beta", topic) for topic in stored} == stored
        absent = (ashore, no_box, theirs, nobodys, f"{of_ship}.more", lab.log("BIGU1000010"))
        assert [await lab.end("beta", topic) for topic in absent] == [-1] * len(absent)
        assert await (await lab.cluster("beta")).topic_settings([aboard], wanted) == here


async def test_settings_and_partitions_of_a_ships_logs_do_not_follow(
    berth: Berth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings and partition counts of a ship's logs are not copied to the port."""
    monkeypatch.setattr(maintenance, "COMPARE_PAUSE", (0.1, 0.1))
    lab, of_ship, of_people = berth.lab, f"custody.{berth.ship}", f"metrics.{berth.ship}"
    changed = {"cleanup.policy": "compact", "max.message.bytes": "5000000"}
    await asyncio.to_thread(
        create_logs,
        lab.kafka("alpha"),
        {of_ship: changed, of_people: changed},
        partitions={of_ship: 7, of_people: 3},
    )
    cluster = await lab.cluster("alpha")
    await cluster.wait_writable([of_ship, of_people])
    for topic in (of_ship, of_people):
        batch = term_batch([NewRecord(b"x", key=b"k", timestamp_ms=NOW_MS)], term=1, offset=0, marker=0)
        await lab.append("alpha", {topic: batch})
    async with lab.running(berth.replicator()):
        for topic in (of_ship, of_people):
            await lab.reaches("beta", topic, 1)
        beta = await lab.cluster("beta")

        async def follows() -> bool:
            found = await beta.topic_settings([of_people], list(changed))
            return found[of_people] == changed

        await until(follows, f"{of_people}: its settings do not follow its holder's")
        found = await beta.topics([of_ship, of_people], refresh=True)
        assert {name: len(info.partitions) for name, info in found.items()} == {of_ship: 1, of_people: 3}
        assert (await beta.topic_settings([of_ship], ["cleanup.policy"]))[of_ship] == {"cleanup.policy": "delete"}
