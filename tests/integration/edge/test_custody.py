"""Boxes enter, are loaded and discharged: custody of their logs moves with them, and no reading is lost or repeated."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest

from edge.logwriter import records
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.record import decode_batch
from fairlead.kafka.protocol.types import TP
from fairlead.records import decoder
from fairlead.records.custody import ClaimEntry, CustodyEntry, Marker, ledger_entries
from tests.support.edge.fleet import EVENTS, Copier, Fleet, Stored, handled, now, until
from topologies.model import Site, SiteKind

pytestmark = pytest.mark.integration

_entry = decoder(CustodyEntry)


def ledger(fleet: Fleet, site: str, at: str | None = None) -> list[CustodyEntry]:
    return [_entry.decode(record.value) for record in fleet.read(at or site, f"custody.{site}")]


def reasons(letters: list[Stored]) -> list[str]:
    return [letter.body["reason"] for letter in letters]


async def test_a_gate_in_opens_the_log_and_says_so_in_the_ledger(fleet: Fleet) -> None:
    """A gate-in opens the box's log and is entered in the ledger."""
    box = fleet.new_box()
    async with fleet.running(fleet.port) as bridge:
        with fleet.publisher(fleet.port) as device:
            gate_in = fleet.event("GTIN", box)
            await device.publish(EVENTS, gate_in, gate_in)
        await handled(bridge, 2)
        assert bridge.metrics.opened == 1
    [entry] = ledger(fleet, fleet.port)
    assert (entry.log, entry.term, entry.marker_offset) == (fleet.log(box), 1, 0)
    assert (entry.from_site, entry.to_site, entry.event) == (None, fleet.port, "GTIN")
    [marker] = decode_batch(entry.marker_batch)
    assert marker.offset == 0
    assert len(fleet.read(fleet.port, f"events.{fleet.port}")) == 1


async def test_three_hundred_boxes_enter_at_once(fleet: Fleet) -> None:
    boxes = [fleet.new_box() for _ in range(300)]
    async with fleet.running(fleet.port) as bridge:
        with fleet.publisher(fleet.port) as device:
            await device.publish(EVENTS, *(fleet.event("GTIN", box) for box in boxes))
            for box in boxes:
                await device.readings(box, range(1))
        await handled(bridge, 600)
        # A log that takes longer than BLOCKED_SECONDS to open has its reading kept as a stray, and drained later.
        await until(lambda: bridge.metrics.readings + bridge.metrics.drained == 300, what="every reading in its log")
        assert bridge.snapshot()["custody"]["held"] == 300
        assert bridge.metrics.strays == bridge.metrics.drained
    assert {entry.log for entry in ledger(fleet, fleet.port)} == {fleet.log(box) for box in boxes}


async def test_a_box_is_loaded_and_discharged_and_its_log_is_one(fleet: Fleet) -> None:
    """A box is loaded and discharged, and all its readings are in one log at both sites."""
    box = fleet.new_box()
    log, port, ship = fleet.log(box), fleet.port, fleet.ship
    to_ship, to_port = Copier(fleet, port, ship), Copier(fleet, ship, port)
    async with fleet.running(port) as ashore, fleet.running(ship) as afloat:
        with fleet.publisher(port) as quay, fleet.publisher(ship) as deck:
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await quay.readings(box, range(10))
            # Readings that the ship receives before it has custody are kept as strays.
            await deck.readings(box, range(10, 15))
            await handled(afloat, 5)
            assert afloat.metrics.strays == 5
            await quay.publish(EVENTS, fleet.event("LOAD", box))
            await handled(ashore, 12)
            # The ledger comes first, as on a satellite link; the ship must wait for the log itself.
            await to_ship.copy(f"custody.{port}")
            await until(lambda: afloat.snapshot()["custody"]["incoming"] == 1, what="news of custody on board")
            await deck.readings(box, range(15, 18))
            await handled(afloat, 8)
            assert (afloat.metrics.strays, afloat.metrics.drained) == (8, 0)
            await to_ship.copy(log)
            await until(lambda: afloat.metrics.drained == 8, what="draining")
            await deck.readings(box, range(18, 25))
            await handled(afloat, 15)
            # A reading that the port still receives is kept there.
            await quay.readings(box, range(25, 26))
            await handled(ashore, 13)
            assert ashore.metrics.strays == 1

            await deck.publish(EVENTS, fleet.event("DISC", box))
            await handled(afloat, 16)
            await to_port.copy(log, f"custody.{ship}")
            await until(lambda: ashore.metrics.drained == 1, what="draining ashore")
            await quay.readings(box, range(26, 30))
            await handled(ashore, 17)
    await to_ship.copy(log)
    assert fleet.sequences(port, box) == list(range(30))
    stored = fleet.read(port, log)
    assert stored == fleet.read(ship, log)
    origins = [record.headers.get("origin") for record in stored]
    first_stray = fleet.read(ship, f"strays.{ship}")[0].offset
    assert origins[10:18] == [f"strays.{ship}@{first_stray + n}".encode() for n in range(8)]
    assert origins[25] is not None
    assert [origin for n, origin in enumerate(origins) if n not in (*range(10, 18), 25)] == [None] * 21
    moves = [(entry.term, entry.event, entry.from_site, entry.to_site) for entry in ledger(fleet, port)]
    assert moves == [(1, "GTIN", None, port), (2, "LOAD", port, ship)]
    [back] = ledger(fleet, ship)
    assert (back.term, back.event, back.to_site) == (3, "DISC", port)
    [marker] = decode_batch(back.marker_batch)
    assert decoder(Marker).decode(marker.value or b"").drained == {f"strays.{ship}": first_stray + 8}


async def test_strays_are_drained_once_across_restarts(fleet: Fleet) -> None:
    """Strays, readings that wait for custody, are appended once, even across restarts."""
    box = fleet.new_box()
    with fleet.publisher(fleet.port) as device:
        async with fleet.running(fleet.port) as bridge:
            await device.readings(box, range(8))
            await handled(bridge, 8)
            assert bridge.metrics.strays == 8
        async with fleet.running(fleet.port) as bridge:
            await device.readings(box, range(6, 10))
            await handled(bridge, 4)
            assert (bridge.metrics.strays, bridge.metrics.repeats) == (2, 2)
            await device.publish(EVENTS, fleet.event("GTIN", box))
            await until(lambda: bridge.metrics.drained == 10, what="draining")
            await device.readings(box, range(10, 12))
            await handled(bridge, 7)
        async with fleet.running(fleet.port) as bridge:
            await device.readings(box, range(12, 14))
            await handled(bridge, 2)
            await until(lambda: bridge.snapshot()["strays_waiting"] == 0, what="the second look at strays")
            assert bridge.metrics.drained == 0
    assert fleet.sequences(fleet.port, box) == list(range(14))


async def test_only_the_holder_gives_a_box_away(fleet: Fleet) -> None:
    """Only the site that holds a box's log can grant it away."""
    box = fleet.new_box()
    async with fleet.running(fleet.port) as ashore, fleet.running(fleet.ship) as afloat:
        with fleet.publisher(fleet.port) as quay, fleet.publisher(fleet.ship) as deck:
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await handled(ashore, 1)
            # No bridge on board knows the box yet, so its events wait. A ship has no gate.
            await deck.publish(EVENTS, fleet.event("DISC", box), fleet.event("GTIN", fleet.new_box()))
            await handled(afloat, 2)
            load = fleet.event("LOAD", box)
            await quay.publish(EVENTS, load, fleet.event("LOAD", box), load)
            await handled(ashore, 4)
            assert (ashore.metrics.grants, afloat.metrics.grants) == (1, 0)
            assert [ashore.snapshot()["events_waiting"], afloat.snapshot()["events_waiting"]] == [1, 1]
    assert reasons(fleet.read(fleet.ship, f"deadletters.{fleet.ship}")) == ["not-holder"]
    assert fleet.read(fleet.ship, f"events.{fleet.ship}") == []
    # The second LOAD waits; the repeated one has been carried out.
    assert fleet.read(fleet.port, f"deadletters.{fleet.port}") == []
    assert [entry.term for entry in ledger(fleet, fleet.port)] == [1, 2]
    assert [stray.body["event"] for stray in fleet.read(fleet.port, f"strays.{fleet.port}")] == [True]


async def test_an_event_waits_for_custody_that_is_on_its_way(fleet: Fleet) -> None:
    """An event waits until custody has arrived, also across a restart."""
    box = fleet.new_box()
    to_ship = Copier(fleet, fleet.port, fleet.ship)
    async with fleet.running(fleet.port) as ashore:
        with fleet.publisher(fleet.port) as quay:
            await quay.publish(EVENTS, fleet.event("GTIN", box), fleet.event("LOAD", box))
        await handled(ashore, 2)
    async with fleet.running(fleet.ship) as afloat:
        await to_ship.copy(f"custody.{fleet.port}")
        await until(lambda: afloat.snapshot()["custody"]["incoming"] == 1, what="news of custody on board")
        with fleet.publisher(fleet.ship) as deck:
            await deck.readings(box, range(3))
            await deck.publish(EVENTS, fleet.event("DISC", box))
        await handled(afloat, 4)
        assert (afloat.metrics.grants, afloat.metrics.dead_letters, afloat.metrics.events_kept) == (0, 0, 1)
    async with fleet.running(fleet.ship) as afloat:  # it waits across a restart
        assert afloat.snapshot()["events_waiting"] == 1
        await to_ship.copy(fleet.log(box))
        await until(lambda: afloat.metrics.grants == 1, what="the event")
        assert afloat.snapshot()["events_waiting"] == 0
    async with fleet.running(fleet.ship) as afloat:  # and is not carried out again
        assert afloat.snapshot()["events_waiting"] == 0
    assert fleet.sequences(fleet.ship, box) == [0, 1, 2]
    assert [(entry.term, entry.event) for entry in ledger(fleet, fleet.ship)] == [(3, "DISC")]
    assert len(fleet.read(fleet.ship, f"events.{fleet.ship}")) == 1


async def test_an_event_that_others_have_overtaken_is_a_dead_letter(fleet: Fleet) -> None:
    """An event that a later one has overtaken becomes a dead letter.

    The ship received a discharge before custody came; by then the box had been loaded again, at a later time.
    """
    box = fleet.new_box()
    to_ship = Copier(fleet, fleet.port, fleet.ship)
    async with fleet.running(fleet.port) as ashore, fleet.running(fleet.ship) as afloat:
        with fleet.publisher(fleet.port) as quay, fleet.publisher(fleet.ship) as deck:
            await deck.publish(EVENTS, fleet.event("DISC", box))
            await handled(afloat, 1)
            await quay.publish(EVENTS, fleet.event("GTIN", box), fleet.event("LOAD", box))
            await handled(ashore, 2)
        await to_ship.copy(f"custody.{fleet.port}", fleet.log(box))
        await until(lambda: afloat.metrics.dead_letters == 1, what="the dead letter")
        await until(lambda: afloat.snapshot()["custody"]["held"] == 1, what="custody on board")
        assert (afloat.snapshot()["events_waiting"], afloat.metrics.grants) == (0, 0)
    assert reasons(fleet.read(fleet.ship, f"deadletters.{fleet.ship}")) == ["not-holder"]


async def test_a_box_that_left_comes_in_again(fleet: Fleet) -> None:
    """A box that left comes in again at the same port, and its log continues."""
    box = fleet.new_box()
    async with fleet.running(fleet.port) as bridge:
        with fleet.publisher(fleet.port) as quay:
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await quay.readings(box, range(3))
            await quay.publish(EVENTS, fleet.event("GTOT", box))
            await quay.readings(box, range(3, 5))  # on the road
            await handled(bridge, 7)
            assert bridge.metrics.strays == 2
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await until(lambda: bridge.metrics.drained == 2, what="draining")
            await quay.readings(box, range(5, 8))
            await handled(bridge, 11)
    assert fleet.sequences(fleet.port, box) == list(range(8))
    assert [(entry.term, entry.event) for entry in ledger(fleet, fleet.port)] == [(1, "GTIN"), (2, "GTOT"), (3, "GTIN")]


async def test_a_box_that_comes_in_elsewhere_is_claimed_of_the_site_that_it_left(fleet: Fleet) -> None:
    """A box that comes in at another port is claimed from the site that it left.

    Both ports publish a gate-in at once: the port that the box left decides, and the log is not split.
    """
    other = fleet.ship  # a port in this test
    sites = {**fleet.topology.sites, other: Site(kind=SiteKind.PORT, unlocode="SGSIN")}
    fleet.topology = fleet.topology.model_copy(update={"sites": sites})
    box = fleet.new_box()
    log = fleet.log(box)
    out, back = Copier(fleet, fleet.port, other), Copier(fleet, other, fleet.port)
    async with fleet.running(fleet.port) as left:
        with fleet.publisher(fleet.port) as gate:
            await gate.publish(EVENTS, fleet.event("GTIN", box))
            await gate.readings(box, range(3))
            await gate.publish(EVENTS, fleet.event("GTOT", box))
            await handled(left, 5)
        await out.copy(f"custody.{fleet.port}", log)
        gate_in = fleet.event("GTIN", box)
        async with fleet.running(other) as entered:
            with fleet.publisher(other) as gate:
                await gate.publish(EVENTS, gate_in, gate_in)
                await gate.readings(box, range(3, 5))
                await handled(entered, 4)
            assert (entered.metrics.strays, entered.metrics.opened) == (2, 0)
        [claim] = [ledger_entries.decode(each.value) for each in fleet.read(other, f"custody.{other}")]
        assert isinstance(claim, ClaimEntry)
        assert (claim.log, claim.term, claim.left_site, claim.claimed_by) == (log, 2, fleet.port, other)
        await back.copy(f"custody.{other}")
        await until(lambda: left.metrics.grants == 2, what="the answer")  # the gate-out was the first grant
        with fleet.publisher(fleet.port) as gate:
            await gate.publish(EVENTS, fleet.event("GTIN", box))
            await handled(left, 6)
        assert left.snapshot()["custody"]["held"] == 0
    await out.copy(f"custody.{fleet.port}", log)
    async with fleet.running(other) as entered:  # the claim outlives its bridge
        await until(lambda: entered.metrics.drained == 2, what="draining")
        with fleet.publisher(other) as gate:
            await gate.readings(box, range(5, 8))
            await handled(entered, 3)
        await until(lambda: entered.snapshot()["events_waiting"] == 0, what="the gate-in")
    assert fleet.sequences(other, box) == list(range(8))
    terms = [(entry.term, entry.event, entry.from_site, entry.to_site) for entry in ledger(fleet, fleet.port)]
    assert terms == [
        (1, "GTIN", None, fleet.port),
        (2, "GTOT", fleet.port, None),
        (3, "GTIN", fleet.port, other),
    ]
    assert len(fleet.read(other, f"custody.{other}")) == 1
    assert len(fleet.read(other, f"events.{other}")) == 1


@pytest.mark.parametrize("event", ["GTIN", "LOAD"])
async def test_a_grant_whose_ledger_entry_a_crash_left_out_is_completed(fleet: Fleet, event: str) -> None:
    """If a crash left out a grant's ledger entry, the next start writes it, once."""
    box, port = fleet.new_box(), fleet.port
    log = fleet.log(box)
    term = 1 if event == "GTIN" else 2
    async with fleet.running(port) as bridge:
        if event == "LOAD":
            with fleet.publisher(port) as quay:
                await quay.publish(EVENTS, fleet.event("GTIN", box))
            await handled(bridge, 1)
    await _marker_only(fleet, log, term, event)
    async with fleet.running(port) as bridge:
        held = bridge.snapshot()["custody"]["held"]
        assert held == (1 if event == "GTIN" else 0)
        with fleet.publisher(port) as quay:  # the message was not acknowledged before the crash, so it comes again
            await quay.publish(EVENTS, fleet.event(event, box, event_id="crashed"))
        await handled(bridge, 1)
        assert (bridge.metrics.dead_letters, bridge.metrics.grants, bridge.metrics.opened) == (0, 0, 0)
    async with fleet.running(port):
        pass  # a second start adds nothing
    entry = ledger(fleet, port)[-1]
    assert len(ledger(fleet, port)) == term
    assert (entry.log, entry.term, entry.event_id) == (log, term, "crashed")
    assert entry.to_site == (port if event == "GTIN" else fleet.ship)


async def _marker_only(fleet: Fleet, log: str, term: int, event: str) -> None:
    """Leave the state of a bridge that is killed between the two appends of a grant: the marker without its ledger
    entry.
    """
    port = fleet.port
    marker = Marker(
        log=log,
        term=term,
        from_site=None if event == "GTIN" else port,
        to_site=port if event == "GTIN" else fleet.ship,
        event="GTIN" if event == "GTIN" else "LOAD",
        event_id="crashed",
        event_date_time=now().astimezone(dt.UTC),
        nonce=uuid.uuid4().hex,
    )
    await Copier(fleet, port, port).create(log)
    async with await Cluster.open(fleet.kafka[port], client_id="crashing") as cluster:
        appender = Appender(cluster)
        await appender.open_term(TP(log), term, records.marker(marker))
        await appender.close()


async def test_overboard_is_raised_at_once_and_once(fleet: Fleet) -> None:
    """A box lost overboard raises an alert at once, and only one."""
    box = fleet.new_box()
    fall = {"motion": {"freeFallSeconds": 1.8, "peakG": 9.0, "tiltDegrees": 80.0, "immersed": True}}
    async with fleet.running(fleet.ship) as bridge:
        with fleet.publisher(fleet.ship) as deck:
            await deck.readings(box, range(3))
            await deck.readings(box, range(3, 5), **fall)
            await handled(bridge, 5)
            assert bridge.metrics.alerts == 1
    async with fleet.running(fleet.ship) as bridge:
        with fleet.publisher(fleet.ship) as deck:
            await deck.readings(box, range(5, 7), **fall)
            await handled(bridge, 2)
            assert bridge.metrics.alerts == 0
    [alert] = [record.body for record in fleet.read(fleet.ship, f"alerts.{fleet.ship}")]
    assert (alert["kind"], alert["severity"], alert["equipmentReference"]) == ("OVERBOARD", "CRITICAL", box)
    assert alert["causes"][0]["sequence"] == 3
