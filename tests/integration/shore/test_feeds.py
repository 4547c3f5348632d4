"""Customers' feeds on a real broker have the records they are entitled to, in order, once, whatever arrives first or
fails."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import TP
from fairlead.records import headers
from shore.delta.lake import Lake
from shore.errors import JobFailedError
from shore.feeds.entitlement import order_of_feeds
from shore.feeds.readers import readers_here
from shore.maintenance import ExpiryStep, expire, maintenance_session
from shore.paths import TablePaths
from shore.sink.exactly_once import FeedSink
from shore.sink.feed_logs import appending
from shore.verify.feeds import check_feeds
from tests.integration.shore.conftest import BEFORE_FEEDS, Shore
from tests.support.feeds import followed, origins, value_of
from tests.support.shore.world import T0, World, alert, at, booking, docked, grant, reading
from topologies.model import Customer, InsertPoint, Stream

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]


def run_jobs(shore_of: Shore, **more: Any) -> None:
    """Bring everything that is in the logs now to tables and feeds."""
    shore_of.run(*BEFORE_FEEDS, **more)
    shore_of.run("feeds", **more)


def write(world: World, *boxes: int, first: int = 0, count: int = 60) -> None:
    """Write a reading a minute: the record at offset ``n + 1`` is of minute ``n``."""
    world.append(
        {world.log(world.box(b)): [reading(world.box(b), i, at(i)) for i in range(first, first + count)] for b in boxes}
    )


def feed(world: World, customer: str | None = None) -> list[Record]:
    return [record for record in world.read(f"feeds.{customer or world.customer}") if is_data(record)]


def offsets(world: World, box: int, customer: str | None = None) -> list[int]:
    return [offset for log, offset in origins(feed(world, customer)) if log == world.log(world.box(box))]


def own_table(shore_of: Shore, customer: str) -> list[tuple[int, bytes]]:
    """Return the customer's own table: offset in the feed and value."""
    rows = DeltaTable(TablePaths.of(shore_of.folder).customer(customer)).to_pyarrow_table().sort_by("feed_offset")
    return [(row["feed_offset"], row["value"].encode()) for row in rows.to_pylist()]


def movements(world: World) -> list[tuple[str, str, int]]:
    """Return what the port's authority got of this test's events, in the order of its feed."""
    told = [value_of(record) for record in feed(world, world.authority)]
    mine = [value for value in told if value["eventID"].endswith(world.tag)]
    return [(value["eventID"][:1], value["eventDateTime"][11:16], value["revision"]) for value in mine]


@pytest.mark.chaos
def test_a_booking_opens_and_closes_a_container_whenever_it_comes(shore_of: Shore, world: World) -> None:
    """Bookings add and retract a container's records, whether they arrive before or after the readings."""
    first, second = f"B1-{world.tag}", f"B2-{world.tag}"
    write(world, 0, 1, 2)
    world.append({world.bookings: [booking(first, world.customer, world.box(0), at(10), at(20))]})
    world.append({world.alerts: [alert(world.box(0), world.tag, at(15)), alert(world.box(0), world.tag, at(30))]})
    run_jobs(shore_of)
    assert offsets(world, 0) == list(range(11, 21))
    assert origins(feed(world))[0] == (world.alerts, 1)
    assert len(feed(world)) == 11

    # The second box's booking comes after its readings and has no end, so it also gives what arrives later.
    world.append({world.bookings: [booking(second, world.customer, world.box(1), at(40), None)]})
    run_jobs(shore_of)
    assert offsets(world, 1) == list(range(41, 61))
    write(world, 1, 2, first=60, count=30)
    run_jobs(shore_of)
    assert offsets(world, 1) == list(range(41, 91))

    # It ends. The first one is corrected to begin earlier, which adds what was missing and repeats nothing.
    ended = booking(second, world.customer, world.box(1), at(40), at(100), status="COMPLETED")
    widened = booking(first, world.customer, world.box(0), at(5), at(20))
    world.append({world.bookings: [ended, widened]})
    held = [grant(world.log(world.box(0)), term, world.tag, at(minute)) for term, minute in ((1, 4), (2, 6), (3, 20))]
    world.append({world.custody: held})
    write(world, 1, first=90, count=30)
    run_jobs(shore_of)
    assert offsets(world, 1) == list(range(41, 101))
    assert offsets(world, 0) == [*range(11, 21), *range(6, 11)]
    assert offsets(world, 2) == []
    assert [origin for origin in origins(feed(world)) if origin[0] == world.custody] == [(world.custody, 2)]
    assert shore_of.count("feeds") == len(feed(world)) == len(set(origins(feed(world))))

    (copy,) = [r for r in feed(world) if origins([r]) == [(world.log(world.box(0)), 11)]]
    (original,) = [r for r in world.read(world.log(world.box(0))) if r.offset == 11]
    assert (copy.value, copy.key, copy.timestamp_ms) == (original.value, original.key, original.timestamp_ms)
    assert dict(copy.headers)[headers.RECEIVED] == dict(original.headers)[headers.RECEIVED]

    # A cancellation from minute 80 on retracts what was delivered of these times, and nothing else.
    cancelled = booking(second, world.customer, world.box(1), at(80), None, status="CANCELLED")
    world.append({world.bookings: [cancelled]})
    given = len(feed(world))
    run_jobs(shore_of)
    assert len(feed(world)) == given + 20
    assert [o for log, o in origins(followed(feed(world))) if log == world.log(world.box(1))] == list(range(41, 81))
    assert shore_of.count("feeds") == len(feed(world))


@pytest.mark.chaos
def test_an_interrupted_delivery_is_completed_and_not_repeated(
    shore_of: Shore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(world, 0, 1)
    world.append(
        {world.bookings: [booking(f"B{b}-{world.tag}", world.customer, world.box(b), T0, None) for b in (0, 1)]}
    )

    topology = world.topology(authority=True, tables=True)
    world.append({world.events: [docked(f"a-{world.tag}", "ARRI", at(5))]})

    def part_way(sink: FeedSink, due: DataFrame) -> int:
        rows = due.where("log not like 'movements/%'").orderBy(*order_of_feeds()).limit(50).toArrow()
        list(appending(sink.endpoint, sink.ends, sink.own)(iter(rows.to_batches())))
        raise ConnectionError("killed between two appends")

    with monkeypatch.context() as patch:
        # The job has not begun, so the first fill delivers.
        patch.setattr(FeedSink, "append", part_way)
        with pytest.raises(ConnectionError, match="killed between two appends"):
            run_jobs(shore_of, topology=topology)
    assert len(feed(world)) == 50  # delivered, but not in table feeds yet
    assert shore_of.count("feeds") == 0
    run_jobs(shore_of, topology=topology)
    assert offsets(world, 0) == offsets(world, 1) == list(range(1, 61))
    ours = f"customer = '{world.customer}'"
    assert shore_of.sql(f"select count(*) as n from feeds where {ours}") == [{"n": 120}]  # noqa: S608
    assert len(feed(world)) == 120
    # The customer's own table and the other customer's feed and table are complete, too.
    assert own_table(shore_of, world.customer) == [(record.offset, record.value) for record in feed(world)]
    assert movements(world) == [("a", "00:05", 0)]

    # An event that comes again is delivered once; new ones follow in the order of their times.
    again = [docked(f"a-{world.tag}", "ARRI", at(5), created=7), docked(f"d-{world.tag}", "DEPA", at(30))]
    elsewhere = docked(f"b-{world.tag}", "ARRI", at(20), port="SGSIN")
    world.append({world.events: [*again, elsewhere, docked(f"c-{world.tag}", "ARRI", at(4))]})
    write(world, 0, first=60, count=5)
    run_jobs(shore_of, topology=topology)
    assert movements(world) == [("a", "00:05", 0), ("c", "00:04", 0), ("d", "00:30", 0)]
    authority = feed(world, world.authority)
    assert own_table(shore_of, world.authority) == [(record.offset, record.value) for record in authority]
    assert len(followed(authority)) == len(authority)
    assert own_table(shore_of, world.customer) == [(record.offset, record.value) for record in feed(world)]
    assert len(feed(world)) == 125


@pytest.mark.chaos
def test_two_writers_cannot_both_deliver(shore_of: Shore, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write(world, 0, count=10)
    world.append({world.bookings: [booking(f"B-{world.tag}", world.customer, world.box(0), T0, None)]})
    real = FeedSink.append

    def overtaken(sink: FeedSink, due: DataFrame) -> int:
        """Append the same records and one more as another process, then append as this one."""
        feed = TP(f"feeds.{world.customer}")
        list(appending(sink.endpoint, sink.ends, ())(iter(due.orderBy(*order_of_feeds()).toArrow().to_batches())))
        world.append({feed.topic: [NewRecord(b"theirs", timestamp_ms=1)]})
        return real(sink, due)

    with monkeypatch.context() as patch:
        patch.setattr(FeedSink, "append", overtaken)
        with pytest.raises(JobFailedError, match="another process writes this feed"):
            run_jobs(shore_of)
    run_jobs(shore_of)
    ours = [record for record in feed(world) if record.value != b"theirs"]
    assert [offset for _, offset in origins(ours)] == list(range(1, 11))


@pytest.mark.chaos
def test_a_customer_who_comes_later_gets_what_is_there(shore_of: Shore, world: World) -> None:
    """A customer who is added later gets the existing records, and so does one that gets another kind of feed."""
    write(world, 0, 1)
    newcomer = f"late-{world.tag}"
    world.append(
        {
            world.bookings: [
                booking(f"B0-{world.tag}", world.customer, world.box(0), T0, None),
                booking(f"B1-{world.tag}", newcomer, world.box(1), at(30), None),
                booking(f"B2-{world.tag}", newcomer, world.box(0), at(50), None),
            ]
        }
    )
    run_jobs(shore_of)
    assert offsets(world, 0) == list(range(1, 61))
    run_jobs(shore_of, topology=world.topology(newcomer))
    assert offsets(world, 1, newcomer) == list(range(31, 61))
    assert offsets(world, 0, newcomer) == list(range(51, 61))
    assert offsets(world, 1) == []
    write(world, 0, first=60, count=5)
    run_jobs(shore_of, topology=world.topology(newcomer))
    assert offsets(world, 0, newcomer) == list(range(51, 66))
    assert offsets(world, 0) == list(range(1, 66))
    # It leaves and comes back: it gets what came meanwhile, and what was cancelled meanwhile is retracted.
    cancelled = booking(f"B2-{world.tag}", newcomer, world.box(0), at(50), None, status="CANCELLED")
    world.append({world.bookings: [cancelled]})
    write(world, 1, first=60, count=5)
    run_jobs(shore_of)
    assert offsets(world, 1, newcomer) == list(range(31, 61))
    run_jobs(shore_of, topology=world.topology(newcomer))
    assert origins(followed(feed(world, newcomer))) == [(world.log(world.box(1)), each) for each in range(31, 66)]
    # The newcomer gets readings as hours from now on; single ones are retracted.
    coarse = world.topology(newcomer).customers | {newcomer: Customer(feed_at=world.endpoint.site, feed="coarse")}
    run_jobs(shore_of, topology=world.topology().model_copy(update={"customers": coarse}))
    assert {dict(r.headers)["origin"] for r in followed(feed(world, newcomer))} <= {
        f"hours/{world.box(box)}@{int(T0.timestamp()) // 3600}".encode() for box in (0, 1)
    }


def test_hours_stay_when_retention_has_deleted_their_readings(shore_of: Shore, world: World) -> None:
    topology, paths = world.topology(recipient=True), TablePaths.of(shore_of.folder)
    first = booking(f"B1-{world.tag}", world.customer, world.box(0), T0, None, consignee=world.recipient)
    world.append({world.bookings: [first]})
    write(world, 0, count=150)
    run_jobs(shore_of, topology=topology)
    given = feed(world, world.recipient)
    assert len(given) == 2
    assert expire(maintenance_session(shore_of.spark), paths, ExpiryStep("readings", at(24 * 60), 1)) == 150
    ended = booking(f"B2-{world.tag}", world.customer, world.box(0), at(500), at(501))
    world.append({world.bookings: [ended]})
    run_jobs(shore_of, topology=topology)
    assert feed(world, world.recipient) == given
    checked = check_feeds(readers_here(topology), world.endpoint, Lake(shore_of.spark, paths))
    assert (checked.same, checked.notes) == (True, ())
    cancelled = booking(f"B1-{world.tag}", world.customer, world.box(0), at(60), None, status="CANCELLED")
    world.append({world.bookings: [cancelled]})
    run_jobs(shore_of, topology=topology)
    assert followed(feed(world, world.recipient)) == given[:1]


def test_an_alert_that_no_feed_has_room_for_does_not_hold_up_the_feeds(shore_of: Shore, world: World) -> None:
    """Its log took it, because it was compressed."""
    box = world.box(0)
    world.append({world.bookings: [booking(f"B1-{world.tag}", world.customer, box, T0, None)]})
    world.append({world.alerts: [alert(box, world.tag, at(4))]})
    good = alert(box, world.tag, at(5))
    value = (good.value or b"")[:-1] + b',"more":"%s"}' % (b"x" * (2 << 20))
    world.append({world.alerts: [NewRecord(value, good.key, timestamp_ms=good.timestamp_ms)]}, codec=Codec.ZSTD)
    world.append({world.alerts: [alert(box, world.tag, at(6))]})
    run_jobs(shore_of)
    assert origins(feed(world)) == [(world.alerts, 1), (world.alerts, 3)]
    assert shore_of.sql("select log_offset from alerts where problem is not null") == [{"log_offset": 2}]


def test_custody_follows_the_owner_codes_of_the_topology(shore_of: Shore, world: World) -> None:
    topology, paths = world.topology(), TablePaths.of(shore_of.folder)
    world.append({world.bookings: [booking(f"B1-{world.tag}", world.customer, world.box(0), T0, None)]})
    world.append({world.custody: [grant(world.log(world.box(0)), 1, world.tag, at(4))]})
    write(world, 0, count=2)
    run_jobs(shore_of, topology=topology)
    given = {(world.log(world.box(0)), 1), (world.log(world.box(0)), 2)}
    granted = {(world.custody, 1)}
    assert set(origins(followed(feed(world)))) == given | granted
    streams = topology.streams | {world.stream: Stream(insert_point=InsertPoint.MOVES, owners=("YELU",))}
    for minute, now in ((2, topology.model_copy(update={"streams": streams})), (3, topology)):
        write(world, 0, first=minute, count=1)  # a batch follows the comparison
        given.add((world.log(world.box(0)), minute + 1))
        run_jobs(shore_of, topology=now)
        assert set(origins(followed(feed(world)))) == (given | granted if now is topology else given)
        checked = check_feeds(readers_here(now), world.endpoint, Lake(shore_of.spark, paths))
        assert (checked.same, checked.notes) == (True, ())
