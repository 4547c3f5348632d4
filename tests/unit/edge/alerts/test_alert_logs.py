"""The draft report and a restarted alert engine, both built from a site's logs through our own Kafka client."""

from __future__ import annotations

import asyncio
import datetime as dt
from unittest.mock import MagicMock

import msgspec
import pytest
from msgspec.structs import replace

from edge.alerts.engine import AlertEngine
from edge.alerts.operator import chosen, make_report, order_for, read_alerts
from edge.alerts.service import AlertService
from edge.holdings import Holdings
from edge.logwriter import records
from edge.logwriter.tail_reader import TailReader
from edge.messages import MessageId
from edge.strays.store import StrayIndex
from fairlead.custody.view import CustodyView
from fairlead.errors import ConfigurationError
from fairlead.kafka.client.cluster import Cluster
from fairlead.records import decoder, encode
from fairlead.records.alert import Alert, AlertOrder, AlertState
from tests.support.edge.detecting import FALL, HOUR, NEIGHBOURS, Voyage, booking, environment, new_record, position
from tests.support.edge.samples import BOX, IMO, NOW, topology
from tests.support.kafka.fake_broker import FakeCluster, until
from tests.support.kafka.fake_log import begin
from tests.support.raised_alerts import RaisedAlerts
from topologies.model import Link, Topology


def alerts() -> list[Alert]:
    voyage = Voyage()
    voyage.ship()
    voyage.see(0, **FALL)
    voyage.see(HOUR, number=NEIGHBOURS[0], **FALL)
    voyage.said += voyage.engine.forget(NEIGHBOURS[0], 1)
    return voyage.said


async def test_a_report_is_made_of_what_the_logs_of_a_site_have(fake: FakeCluster, cluster: Cluster) -> None:
    """The draft report of lost containers uses what a site's logs contain."""
    said = alerts()
    begin(fake, "alerts.star", *(encode(alert) for alert in said), b"{", b'{"written":"by a later version"}')
    begin(fake, f"ships.{IMO}.environment", encode(environment(0)))
    begin(fake, "bookings.tokyo", encode(booking(commodity="toy-ducks")))
    fake.log("containers.x")
    assert await read_alerts(cluster) == said
    for wanted in (BOX, said[0].alert_id):
        report = await make_report(cluster, topology(), wanted, "PRELIMINARY")
        assert [each.equipment_reference for each in report.containers] == [BOX]
        assert report.containers[0].commodity == "toy-ducks"
        assert report.weather is not None and report.weather.wind_speed == 21.5
        assert report.ship.name == "star"


@pytest.mark.parametrize(
    ("hours", "states"),
    [(-48, ["OPENED"]), (-48, ["OPENED", "CLEARED"]), (48, ["OPENED", "CLEARED"])],
    ids=["open before", "over before", "over since"],
)
async def test_a_loss_is_reported_whatever_another_site_said_of_the_box(
    fake: FakeCluster, cluster: Cluster, hours: int, states: list[AlertState]
) -> None:
    """A box that is lost at sea is reported, although a port, whose log sorts after the ship's, raised an alert before.

    An alert of a port that is cleared counts less than the ship's, also when it is the newer one.
    """
    said = alerts()
    then = said[0].raised_date_time + dt.timedelta(hours=hours)
    ashore = [
        msgspec.structs.replace(
            said[0], alert_id=f"OVERBOARD.{BOX}.d9.1.1", raised_at="tokyo", state=state, raised_date_time=then
        )
        for state in states
    ]
    begin(fake, "alerts.star", *(encode(alert) for alert in said))
    begin(fake, "alerts.tokyo", *(encode(alert) for alert in ashore))
    report = await make_report(cluster, topology(), BOX, "PRELIMINARY")
    assert (report.ship.name, [each.equipment_reference for each in report.containers]) == ("star", [BOX])


async def test_what_another_site_writes_does_not_end_an_alert(fake: FakeCluster, cluster: Cluster) -> None:
    """A record in another site's name counts nowhere, and one with another's id not for the other's alert."""
    opened = alerts()[0]
    ended = replace(opened, state="CLEARED", revision=1)
    begin(fake, "alerts.star", encode(opened))
    begin(fake, "alerts.zulu", encode(ended), encode(own := replace(ended, raised_at="zulu")))
    found = await read_alerts(cluster)
    assert found == [opened, own]
    assert chosen(found, opened.alert_id, "star") == opened
    report = await make_report(cluster, topology(), BOX, "PRELIMINARY")
    assert report.ship.name == "star"


async def test_without_an_alert_there_is_no_report(fake: FakeCluster, cluster: Cluster) -> None:
    begin(fake, "alerts.star", *(encode(alert) for alert in alerts()))
    with pytest.raises(ConfigurationError, match="no overboard alert"):
        await make_report(cluster, topology(), "BIGU9999999", "PRELIMINARY")
    with pytest.raises(ConfigurationError, match="was cleared"):
        await make_report(cluster, topology(), NEIGHBOURS[0], "PRELIMINARY")


async def test_of_a_box_that_falls_in_a_port_there_is_no_report(fake: FakeCluster, cluster: Cluster) -> None:
    """The report of lost containers is a ship's; for a port's alert the error says so."""
    voyage = Voyage()
    voyage.engine = AlertEngine("tokyo", ashore=True)
    voyage.see(0, motion={"freeFallSeconds": 1.2, "peakG": 6.0, "tiltDegrees": 70.0, "immersed": True})
    begin(fake, "alerts.tokyo", *(encode(alert) for alert in voyage.said))
    with pytest.raises(ConfigurationError, match="raised ashore, at tokyo"):
        await make_report(cluster, topology(), BOX, "PRELIMINARY")


def linked() -> Topology:
    """Return the samples' topology with a link that brings bookings aboard."""
    plain = topology()
    link = Link(**{"from": "tokyo", "to": "star", "streams": {"bookings": "all"}, "when": "berthed"})
    return plain.model_copy(update={"links": (*plain.links, link)})


ALERTS = decoder(Alert)


async def test_an_alert_engine_knows_bookings_and_readings_before_the_first_message(
    fake: FakeCluster, cluster: Cluster
) -> None:
    """A starting alert engine knows the bookings and earlier readings before it judges its first message."""
    begin(fake, "bookings.tokyo", encode(booking(setpoint_temperature=2.0)), b"{")
    voyage, payloads = Voyage(), []
    for n in range(3):
        stray = records.stray(f"containers.{BOX}", new_record(n, n * 600, setpoints={"temperature": 4.0}))
        payloads.append(stray.value or b"")
    begin(fake, "strays.star", *payloads)
    writers = MagicMock()
    writers.strays.log, writers.strays.index = "strays.star", StrayIndex()
    for offset in (1, 2, 3):
        writers.strays.index.add(f"containers.{BOX}", offset, MessageId("d1", 1, offset))
    side = AlertService(linked(), "star", RaisedAlerts())
    side.engine.ship_reported(position(), 1)
    tails = TailReader(cluster)
    await side.catch_up(cluster, writers, Holdings("star", CustodyView()), tails)
    await tails.close()
    assert list(side.work()) == ["bookings", "orders about alerts", "digests"]
    voyage.engine, voyage.sequences = side.engine, {BOX: 2}
    [alert] = voyage.see(30 * 60, strays=True, setpoints={"temperature": 4.0})
    assert (alert.kind, alert.alert_id) == ("SETPOINT", f"SETPOINT.{BOX}.d1.1.0")


async def test_a_port_has_an_alert_engine_that_knows_its_own_bookings(fake: FakeCluster, cluster: Cluster) -> None:
    """A port's bridge watches its yard, and knows the bookings that were made at the port."""
    begin(fake, "bookings.tokyo", encode(booking(setpoint_temperature=2.0)))
    writers, view = MagicMock(), CustodyView()
    writers.strays.index = StrayIndex()
    side = AlertService(topology(), "tokyo", RaisedAlerts("tokyo"))
    await side.catch_up(cluster, writers, Holdings("tokyo", view), MagicMock())
    assert side.engine.yard is not None
    voyage = Voyage()
    voyage.engine = side.engine
    assert voyage.see(0, setpoints={"temperature": 4.0}) == []
    [alert] = voyage.see(30 * 60, setpoints={"temperature": 4.0})
    assert (alert.kind, alert.raised_at, alert.vessel_imo_number) == ("SETPOINT", "tokyo", None)


async def test_the_alert_engine_hears_of_a_box_that_is_given_away_by_whatever_means() -> None:
    """The alert engine ends the alerts of a box whose custody is granted away, by an event, by hand or for a claim."""
    ended_alerts = RaisedAlerts()
    side, writers, tails = AlertService(topology(), "star", ended_alerts), MagicMock(), MagicMock()
    holdings = Holdings("star", CustodyView(), side.on_release)
    holdings.hold(f"containers.{BOX}", 2)
    writers.strays.index = StrayIndex()
    await side.catch_up(MagicMock(), writers, holdings, tails)
    voyage = Voyage()
    voyage.engine = side.engine
    [opened] = voyage.see(0, **FALL)
    holdings.release(f"containers.{BOX}")  # as the custody code calls it after each kind of grant
    [ended] = ended_alerts.raised()
    assert (ended.alert_id, ended.state, ended.evidence[0].name) == (opened.alert_id, "CLEARED", "left")


async def test_an_order_reaches_all_who_open_alerts_of_the_site(fake: FakeCluster, cluster: Cluster) -> None:
    """An order to another site, and a record that is no order, reach nobody."""
    writers, passed_on = MagicMock(), list[AlertOrder]()
    writers.strays.index = StrayIndex()
    ended, voyage = RaisedAlerts(), Voyage()
    side = AlertService(topology(), "star", ended)
    await side.catch_up(
        cluster, writers, Holdings("star", CustodyView()), MagicMock(), on_order=[passed_on.append, passed_on.append]
    )
    voyage.engine = side.engine
    [opened] = voyage.see(0, **FALL)
    here = order_for(opened, "a drill", NOW)
    elsewhere = msgspec.structs.replace(here, at_site="tokyo")
    begin(fake, "fairlead.alerts", encode(elsewhere), b"{", encode(here))
    following = asyncio.create_task(side.work()["orders about alerts"]())
    await until(ended.raised)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert [(each.alert_id, each.state) for each in ended.raised()] == [(opened.alert_id, "CLEARED")]
    assert passed_on == [here, here]
