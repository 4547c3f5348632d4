"""The log of the alerts that shore finds: each state once, whatever is killed; at other sites as at shore's own."""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from board.live import LiveLogs
from edge.alerts.operator import newest_states, read_alerts
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_data, is_marker
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records import decoder, encode
from fairlead.records.alert import Alert
from replication.replicator import Replicator
from shore.datasource import register
from shore.delta.commit import create_tables
from shore.delta.lake import Lake
from shore.feeds.look import CHANGE
from shore.feeds.readers import SHORE_LOG
from shore.jobs.checkpoint import read_checkpoint, write_checkpoint
from shore.jobs.feeds import Feeds
from shore.paths import TablePaths
from shore.sink.exactly_once import FeedSink
from shore.sink.feed_logs import create_feeds
from shore.sink.takeover import take_over
from shore.tables import TABLES
from shore.verify import verify
from tests.integration.shore.conftest import Shore
from tests.integration.shore.dying_store import settings_to_die
from tests.integration.shore.moving import copy_log, two_sites
from tests.integration.shore.victim import start
from tests.support.crashes import crash_everywhere
from tests.support.feeds import followed, value_of
from tests.support.replication.lab import until as eventually
from tests.support.shore.world import MINUTE, T0, World, booking, reading
from tests.support.tables import fill
from tests.support.waits import PATIENCE
from topologies.model import SHORE_ALERTS, Customer, Link, Topology

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]

JOBS = ("readings", "operations", "histories", "alerts")
_alert = decoder(Alert)


def log_of(world: World) -> list[Alert]:
    """Return the states of alerts about this test's containers, in the order of the log."""
    alerts = [_alert.decode(r.value or b"") for r in world.read(SHORE_ALERTS) if is_data(r)]
    mine = {world.box(index) for index in range(10)}
    return [alert for alert in alerts if alert.equipment_reference in mine]


def states(world: World, index: int) -> list[tuple[str, int]]:
    box = world.box(index)
    return [(each.state, each.revision) for each in log_of(world) if each.equipment_reference == box]


def warm(box: str, first: int, last: int, supply: float) -> list[NewRecord]:
    """Return a reading every ten minutes."""
    return [reading(box, n, T0 + 10 * n * MINUTE, supply) for n in range(first, last)]


def site_alert(box: str, site: str, at: dt.datetime) -> NewRecord:
    """Return the alert that a site raises about the condition that begins with the box's first warm reading."""
    value = Alert(
        alert_id=f"TEMPERATURE.{box}.dev-{box}.1.0",
        kind="TEMPERATURE",
        severity="ALARM",
        state="OPENED",
        equipment_reference=box,
        raised_at=site,
        event_date_time=at,
        raised_date_time=at,
    )
    return NewRecord(encode(value), box.encode(), timestamp_ms=int(at.timestamp() * 1000))


def run(shore_of: Shore, topology: Topology, *, then: bool = True) -> None:
    """Bring what is in the logs to the tables and, with ``then``, to feeds and the log of alerts."""
    shore_of.run(*JOBS, topology=topology)
    if then:
        shore_of.run("feeds", topology=topology)


def check(shore_of: Shore, topology: Topology) -> list[str]:
    (found,) = verify(shore_of.spark, topology, shore_of.world.endpoint, shore_of.folder, ["feeds"]).tables
    assert found.same is True, found
    return [f"{each.what} {each.key['log']}@{each.key['log_offset']}" for each in found.differences]


def test_an_alert_is_raised_once_and_ended_once_at_every_site(
    shore_of: Shore, kafka: Callable[..., KafkaEndpoint], tmp_path: Path
) -> None:
    """Shore tells what no site tells, kill -9 of its driver doubles nothing, another site's people see it by the ways
    by which they see sites' alerts, and the containers' owners have theirs and no others."""
    world = shore_of.world
    shores, told, later, over, lent = range(5)
    box = world.box
    owner = f"leasing-{world.tag}"
    begun = world.topology(alerts=True)
    owners = {owner: Customer(feed_at="alpha", feed="alerts", owners=("BIGU",))}
    links = (Link.model_validate({"from": "alpha", "to": "beta", "streams": {"alerts": "all"}}),)
    topology = two_sites(begun).model_copy(update={"links": links})
    topology = topology.model_copy(update={"customers": {**begun.customers, **owners}})
    topology = topology.model_copy(update={"shore": topology.shore.model_copy(update={"standby": ()})})  # type: ignore[union-attr]
    foreign = "YELU" + box(lent)[4:]

    shore_of.run("feeds", topology=begun)
    held = {each: warm(box(each), 0, 10, 9.0) for each in (shores, told, later)}
    whole = [*warm(box(over), 0, 10, 9.0), *warm(box(over), 10, 14, 4.0)]
    world.append({world.log(box(each)): found for each, found in held.items()} | {world.log(box(over)): whole})
    world.append({world.log(foreign): warm(foreign, 0, 10, 9.0)})
    world.append({world.bookings: [booking(f"B-{world.tag}", world.customer, box(shores), T0, None)]})
    world.append({world.alerts: [site_alert(box(told), world.tag, T0 + 61 * MINUTE)]})
    run(shore_of, begun, then=False)
    now = DeltaTable(TablePaths.of(shore_of.folder).table("feeds")).version()
    settings = settings_to_die(shore_of.spark, tmp_path, "feeds", now + 1, "before")
    with start(world, shore_of.folder, jobs=["feeds"], alerts=True, settings=settings) as driver:
        assert driver.wait(600) == -signal.SIGKILL  # it has appended, and the tables do not know
    assert states(world, shores) == [("OPENED", 0)]
    known = shore_of.table("feeds").select(["customer", "equipment_reference"]).to_pylist()
    assert {"customer": "shore", "equipment_reference": box(shores)} not in known
    run(shore_of, topology)
    assert [states(world, each) for each in (shores, told, later, over)] == [
        [("OPENED", 0)],
        [],  # a site has told
        [("OPENED", 0)],
        [],  # over before it could be told
    ]
    assert check(shore_of, topology) == []

    world.append({world.log(box(shores)): warm(box(shores), 10, 14, 4.0)})
    world.append({world.alerts: [site_alert(box(later), world.tag, T0 + 90 * MINUTE)]})
    run(shore_of, topology, then=False)
    assert check(shore_of, topology) == [], "what is still to be read is not missing"
    run(shore_of, topology)
    run(shore_of, topology)
    assert [states(world, each) for each in (shores, later)] == [[("OPENED", 0), ("CLEARED", 1)]] * 2
    ended = newest_states(log_of(world))["shore", f"TEMPERATURE.{box(later)}@1"]
    assert [(each.name, each.detail) for each in ended.evidence] == [
        ("told", f"{world.tag} has raised an alert about the same")
    ]
    assert check(shore_of, topology) == []

    # The owner's feed has its own boxes' alerts (also those of other tests' boxes); the customer's, what it has booked.
    mine = {box(each) for each in range(5)}
    feeds = {
        name: [value_of(r) for r in followed(r for r in world.read(f"feeds.{name}") if is_data(r))]
        for name in (owner, world.customer)
    }
    alerts = {
        name: {each["equipmentReference"] for each in found if "alertID" in each} & (mine | {foreign})
        for name, found in feeds.items()
    }
    assert alerts == {owner: {box(each) for each in (shores, told, later, over)}, world.customer: {box(shores)}}

    there = asyncio.run(seen_at(topology, "beta", kafka))
    assert [each for each in there if each.equipment_reference in mine] == log_of(world)


async def seen_at(topology: Topology, site: str, kafka: Callable[..., KafkaEndpoint]) -> list[Alert]:
    """Replicate to a site; return what ``fairlead alert list`` reads there of shore's alerts, once the board there
    shows the same."""
    stop = asyncio.Event()
    replicator = asyncio.create_task(Replicator(topology, site, kafka(site), kafka).run(stop))
    live = LiveLogs(topology, lambda: kafka(site))
    try:
        async with live.running(), await Cluster.open(kafka("alpha"), client_id="test") as source:
            wanted = await read_alerts(source, "shore")
            async with await Cluster.open(kafka(site), client_id="test") as target:
                found: list[Alert] = []

                async def there() -> bool:
                    nonlocal found
                    found = await read_alerts(target, "shore")
                    newest = newest_states(wanted)
                    known = {key: live.alert(key[1], key[0]) for key in newest}
                    return found == wanted and known == newest

                await eventually(there, "shore's alerts at the other site")
    finally:
        stop.set()
        await asyncio.wait_for(replicator, PATIENCE)
    return found


def test_a_crash_after_any_write_doubles_no_state(world: World, tmp_path: Path, spark: SparkSession) -> None:
    """Each round opens an alert, and ends the one before."""
    delivery = Delivery(world, tmp_path, spark)
    topology, rounds = world.topology(alerts=True).model_copy(update={"customers": {}}), 0

    def batch(nth: int) -> Callable[[], object]:
        nonlocal rounds
        rows = [state(delivery.box, nth, 0)] + [state(delivery.box, nth - 1, 1)] * bool(nth)
        fill(tmp_path, {"alerts_ashore": rows})
        rounds += 1
        return delivery.deliver

    def whole() -> None:
        (found,) = verify(spark, topology, world.endpoint, tmp_path, ["feeds"]).tables
        assert (found.same, found.differences) == (True, ())
        told = [(each.alert_id, each.revision) for each in log_of(world)]
        assert len(told) == len(set(told)) == 2 * rounds - 1

    assert crash_everywhere(batch, whole) == 3  # the batch, its commit, table feeds


def test_shore_goes_on_with_its_log_at_another_site(
    world: World,
    kafka: Callable[..., KafkaEndpoint],
    more_sites: Callable[..., None],
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    """The other site lacks the end of the log. Shore completes it at the same offsets, and goes on in a new term."""
    more_sites("gamma")
    there = World(kafka("gamma"), world.tag)
    delivery = Delivery(world, tmp_path, spark)
    for revision in (0, 1):
        fill(tmp_path, {"alerts_ashore": [state(delivery.box, 0, revision)]})
        delivery.deliver()
    before = world.read(SHORE_ALERTS)
    copy_log(world, there, SHORE_ALERTS, len(before) - 1)
    assert states(there, 0) == [("OPENED", 0)]
    create_feeds(there.endpoint, [each.customer for each in READERS])
    take_over(delivery.lake, there.endpoint, READERS)
    copied = there.read(SHORE_ALERTS)
    assert copied[: len(before)] == before
    assert [is_marker(record) for record in copied[len(before) :]] == [True]
    moved = Delivery(there, tmp_path, spark, lake=delivery.lake)
    fill(tmp_path, {"alerts_ashore": [state(delivery.box, 1, 0)]})
    moved.deliver()
    moved.deliver()
    assert states(there, 0) == [("OPENED", 0), ("CLEARED", 1), ("OPENED", 0)]


def test_verify_names_what_the_log_lacks_and_what_it_has_otherwise(
    world: World, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = Delivery(world, tmp_path, spark)
    topology = world.topology(alerts=True).model_copy(update={"customers": {}})
    table = SparkTable.forPath(spark, delivery.lake.paths.table("alerts_ashore"))
    site = {"log": "alerts.star", "log_offset": 1, "alert_id": state(delivery.box, 4, 0)["condition_id"]}
    # Release 0.1.0 has stored an alert of star in the name of alpha.
    site |= {"equipment_reference": delivery.box, "raised_at": "alpha", "event_date_time": T0, "payload": b"{}"}

    def store(*rows: dict[str, Any], deliver: bool) -> None:
        fill(tmp_path, {"alerts_ashore": list(rows)})
        if deliver:
            delivery.deliver()

    def found() -> set[str]:
        (check,) = verify(spark, topology, world.endpoint, tmp_path, ["feeds"]).tables
        told = [f"{each.what} {each.key['customer']} {each.key['log']}@{each.key['log_offset']}"
                for each in check.differences]  # fmt: skip
        assert (check.same, check.differing, check.notes) == (not told, len(told), ())
        assert len(told) == len(set(told))
        return {each.replace(f"/{delivery.box}/TEMPERATURE.{delivery.box}", "/") for each in told}

    store(*(state(delivery.box, nth, revision) for nth in (0, 1) for revision in (0, 1)), deliver=True)
    assert found() == set(), "alerts that were over before they could be told"
    later = state(delivery.box, 2, 1) | {"state": "OPENED"}
    store(*(state(delivery.box, nth, 0) for nth in (3, 4, 5)), later, deliver=True)
    store(state(delivery.box, 3, 1), deliver=True)
    fill(tmp_path, {"alerts": [site]})
    assert found() == {"missing shore told/@4@0"}
    delivery.deliver()
    assert found() == set()
    assert log_of(world)[-1].evidence[0].detail == "star has raised an alert about the same"
    store(state(delivery.box, 2, 0), state(delivery.box, 5, 1), deliver=False)
    assert found() == {"missing shore alerts/@2@0", "missing shore alerts/@5@1"}
    table.delete("(alert_id like '%@2' and revision = 0) or (alert_id like '%@5' and revision = 1)")
    assert found() == set()
    table.update("alert_id like '%@3' and revision = 0", {"detail": "'otherwise'"})
    assert found() == {"extra shore alerts/@3@0"}
    table.delete("alert_id like '%@3' and revision = 1")
    SparkTable.forPath(spark, delivery.lake.paths.table("alerts")).delete()
    assert found() == {"extra shore alerts/@3@0", "extra shore alerts/@3@1", "extra shore told/@4@0"}
    table.delete("alert_id like '%@3' or alert_id like '%@4'")
    assert found() == set(), "what the tables have no more stays"

    begun = Path(delivery.lake.paths.checkpoint("feeds")) / "offsets"
    shutil.copy(begun / "0", begun / "1")
    (check,) = verify(spark, topology, world.endpoint, tmp_path, ["feeds"]).tables
    assert check.same is True
    assert "job feeds works on a batch, or broke off in one" in check.notes[0]
    (begun / "1").unlink()

    def meanwhile(*asked: Any) -> Any:
        fill(tmp_path, {"alerts_ashore": [state(delivery.box, 6, 0)]})
        return read_checkpoint(*asked)

    monkeypatch.setattr("shore.verify.feeds.read_checkpoint", meanwhile)
    (check,) = verify(spark, topology, world.endpoint, tmp_path, ["feeds"]).tables
    assert check.same is True
    assert "the tables change all the time" in check.notes[0]


READERS = (SHORE_LOG,)


class Delivery:
    """Tables of one test, and the job's work for shore's log, without the jobs that fill the tables."""

    def __init__(self, world: World, folder: Path, spark: SparkSession, lake: Lake | None = None) -> None:
        self.world, self.box = world, world.box(0)
        register(spark, world.endpoint)
        self.lake = lake or Lake(spark, TablePaths.of(folder))
        if lake is None:
            create_tables(spark, {self.lake.paths.table(name): table for name, table in TABLES.items()})
            write_checkpoint(self.lake.paths, "feeds", {}, "{}")
            create_feeds(world.endpoint, [each.customer for each in READERS])

    def deliver(self) -> int:
        """Open the sink as a starting query does, and deliver what is new about the test's container."""
        change = {"kind": "alerts_ashore", "equipment_reference": self.box}
        rows = pa.Table.from_pylist([change], schema=to_arrow_schema(CHANGE, timezone="UTC"))
        sink = FeedSink.open(self.lake, self.world.endpoint, READERS)
        return Feeds(READERS, sink, None).deliver(self.lake, self.lake.spark.createDataFrame(rows))


def state(box: str, nth: int, revision: int) -> dict[str, Any]:
    """Return a row of ``alerts_ashore``."""
    at = T0 + (60 * nth + 30 * revision) * MINUTE
    return {
        "alert_id": f"TEMPERATURE.{box}@{nth}",
        "revision": revision,
        "kind": "TEMPERATURE",
        "severity": "ALARM",
        "state": "CLEARED" if revision else "OPENED",
        "equipment_reference": box,
        "log": f"boxes.{box}",
        "first_offset": nth,
        "log_offset": nth,
        "event_date_time": at,
        "reason": "recovered" if revision else "fault",
        "detail": 'it\'s "warm", 9 °C',
        "condition_id": f"TEMPERATURE.{box}.dev.1.{nth}",
    }
