"""Custody when ledger entries, ledgers or sites are missing, or readings wait too long."""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from dataclasses import replace

import pytest

from edge.bridge import Bridge
from edge.logwriter import records
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.types import TP
from fairlead.records.custody import Marker
from tests.support.edge.fleet import EVENTS, Copier, Fleet, handled, now, until

pytestmark = [pytest.mark.long, pytest.mark.integration]


async def opened(fleet: Fleet, bridge: Bridge, *boxes: str, readings: int = 0) -> None:
    before = bridge.snapshot()["received"]
    with fleet.publisher(fleet.port) as quay:
        for box in boxes:
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            if readings:
                await quay.readings(box, range(readings))
    await handled(bridge, before + len(boxes) * (1 + readings))


async def test_what_another_site_kept_is_drained_by_the_holder(fleet: Fleet) -> None:
    """The holder drains strays that another site has kept."""
    box, port, ship = fleet.new_box(), fleet.port, fleet.ship
    async with fleet.running(ship) as afloat, fleet.running(port) as ashore:
        with fleet.publisher(port) as quay, fleet.publisher(ship) as deck:
            await opened(fleet, ashore, box, readings=3)
            await quay.publish(EVENTS, fleet.event("LOAD", box))
            await until(lambda: ashore.metrics.grants == 1, what="the grant")
            await Copier(fleet, port, ship).copy(f"custody.{port}", fleet.log(box))
            await until(lambda: afloat.snapshot()["custody"]["held"] == 1, what="custody on board")
            await deck.publish(EVENTS, fleet.event("DISC", box))
            await until(lambda: afloat.metrics.grants == 1, what="the grant of the ship")
            await Copier(fleet, ship, port).copy(f"custody.{ship}", fleet.log(box))
            await until(lambda: ashore.snapshot()["custody"]["held"] == 1, what="custody on the quay")
            before = afloat.snapshot()["received"]
            await deck.readings(box, range(3, 6))  # a ship alongside hears the box, which stands on the quay
            await handled(afloat, before + 3)
            await Copier(fleet, ship, port).copy(f"strays.{ship}")
            await until(lambda: ashore.metrics.drained == 3, what="draining of the ship's strays")
            await deck.readings(box, range(6, 8))
            await handled(afloat, before + 5)
            await Copier(fleet, ship, port).copy(f"strays.{ship}")
            await until(lambda: ashore.metrics.drained == 5, what="draining of what came later")
            await quay.publish(EVENTS, fleet.event("LOAD", box))
            await until(lambda: ashore.metrics.grants == 2, what="the second grant")
        # The marker tells the ship that the port has drained its strays, so it drains none of them again.
        await Copier(fleet, port, ship).copy(f"custody.{port}", fleet.log(box))
        await until(lambda: afloat.snapshot()["custody"]["held"] == 1, what="custody on board again")
        await until(lambda: afloat.snapshot()["strays_waiting"] == 0, what="its strays to be known as drained")
        assert afloat.metrics.drained == 0
    assert fleet.sequences(ship, box) == list(range(8))
    async with fleet.running(ship) as afloat:
        assert afloat.snapshot()["strays_waiting"] == 0


async def test_strays_that_wait_too_long_raise_an_alert_which_ends_when_they_are_drained(fleet: Fleet) -> None:
    """Strays that wait too long raise an alert, which clears when they are drained."""
    box, port = fleet.new_box(), fleet.port
    fleet = replace(fleet, stray_limit=0.2)
    async with fleet.running(port) as bridge:
        with fleet.publisher(port) as quay:
            await quay.readings(box, range(2))
        await handled(bridge, 2)
        await until(lambda: bridge.metrics.alerts == 1, what="the alert")
    async with fleet.running(port) as bridge:  # it is not raised again
        await opened(fleet, bridge, box)
        await until(lambda: bridge.metrics.alerts == 1, what="the end of the alert")
    alerts = [record.body for record in fleet.read(port, f"alerts.{port}")]
    assert [(each["kind"], each["state"], each["equipmentReference"]) for each in alerts] == [
        ("STRAYS_WAITING", "OPENED", box),
        ("STRAYS_WAITING", "CLEARED", box),
    ]
    assert len({each["alertID"] for each in alerts}) == 1


async def test_a_truncated_ledger_loses_nothing(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    """A ledger whose beginning was deleted costs no reading."""
    held, given, port, ship = fleet.new_box(), fleet.new_box(), fleet.port, fleet.ship
    async with fleet.running(port) as bridge:
        await opened(fleet, bridge, held, given, readings=2)
        with fleet.publisher(port) as quay:
            await quay.publish(EVENTS, fleet.event("LOAD", given))
        await handled(bridge, 7)
    async with await Cluster.open(fleet.kafka[port], client_id="cut") as cluster:
        end = (await cluster.end_offsets([TP(f"custody.{port}")]))[TP(f"custody.{port}")]
        assert isinstance(end, int)
        await cluster.delete_records({TP(f"custody.{port}"): end - 1})
    with caplog.at_level(logging.ERROR):
        async with fleet.running(port) as bridge:
            assert bridge.snapshot()["custody"]["held"] == 1
            with fleet.publisher(port) as quay:
                await quay.readings(held, range(2, 4))
                await quay.readings(given, range(2, 3))
            await handled(bridge, 3)
            assert (bridge.metrics.readings, bridge.metrics.strays) == (2, 1)
    assert f"custody.{port} has lost its first" in caplog.text
    assert fleet.sequences(port, held) == [0, 1, 2, 3]
    # The bridge has appended its lost entries to the ledger again, for those who read it later.
    await Copier(fleet, port, ship).create(f"custody.{port}")
    assert fleet.log(held) in {record.body["log"] for record in fleet.read(port, f"custody.{port}")}


async def test_a_grant_that_was_left_half_done_is_found_when_an_append_is_refused(fleet: Fleet) -> None:
    """If another bridge's marker makes an append fail, the bridge writes the marker's missing ledger entry.

    Two bridges of a site overlapped for a moment; the other one wrote the marker and never its entry.
    """
    box, port = fleet.new_box(), fleet.port
    async with fleet.running(port) as bridge:
        await opened(fleet, bridge, box, readings=2)
        marker = Marker(
            log=fleet.log(box),
            term=2,
            from_site=port,
            to_site=fleet.ship,
            event="LOAD",
            event_id="other-bridge",
            event_date_time=now().astimezone(dt.UTC),
            nonce=uuid.uuid4().hex,
        )
        async with await Cluster.open(fleet.kafka[port], client_id="other") as cluster:
            appender = Appender(cluster)
            await appender.open_term(TP(fleet.log(box)), 2, records.marker(marker))
            await appender.close()
        with fleet.publisher(port) as quay:
            await quay.readings(box, range(2, 5))
        await handled(bridge, 6)
        await until(lambda: bridge.snapshot()["custody"]["broken"] == 0, what="the missing entry")
        assert bridge.metrics.strays == 3
    entry = fleet.read(port, f"custody.{port}")[-1].body
    assert (entry["term"], entry["toSite"], entry["eventId"]) == (2, fleet.ship, "other-bridge")
    assert fleet.sequences(port, box) == [0, 1]


async def test_logs_held_by_a_site_that_is_gone_are_named(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    box, port, ship = fleet.new_box(), fleet.port, fleet.ship
    async with fleet.running(port) as bridge:
        await opened(fleet, bridge, box)
        with fleet.publisher(port) as quay:
            await quay.publish(EVENTS, fleet.event("LOAD", box))
        await handled(bridge, 2)
    scrapped = fleet.topology.model_copy(update={"sites": {port: fleet.topology.sites[port]}, "links": ()})
    with caplog.at_level(logging.ERROR):
        async with replace(fleet, topology=scrapped).running(port):
            pass
    assert f"1 logs are held by {ship}, which the topology does not have" in caplog.text
    assert "fairlead custody seize" in caplog.text
