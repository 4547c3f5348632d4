"""The roll call in a real bridge of a ship: custody from the ledger, a restart in the middle, record and alert."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from fairlead.records import decoder
from fairlead.records.alert import NOT_HEARD, Alert
from fairlead.records.ship import RollCall, unpack_numbers
from tests.support.edge.fleet import EVENTS, Copier, Fleet, enter, handled, now, until
from tests.support.edge.samples import device, event

pytestmark = pytest.mark.integration

ALERTS, CALLS = decoder(Alert), decoder(RollCall)


async def test_a_missing_box_is_recorded_and_alerted_until_it_is_heard_also_across_restarts(fleet: Fleet) -> None:
    ship, departed = fleet.ship, now() - dt.timedelta(hours=7)
    position_topic = f"fairlead/v1/ships/{fleet.imo}/position"

    def position(sequence: int, after_s: int = 0) -> bytes:
        gps = device(sequence, at=now() + dt.timedelta(seconds=after_s), name=ship)
        return msgspec.json.encode({"vesselIMONumber": fleet.imo, "device": gps})

    def calls() -> list[RollCall]:
        return [CALLS.decode(each.value) for each in fleet.read(ship, f"ships.{fleet.imo}.roll-calls")]

    def alerts() -> list[Alert]:
        found = [ALERTS.decode(each.value) for each in fleet.read(ship, f"alerts.{ship}")]
        return [each for each in found if each.kind == NOT_HEARD]

    with fleet.publisher(fleet.port) as quay, fleet.publisher(ship) as deck:
        async with fleet.running(fleet.port) as ashore:
            heard, missing = await enter(fleet, quay, 2)
            await quay.publish(EVENTS, fleet.event("LOAD", heard), fleet.event("LOAD", missing))
            await handled(ashore, 4)
        await Copier(fleet, fleet.port, ship).copy(f"custody.{fleet.port}")
        depa = event("DEPA", event_id="depa-1", at=departed, vesselIMONumber=fleet.imo, UNLocationCode="JPTYO")
        async with fleet.running(ship) as bridge:
            await deck.publish(EVENTS, depa)
            await deck.readings(heard, range(1))
            await handled(bridge, 2)
        async with fleet.running(ship) as bridge:  # it knows the departure and the reading from its logs
            await deck.publish(position_topic, position(0))
            await handled(bridge, 1)
            await until(lambda: len(calls()) == 1, what="the roll call")
        async with fleet.running(ship) as bridge:  # it knows what it has said
            await deck.publish(EVENTS, depa)
            await deck.readings(missing, range(1))
            await deck.publish(position_topic, position(1, 120))
            await handled(bridge, 3)
            await until(lambda: len(calls()) == 2, what="the second record")
    first, second = calls()
    assert (first.state, first.aboard, first.heard) == ("CALLED", 2, 1)
    assert unpack_numbers(first.missing) == {missing}
    assert (second.state, second.heard, second.missing) == ("COMPLETE", 2, {})
    assert [(each.state, each.equipment_reference) for each in alerts()] == [("OPENED", missing), ("CLEARED", missing)]
