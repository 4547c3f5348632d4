"""A lost holder returns after a seizure: its copy is rebuilt from the seizing site's, and readings are stored once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.kafka.admin import delete_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from tests.integration.replication.convoy import Convoy
from tests.support.edge.fleet import EVENTS, handled, hears, ledger, make_fleet, order, until
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.long, pytest.mark.integration]


@pytest.fixture
def convoy(kafka: Callable[..., KafkaEndpoint], mqtt: Callable[..., MqttEndpoint], tmp_path: Path) -> Iterator[Convoy]:
    """Provide a port and a ship that replicate everything to each other."""
    made = Convoy(make_fleet(kafka, mqtt, tmp_path))
    port, ship = made.fleet.port, made.fleet.ship
    made.link({"from": port, "to": ship, "both": True, "streams": made.everything()})
    yield made
    made.fleet.forget_sessions()


async def topic_id(kafka: KafkaEndpoint, log: str) -> bytes | None:
    async with await Cluster.open(kafka, client_id="test") as cluster:
        info = (await cluster.topics()).get(log)
        return info.topic_id if info is not None else None


async def lost_at_sea(convoy: Convoy, box: str, *, tail: int, ashore: int) -> int:
    """Copy readings 0 to 9 to all sites, add ``tail`` at the ship, then seize at the port and add ``ashore`` there.

    Return the number of the next reading.
    """
    fleet, port, ship = convoy.fleet, convoy.fleet.port, convoy.fleet.ship
    log = fleet.log(box)
    async with fleet.running(port) as quay:
        async with fleet.running(ship) as deck:
            async with convoy.linked(*fleet.topology.sites):
                with fleet.publisher(port) as device:
                    await device.publish(EVENTS, fleet.event("GTIN", box))
                    await device.readings(box, range(5))
                    await device.publish(EVENTS, fleet.event("LOAD", box))
                await handled(quay, 7)
                await until(lambda: deck.snapshot()["custody"]["held"] == 1, what="custody on board")
                await hears(deck, fleet, ship, box, range(5, 10))
                await convoy.ends_alike(log, *fleet.topology.sites)
            await hears(deck, fleet, ship, box, range(10, 10 + tail))
        await order(fleet, port, "seize", log, port, reason="the ship does not answer")
        await until(lambda: quay.snapshot()["custody"]["held"] == 1, what="the seizure")
        await hears(quay, fleet, port, box, range(10 + tail, 10 + tail + ashore))
    return 10 + tail + ashore


@pytest.mark.parametrize(("tail", "ashore"), [(4, 1), (2, 6)], ids=["its copy is longer", "its copy is shorter"])
async def test_a_lost_holder_returns(convoy: Convoy, tail: int, ashore: int) -> None:
    fleet, port, ship = convoy.fleet, convoy.fleet.port, convoy.fleet.ship
    box = fleet.new_box()
    log, strays = fleet.log(box), f"strays.{ship}"
    heard = await lost_at_sea(convoy, box, tail=tail, ashore=ashore)
    seen: list[object] = []

    def noted() -> bool:
        seen.append(convoy.trouble(port, log))
        return True

    async with fleet.running(port) as quay, convoy.linked(port, ship):
        # Until the ship's bridge has kept its extra readings, nothing is deleted; the status says what to do.
        await convoy.diverged(ship, log, f"the seizure by {port} at offset ")
        assert "fairlead link resolve" in convoy.trouble(ship, log)["what_to_do"]
        assert convoy.returned(ship) == []
        async with fleet.running(ship):
            await until(lambda: noted() and not convoy.trouble(ship, log), what="the copy")
            await until(lambda: quay.metrics.drained == tail, what="draining of the ship's strays")
            await hears(quay, fleet, port, box, range(heard, heard + 3))
            await convoy.ends_alike(log, port, ship)
        assert [each for each in seen if each] == []  # the other site's trouble does not affect the seizing site
        await convoy.well(port, ship)
        for name in (strays, f"custody.{port}", f"custody.{ship}"):
            await convoy.ends_alike(name, port, ship)
    [report] = convoy.returned(ship)
    assert (report.kept, len(fleet.read(ship, strays))) == (tail, tail)
    for name in (strays, f"custody.{port}", f"custody.{ship}"):
        assert fleet.read(port, name) == fleet.read(ship, name)
    await convoy.same(port, ship)
    assert sorted(fleet.sequences(ship, box)) == list(range(heard + 3))


async def test_killed_between_deleting_and_making_and_given_back_meanwhile(convoy: Convoy) -> None:
    """A copy is rebuilt even if the replicator is killed after deleting it and custody is given back meanwhile."""
    fleet, port, ship = convoy.fleet, convoy.fleet.port, convoy.fleet.ship
    box = fleet.new_box()
    log = fleet.log(box)
    heard = await lost_at_sea(convoy, box, tail=3, ashore=2)
    async with fleet.running(port) as quay:
        await order(fleet, port, "grant", log, ship, reason="the ship is back, and has the box")
        await until(lambda: quay.metrics.grants == 1, what="the grant")
        async with convoy.linked(port):
            async with fleet.running(ship) as deck:
                await hears(deck, fleet, ship, box, range(heard, heard + 2))  # before the ship knows of it
                await convoy.dies_when_it_has_deleted(ship)
                assert convoy.end(ship, log) == -1
                assert deck.snapshot()["custody"]["held"] == 0
                async with convoy.linked(ship):
                    await until(lambda: deck.snapshot()["custody"]["held"] == 1, what="custody on board again")
                    await until(lambda: deck.metrics.drained == 5, what="draining")
                    await hears(deck, fleet, ship, box, range(heard + 2, heard + 4))
                    await convoy.ends_alike(log, port, ship)
                    await convoy.well(port, ship)
    await convoy.same(port, ship)
    assert sorted(fleet.sequences(port, box)) == list(range(heard + 4))


async def test_two_sites_with_the_lost_history_do_not_feed_each_other(
    convoy: Convoy, kafka: Callable[..., KafkaEndpoint], more_sites: Callable[..., None]
) -> None:
    """Two sites with the lost records do not copy them from each other.

    A yard has copied what the ship wrote after the seizure, and has no bridge that could keep it.
    """
    more_sites("gamma")
    fleet, port, ship, yard = convoy.fleet, convoy.fleet.port, convoy.fleet.ship, f"yard-{convoy.boxes}"
    box = fleet.new_box()
    log = fleet.log(box)
    convoy.join(yard, kafka("gamma"))
    sides = [(port, ship), (ship, yard), (yard, port)]
    convoy.link(*({"from": a, "to": b, "both": True, "streams": convoy.everything()} for a, b in sides))
    heard = await lost_at_sea(convoy, box, tail=3, ashore=1)
    async with fleet.running(ship) as deck:
        await hears(deck, fleet, ship, box, range(heard, heard + 2))
    convoy.link({"from": ship, "to": yard, "streams": convoy.everything()})
    async with convoy.linked(yard):
        await convoy.ends_alike(log, ship, yard)
    convoy.link(*({"from": a, "to": b, "both": True, "streams": convoy.everything()} for a, b in sides))
    async with fleet.running(port) as quay, fleet.running(ship), convoy.linked(port, ship, yard):
        await until(lambda: quay.metrics.drained == 5, what="draining of the ship's strays")
        await convoy.ends_alike(log, port, ship)
        await convoy.diverged(yard, log, "has not kept them")
        await hears(quay, fleet, port, box, range(heard + 2, heard + 4))
        await convoy.ends_alike(log, port, ship)
        await convoy.well(port, ship)
        assert len(convoy.returned(ship)) == 1
    await convoy.same(port, ship)

    # A new copy with the yard as its only source gets the records before the seizure, and reports why it stops there.
    await asyncio.to_thread(delete_logs, fleet.kafka[ship], [log])
    convoy.link({"from": yard, "to": ship, "streams": {convoy.boxes: "all"}})
    async with convoy.linked(ship):
        await until(lambda: "cut off by the seizure" in convoy.trouble(ship, log).get("cause", ""), what="the cause")
        assert convoy.trouble(ship, log)["state"] == "unavailable"
        await until(lambda: fleet.sequences(ship, box) == list(range(10)), what="all from before the seizure")
        before = await topic_id(fleet.kafka[ship], log)
        await asyncio.to_thread(delete_logs, fleet.kafka[ship], [log])  # while the replicator runs
        async with asyncio.timeout(PATIENCE):
            while await topic_id(fleet.kafka[ship], log) in (None, before):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
        await until(lambda: fleet.sequences(ship, box) == list(range(10)), what="the same in another topic")
    convoy.link(*({"from": each, "to": ship, "streams": {convoy.boxes: "all"}} for each in (yard, port)))
    async with convoy.linked(ship):
        await convoy.ends_alike(log, port, ship)
    await convoy.same(port, ship)
    assert sorted(fleet.sequences(ship, box)) == list(range(heard + 4))


async def test_of_two_seizures_the_later_one_is_heard_of_first(
    convoy: Convoy,
    kafka: Callable[..., KafkaEndpoint],
    mqtt: Callable[..., MqttEndpoint],
    more_sites: Callable[..., None],
) -> None:
    """If the lost holder learns of the later of two seizures first, all its extra readings are still kept.

    The port seizes, the yard copies that and seizes too. Only the lost ship has its records between the two markers.
    With the yard's ledger alone, its bridge keeps only those beyond the later marker.
    """
    more_sites("gamma")
    fleet, port, ship, yard = convoy.fleet, convoy.fleet.port, convoy.fleet.ship, f"yard-{convoy.boxes}"
    convoy.join(yard, kafka("gamma"))
    fleet.mqtt[yard] = fleet.brokers[yard] = replace(mqtt("gamma", "bridge"), site=yard)
    fleet.devices[yard] = mqtt("gamma", "device")
    box = fleet.new_box()
    log = fleet.log(box)
    everywhere = [
        {"from": a, "to": b, "both": True, "streams": convoy.everything()}
        for a, b in ((port, ship), (ship, yard), (yard, port))
    ]
    convoy.link(*everywhere)
    async with fleet.running(yard) as crane:
        await lost_at_sea(convoy, box, tail=4, ashore=1)  # 10 to 13 are the ship's, 14 is the port's
        convoy.link({"from": port, "to": yard, "streams": convoy.everything()})
        async with convoy.linked(yard):
            await until(lambda: fleet.sequences(yard, box) == [*range(10), 14], what="the port's copy")
            await until(lambda: crane.snapshot()["custody"]["elsewhere"] == 1, what="news")
            await until(lambda: len(ledger(fleet, port, at=yard)) == 3, what="the port's ledger")
        await order(fleet, yard, "seize", log, yard, reason="the port burns")
        await until(lambda: crane.snapshot()["custody"]["held"] == 1, what="the second seizure")
        await hears(crane, fleet, yard, box, range(15, 17))
        first, second = ledger(fleet, port)[-1].marker_offset, ledger(fleet, yard)[-1].marker_offset
        assert first < second

        only_later = {**convoy.everything(), "custody": [yard]}
        async with fleet.running(ship):
            convoy.link({"from": yard, "to": ship, "streams": only_later})
            async with convoy.linked(ship):
                await until(
                    lambda: "an earlier seizure" in convoy.trouble(ship, log).get("cause", ""), what="that it waits"
                )
                assert convoy.trouble(ship, log)["state"] == "diverged"
                assert [each.marker_offset for each in convoy.returned(ship)] == [second]
                assert fleet.sequences(ship, box) == list(range(14))
            convoy.link(*everywhere)
            async with convoy.linked(port, ship, yard):
                await until(lambda: crane.metrics.drained == 4, what="draining of the ship's strays")
                await convoy.ends_alike(log, port, ship, yard)
                await convoy.well(port, ship, yard)
    assert [each.marker_offset for each in convoy.returned(ship)] == [second, first]
    for other in (port, yard):
        await convoy.same(ship, other)
    assert sorted(fleet.sequences(ship, box)) == list(range(17))
