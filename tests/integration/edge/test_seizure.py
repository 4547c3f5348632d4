"""A holder is lost: another site seizes its log, and the readings it still wrote come back as strays when it
returns."""

from __future__ import annotations

import asyncio
import signal

import pytest
from confluent_kafka import KafkaException

from edge.logwriter import records
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.types import TP
from fairlead.records.custody import (
    CustodyEntry,
    Marker,
    RefusalEntry,
    ReturnEntry,
)
from tests.integration.edge.conftest import Operator
from tests.support.edge.fleet import EVENTS, Copier, Fleet, child, handled, hears, ledger, now, order, until
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.long, pytest.mark.integration]


async def aboard(fleet: Fleet, box: str, *, readings: int = 5) -> None:
    """Let a box come in at the port and be loaded, until the ship has its log."""
    async with fleet.running(fleet.port) as ashore:
        with fleet.publisher(fleet.port) as quay:
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await quay.readings(box, range(readings))
            await quay.publish(EVENTS, fleet.event("LOAD", box))
        await handled(ashore, readings + 2)
    await Copier(fleet, fleet.port, fleet.ship).copy(f"custody.{fleet.port}", fleet.log(box))


async def test_what_a_lost_ship_still_wrote_comes_back_as_strays(fleet: Fleet, operator: Operator) -> None:
    box = fleet.new_box()
    log, port, ship = fleet.log(box), fleet.port, fleet.ship
    await aboard(fleet, box)
    async with fleet.running(ship) as afloat:
        await until(lambda: afloat.snapshot()["custody"]["held"] == 1, what="custody on board")
        await hears(afloat, fleet, ship, box, range(5, 10))
        await Copier(fleet, ship, port).copy(log)  # the port has readings 0 to 9
        await hears(afloat, fleet, ship, box, range(10, 14))  # but not these
    async with fleet.running(port) as ashore:
        await hears(ashore, fleet, port, box, range(14, 16))  # the box was saved; the ship does not answer
        assert ashore.metrics.strays == 2
        asked = await order(fleet, port, "seize", log, port, reason="the ship does not answer")
        await until(lambda: ashore.metrics.drained == 2, what="the seizure, and draining")
        await hears(ashore, fleet, port, box, range(16, 20))
        assert fleet.sequences(port, box) == [*range(10), *range(14, 20)]
    seizure = ledger(fleet, port)[-1]
    assert isinstance(seizure, CustodyEntry)
    assert (seizure.event, seizure.event_id, seizure.term) == ("SEIZURE", asked, 18)
    assert (seizure.from_site, seizure.to_site, seizure.ordered_by) == (ship, port, "tester")
    assert seizure.reason == "the ship does not answer"

    async with fleet.running(ship) as afloat:  # it is back, and does not know of the seizure yet
        await hears(afloat, fleet, ship, box, range(20, 22))
        await Copier(fleet, port, ship).copy(f"custody.{port}")
        await until(lambda: len(fleet.read(ship, f"strays.{ship}")) >= 6, what="its readings among the strays")
        await until(lambda: any(isinstance(each, ReturnEntry) for each in ledger(fleet, ship)), what="its report")
        assert afloat.snapshot()["custody"]["held"] == 0
        await hears(afloat, fleet, ship, box, range(22, 23))
        assert len(fleet.read(ship, log)) == 16  # nothing is appended there any more
    report = ledger(fleet, ship)[-1]
    assert isinstance(report, ReturnEntry)
    assert (report.log, report.term, report.marker_offset) == (log, 18, seizure.marker_offset)
    assert (report.kept, report.end_offset, report.strays_log) == (6, seizure.marker_offset + 6, f"strays.{ship}")
    async with fleet.running(ship):
        pass  # a second start reports nothing again
    assert len([each for each in ledger(fleet, ship) if isinstance(each, ReturnEntry)]) == 1
    (back,) = (await operator.says("show", box, "--site", ship, "--json")).body["returns"]
    end = seizure.marker_offset + 6
    told = await operator.says("show", box, "--site", ship)
    assert (back["returned_by"], back["marker_offset"], back["end_offset"], back["kept"]) == (ship, end - 6, end, 6)
    beyond = f"6 offsets beyond the seizure of term 18 ({end - 6} to {end - 1})"
    assert f"returned: {ship} came back with {beyond}" in told.out
    strays = await operator.says("strays", "--site", ship, "--json")
    (row,) = [each for each in strays.body["logs"] if each["log"] == log]
    assert (row["holder"], row["readings"], row["kept_at"]) == (port, 7, {ship: 7})

    async with fleet.running(port) as ashore:
        await Copier(fleet, ship, port).copy(f"strays.{ship}")
        await until(lambda: ashore.metrics.drained == 7, what="draining of the ship's strays")
        await hears(ashore, fleet, port, box, range(23, 25))
    async with fleet.running(port) as ashore:
        await hears(ashore, fleet, port, box, range(25, 26))
        assert ashore.metrics.drained == 0
    stored = fleet.read(port, log)
    assert sorted(record.sequence for record in stored) == list(range(26))
    late = [record.sequence for record in stored if "late" in record.headers]
    assert late == [10, 11, 12, 13]
    in_order = [record.sequence for record in stored if "late" not in record.headers]
    assert in_order == sorted(in_order)


async def test_what_cannot_be_ordered_is_refused_with_the_reason(fleet: Fleet) -> None:
    held, elsewhere, unknown = fleet.new_box(), fleet.new_box(), fleet.new_box()
    port, ship = fleet.port, fleet.ship
    async with fleet.running(port) as ashore:
        with fleet.publisher(port) as quay:
            await quay.publish(EVENTS, fleet.event("GTIN", held))
            await quay.publish(EVENTS, fleet.event("GTIN", elsewhere), fleet.event("LOAD", elsewhere))
        await handled(ashore, 3)
        asked = {
            await order(fleet, port, "grant", fleet.log(unknown), ship): "never opened",
            await order(fleet, port, "grant", fleet.log(elsewhere), ship): "does not hold",
            await order(fleet, port, "grant", fleet.log(held), "atlantis"): "no site that can hold a log",
            await order(fleet, port, "grant", fleet.log(held), port): "to itself",
            await order(fleet, port, "grant", fleet.log(held), ship, term=7): "has moved since",
            await order(fleet, port, "grant", f"events.{port}", ship): "do not move",
            await order(fleet, port, "seize", fleet.log(held), port, reason="x"): "holds",
            await order(fleet, port, "seize", fleet.log(unknown), port, reason="x"): "never opened",
        }

        def refusals() -> dict[str, str]:
            return {each.order_id: each.reason for each in ledger(fleet, port) if isinstance(each, RefusalEntry)}

        await until(lambda: refusals().keys() >= asked.keys(), what=f"{len(asked)} refusals")
        for order_id, why in asked.items():
            assert why in refusals()[order_id]
    async with fleet.running(ship) as afloat:
        await Copier(fleet, port, ship).copy(f"custody.{port}")
        await until(lambda: afloat.snapshot()["custody"]["incoming"] == 1, what="news of custody")
        behind = await order(fleet, ship, "grant", fleet.log(elsewhere), port)
        no_copy = await order(fleet, ship, "seize", fleet.log(elsewhere), ship, reason="x")
        of_another = await order(fleet, ship, "seize", fleet.log(held), ship, reason="x")
        await until(lambda: len(ledger(fleet, ship)) == 3, what="three refusals")
    reasons = {each.order_id: each.reason for each in ledger(fleet, ship)}
    assert "behind" in reasons[behind]
    assert "no copy" in reasons[no_copy]
    assert "is a ship" in reasons[of_another]


async def test_a_log_whose_giver_sank_with_the_rest_is_seized_by_its_receiver(fleet: Fleet) -> None:
    """A log granted to the ship is seized by the ship if the port was lost before its last records were copied."""
    box = fleet.new_box()
    log, port, ship = fleet.log(box), fleet.port, fleet.ship
    async with fleet.running(port) as ashore:
        with fleet.publisher(port) as quay:
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await quay.readings(box, range(3))
            await handled(ashore, 4)
            await Copier(fleet, port, ship).copy(log)
            await quay.readings(box, range(3, 6))
            await quay.publish(EVENTS, fleet.event("LOAD", box))
        await handled(ashore, 8)
    await Copier(fleet, port, ship).copy(f"custody.{port}")
    async with fleet.running(ship) as afloat:
        await hears(afloat, fleet, ship, box, range(6, 8))
        assert afloat.snapshot()["custody"]["incoming"] == 1
        await order(fleet, ship, "seize", log, ship, reason="Tokyo burnt down")
        await until(lambda: afloat.metrics.drained == 2, what="the seizure")
    assert fleet.sequences(ship, box) == [0, 1, 2, 6, 7]
    async with fleet.running(port):
        await Copier(fleet, ship, port).copy(f"custody.{ship}")
        await until(lambda: len(fleet.read(port, f"strays.{port}")) == 3, what="the port's readings among the strays")
    async with fleet.running(ship) as afloat:
        await Copier(fleet, port, ship).copy(f"strays.{port}")
        await until(lambda: afloat.metrics.drained == 3, what="draining")
    assert sorted(fleet.sequences(ship, box)) == list(range(8))


async def test_a_seizure_that_a_crash_has_cut_short_is_completed_and_not_done_twice(fleet: Fleet) -> None:
    """A seizure that a crash interrupted is completed, and not done twice."""
    box, port = fleet.new_box(), fleet.port
    log = fleet.log(box)
    await aboard(fleet, box)
    async with await Cluster.open(fleet.kafka[port], client_id="crashing") as cluster:
        appender = Appender(cluster)
        end = (await cluster.end_offsets([TP(log)]))[TP(log)]
        assert isinstance(end, int)
        asked = await order(fleet, port, "seize", log, port, reason="sunk")
        marker = Marker(
            log=log,
            term=18,
            from_site=fleet.ship,
            to_site=port,
            event="SEIZURE",
            event_id=asked,
            event_date_time=now(),
            nonce="n",
            drained_since=0,
        )
        await appender.open_term(TP(log), 18, records.marker(marker))
        await appender.close()
    for _ in range(2):
        async with fleet.running(port) as ashore:
            await until(lambda: ashore.snapshot()["custody"]["held"] == 1, what="the seizure")
    entry = ledger(fleet, port)[-1]
    assert isinstance(entry, CustodyEntry)
    assert (entry.event, entry.event_id, entry.term, entry.marker_offset) == ("SEIZURE", asked, 18, end)
    assert len(ledger(fleet, port)) == 3


async def test_a_zombie_of_an_earlier_term_cannot_append(fleet: Fleet) -> None:
    """A bridge of an earlier term that was suspended cannot append.

    It is suspended, another replaces it, custody leaves and comes back, then the first one resumes.
    """
    box = fleet.new_box()
    log, port, ship = fleet.log(box), fleet.port, fleet.ship
    to_ship, to_port = Copier(fleet, port, ship), Copier(fleet, ship, port)
    with fleet.publisher(port) as quay, fleet.publisher(ship) as deck:
        async with child(fleet, port) as zombie:
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await quay.readings(box, range(5))
            await until(lambda: _reads(fleet, port, box) == 5, what="five readings")
            zombie.send_signal(signal.SIGSTOP)
            await quay.readings(box, range(5, 15))  # these are in the suspended bridge's socket, or queued for it
            async with fleet.running(port) as ashore, fleet.running(ship) as afloat:
                # It may receive some readings again that the suspended one has stored, so their number tells nothing.
                await until(lambda: _reads(fleet, port, box) == 15, what="the next ten readings")
                await quay.publish(EVENTS, fleet.event("LOAD", box))
                await until(lambda: ashore.metrics.grants == 1, what="the grant")
                await to_ship.copy(f"custody.{port}", log)
                await until(lambda: afloat.snapshot()["custody"]["held"] == 1, what="custody on board")
                await deck.readings(box, range(15, 20))
                await deck.publish(EVENTS, fleet.event("DISC", box))
                await handled(afloat, 6)
                await to_port.copy(log, f"custody.{ship}")
                await until(lambda: ashore.snapshot()["custody"]["held"] == 1, what="custody ashore again")
                zombie.send_signal(signal.SIGCONT)
                async with asyncio.timeout(PATIENCE):
                    assert await zombie.wait() not in (0, None)
                await quay.readings(box, range(20, 25))
                await until(lambda: _reads(fleet, port, box) == 25, what="the last readings")
    assert fleet.sequences(port, box) == list(range(25))
    terms = [(each.term, each.event) for each in (*ledger(fleet, port), *ledger(fleet, ship))]
    assert terms == [(1, "GTIN"), (2, "LOAD"), (3, "DISC")]


def _reads(fleet: Fleet, site: str, box: str) -> int:
    try:
        return len(fleet.read(site, fleet.log(box)))
    except KafkaException:
        return 0  # the log is not there yet
