"""Link policy on real brokers: priority on a saturated slow link, and berths."""

from __future__ import annotations

import datetime as dt
import secrets
import time

import pytest
from stdnum.imo import calc_check_digit

from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records import encode, headers
from fairlead.records.event import Event, EventMetadata, EventPayload, TransportEventType
from fairlead.records.reading import Device, GeoLocation
from fairlead.records.ship import MOORED, Position
from replication import berths
from replication.states import now_ms
from tests.support.replication.lab import NOW_MS, Lab, links, records, until
from topologies.model import Topology

pytestmark = pytest.mark.integration
RATE = 8000  # bytes per second: 64 kbit/s
WHEN = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


async def test_an_alert_overtakes_bulk_and_the_rate_is_kept(lab: Lab) -> None:
    urgent = "u" + lab.stream[1:]
    bulk, alert = lab.log("alpha.bulk"), f"{urgent}.alpha"
    topology = lab.topology(
        streams={lab.stream: {"priority": "bulk"}, urgent: {"priority": "urgent"}},
        links=[{"from": "alpha", "to": "beta", "rate": RATE, "streams": {lab.stream: "all", urgent: "all"}}],
    )
    await lab.make("alpha", bulk, alert)
    await lab.make("beta", bulk, alert)
    await lab.open_term("alpha", alert, term=1, at=0)
    end = await lab.open_term("alpha", bulk, term=1, at=0)
    for first in range(end, end + 400, 4):  # about 200 kB in batches of 2 kB: 25 s over this link
        batch = term_batch(records(first, 4, size=500), term=1, offset=first, marker=0)
        await lab.append("alpha", {bulk: batch})
    beta = lab.replicator(topology, "beta")
    async with lab.running(beta):
        await lab.reaches("beta", alert, 1)
        await lab.reaches("beta", bulk, 30)
        began, before = time.monotonic(), links([beta.snapshot()])["alpha->beta"]["fetched_bytes"]
        for n in range(1, 5):
            earlier = links([beta.snapshot()])["alpha->beta"]["fetched_bytes"]
            await lab.write("alpha", alert, 1, at=n)
            await lab.reaches("beta", alert, n + 1)
            # What the link was carrying and had been asked for goes first, not the backlog of twenty seconds.
            assert links([beta.snapshot()])["alpha->beta"]["fetched_bytes"] - earlier < 2 * RATE
        await lab.reaches("beta", bulk, 130)
        seconds = time.monotonic() - began
        moved = links([beta.snapshot()])["alpha->beta"]["fetched_bytes"] - before
        assert seconds > 3
        assert moved / seconds < RATE * 1.25  # the link does not catch up with a burst
        assert await lab.end("beta", bulk) < 401


async def test_a_berth_link_is_open_only_while_the_ship_is_there(lab: Lab) -> None:
    """Events of this ship at this port, in the target's own log, open and close the link; other events do not."""
    topic, always = lab.log("alpha.cargo"), lab.log("alpha.thin")
    topology = Topology.model_validate(
        {
            "name": "lab",
            "sites": {
                "alpha": {"kind": "ship", "imo": "9074729"},
                "beta": {"kind": "port", "unlocode": "JPTYO"},
                "gamma": {"kind": "port", "unlocode": "SGSIN"},
            },
            "streams": {lab.stream: {}, "events": {}},
            "links": [
                {"from": "alpha", "to": "beta", "when": "berthed", "streams": {lab.stream: ["alpha.cargo"]}},
                {"from": "alpha", "to": "beta", "streams": {lab.stream: ["alpha.thin"]}},
            ],
        }
    )
    events = "events.beta"
    await lab.make("alpha", topic, always)
    await lab.make("beta", events)
    position = await lab.end("beta", events)
    if position == 0:
        position = await lab.open_term("beta", events, term=1, at=0)

    async def happens(what: TransportEventType, port: str) -> None:
        nonlocal position
        event = Event(
            metadata=EventMetadata(
                event_id=f"{lab.stream}-{position}", event_created_date_time=WHEN, event_type="TRANSPORT", publisher="x"
            ),
            payload=EventPayload(
                event_date_time=WHEN,
                transport_event_type_code=what,
                un_location_code=port,
                vessel_imo_number="9074729",
            ),
        )
        batch = term_batch([NewRecord(encode(event), timestamp_ms=NOW_MS)], term=1, offset=position, marker=0)
        await lab.append("beta", {events: batch})
        position += 1

    await happens("DEPA", "JPTYO")  # records that other tests left behind
    end = await lab.open_term("alpha", topic, term=1, at=0)
    thin = await lab.open_term("alpha", always, term=1, at=0)
    beta = lab.replicator(topology, "beta")

    async def berth_is(state: str) -> None:
        async def so() -> bool:
            return bool(links([beta.snapshot()])["alpha->beta:berthed"]["state"] == state)

        await until(so, f"the berth link is not {state}: {links([beta.snapshot()])}")

    async with lab.running(beta):
        await lab.reaches("beta", always, thin)
        await berth_is("closed")
        assert await lab.end("beta", topic) == -1
        await happens("ARRI", "SGSIN")
        await happens("ARRI", "JPTYO")
        await berth_is("mirroring")
        await lab.reaches("beta", topic, end)
        await happens("DEPA", "JPTYO")
        await berth_is("closed")
        thin = await lab.write("alpha", always, 5, at=thin)
        await lab.write("alpha", topic, 5, at=end)
        await lab.reaches("beta", always, thin)
        assert await lab.end("beta", topic) == end
        await happens("ARRI", "JPTYO")
        await lab.reaches("beta", topic, end + 5)


async def test_a_forgotten_arrival_opens_the_berth_link_by_position(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ship's positions reach the port over the satellite link. They open the berth link when the ship lies in port,
    and close it when the ship leaves or is not heard; no event is ever published."""
    berth, sea = (35.64, 139.79), (34.9, 139.7)
    six = f"{100_000 + secrets.randbelow(900_000)}"
    imo = six + calc_check_digit(six)  # of this test only: its log must be new
    cargo, positions = lab.log("alpha.cargo"), f"ships.{imo}.location"
    topology = Topology.model_validate(
        {
            "name": "lab",
            "sites": {
                "alpha": {"kind": "ship", "imo": imo},
                "beta": {"kind": "port", "title": "Port of Tokyo", "unlocode": "JPTYO"},
            },
            "streams": {lab.stream: {}, "events": {}, "ships": {"insert_point": "ship"}},
            "links": [
                {"from": "alpha", "to": "beta", "streams": {"ships": [positions.partition(".")[2]]}},
                {"from": "alpha", "to": "beta", "when": "berthed", "streams": {lab.stream: ["alpha.cargo"]}},
            ],
        }
    )
    await lab.make("alpha", cargo, positions)
    end = await lab.open_term("alpha", cargo, term=1, at=0)
    at = await lab.open_term("alpha", positions, term=1, at=0)

    async def reports(place: tuple[float, float], hour: int, *, knots: float, status: int, age_ms: int = 0) -> None:
        nonlocal at
        position = Position(
            vessel_imo_number=imo,
            device=Device(device_id="ais", boot_id=1, sequence=at, device_date_time=WHEN + dt.timedelta(hours=hour)),
            geo_location=GeoLocation(latitude=place[0], longitude=place[1]),
            speed_over_ground=knots,
            navigation_status=status,
        )
        received = (headers.RECEIVED, b"%d" % (now_ms() - age_ms))
        record = NewRecord(encode(position), headers=(received,), timestamp_ms=NOW_MS)
        await lab.append("alpha", {positions: term_batch([record], term=1, offset=at, marker=0)})
        at += 1
        await lab.reaches("beta", positions, at)

    beta = lab.replicator(topology, "beta")

    async def berth_is(state: str, why: str) -> None:
        async def so() -> bool:
            link = links([beta.snapshot()])["alpha->beta:berthed"]
            return bool(link["state"] == state and why in link["berth"])

        await until(so, f"the berth link is not {state}, {why}: {links([beta.snapshot()])}")

    async with lab.running(beta):
        await reports(sea, 0, knots=15.0, status=0)
        await berth_is("closed", "no ARRI, position 8")
        await reports(berth, 6, knots=0.0, status=MOORED, age_ms=berths.FRESH_MS + 60_000)
        await berth_is("closed", "no position in the last 15 min")
        assert await lab.end("beta", cargo) == -1
        await reports(berth, 7, knots=0.0, status=MOORED)
        await berth_is("mirroring", "position 1.0 km from Port of Tokyo")
        end = await lab.write("alpha", cargo, 5, at=end)
        await lab.reaches("beta", cargo, end)
        await reports(sea, 20, knots=15.0, status=0)
        await berth_is("closed", "km from Port of Tokyo")
        await lab.write("alpha", cargo, 5, at=end)
        await reports(sea, 21, knots=15.0, status=0)
        assert await lab.end("beta", cargo) == end
    again = beta = lab.replicator(topology, "beta")  # reads the last positions only
    async with lab.running(again):
        await berth_is("closed", "km from Port of Tokyo")
        await reports(berth, 40, knots=0.1, status=15)
        await lab.reaches("beta", cargo, end + 5)
        monkeypatch.setattr(berths, "FRESH_MS", 1000)  # the ship is not heard any more
        await berth_is("closed", "no position in the last")
