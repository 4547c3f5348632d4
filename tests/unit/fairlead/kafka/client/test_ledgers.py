"""Reading many logs once, and ledgers out of them: entries, damaged ones, and offsets that are gone."""

from __future__ import annotations

import asyncio

from fairlead.custody.ledger import Damaged, Missing, read_ledgers
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange, extents, sweep
from fairlead.kafka.convention import filler_batch, marker_record
from fairlead.kafka.protocol.errors import BrokerError
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from fairlead.records import encode
from fairlead.waiting import in_background
from tests.support.kafka.fake_broker import FETCH, FakeCluster, until
from tests.support.kafka.fake_log import A, B, C, batch, put
from tests.support.ledgers import LOG, entry, refused


def record(value: bytes) -> NewRecord:
    return NewRecord(value, b"key", timestamp_ms=5)


async def test_many_logs_each_up_to_where_it_ended(fake: FakeCluster, cluster: Cluster) -> None:
    first, second = fake.log("log.a"), fake.log("log.b")
    fake.log("log.c")
    for offset in range(0, 30, 3):
        first.append(batch(offset, 3))
    second.append(batch(0, 5))
    wanted = await extents(cluster, [A, B, C])
    assert wanted == {A: (0, 30), B: (0, 5), C: (0, 0)}
    first.append(batch(30))
    found: dict[TP, list[int]] = {A: [], B: []}
    async for log, records in sweep(cluster, {**wanted, B: OffsetRange(2, 4)}):
        found[log] += [each.offset for each in records]
    assert found == {A: list(range(30)), B: [2, 3]}
    assert await extents(cluster, []) == {}


async def test_records_that_a_new_leader_has_not_confirmed_yet_are_waited_for(
    fake: FakeCluster, cluster: Cluster
) -> None:
    """A leader that has just been elected may serve less than the end that the one before it named. It is not asked
    over and over meanwhile."""
    log = fake.log("log.a")
    for offset in range(0, 6, 3):
        log.append(batch(offset, 3))
    wanted = await extents(cluster, [A])
    log.lag = 3
    found: list[int] = []

    async def read() -> None:
        async for _, records in sweep(cluster, wanted):
            found.extend(record.offset for record in records)

    async with in_background(read()) as reading:
        await until(lambda: len(fake.seen(FETCH)) == 2)
        for _ in range(500):
            await asyncio.sleep(0)
        assert (found, len(fake.seen(FETCH))) == ([0, 1, 2], 2)
        log.lag = 0
        fake.change()
        await reading
    assert found == [*range(6)]


async def test_a_log_that_does_not_exist_is_an_error(cluster: Cluster) -> None:
    try:
        await extents(cluster, [A])
    except BrokerError as error:
        assert error.code == 3
    else:
        raise AssertionError("there is no such log")


async def test_entries_of_all_ledgers_and_what_is_damaged(fake: FakeCluster, cluster: Cluster) -> None:
    tokyo, sydney = fake.log("custody.tokyo"), fake.log("custody.sydney")
    fake.log("events.tokyo")
    opening, other = entry(1, 0, "tokyo", "GTIN"), entry(1, 0, "tokyo", log="containers.x")
    put(
        tokyo,
        marker_record(b"m", timestamp_ms=5),
        record(encode(opening)),
        record(b"{"),
        record(b'{"entryType":"new"}'),
    )
    put(sydney, marker_record(b"m2", timestamp_ms=5), record(encode(refused("o"))), record(encode(other)))
    found = await read_ledgers(cluster, "tokyo")
    assert (found.site, found.ledgers) == ("tokyo", ("custody.sydney", "custody.tokyo"))
    assert all(each in found.entries for each in (opening, other, refused("o"))) and len(found.entries) == 3
    assert found.logs == {LOG, "containers.x"}
    assert [(each.ledger, each.offset) for each in found.damaged] == [("custody.tokyo", 2), ("custody.tokyo", 3)]
    assert isinstance(found.damaged[0], Damaged) and "new" in found.damaged[1].problem
    assert found.missing == ()
    one = await read_ledgers(cluster, "tokyo", about=LOG)
    assert all(each in one.entries for each in (opening, refused("o"))) and len(one.entries) == 2
    assert one.logs == found.logs


async def test_a_ledger_that_lost_its_beginning_or_has_fillers_says_so(fake: FakeCluster, cluster: Cluster) -> None:
    log = fake.log("custody.tokyo")
    for term in range(1, 4):
        put(log, record(encode(entry(term, term, "tokyo"))))
    assert log.append(filler_batch(2, term=1, offset=3, marker=0, timestamp_ms=5))[0] == 0
    put(log, record(encode(entry(4, 4, "tokyo"))))
    log.start, log.batches = 2, log.batches[2:]
    found = await read_ledgers(cluster, "tokyo")
    assert [each.term for each in found.entries if hasattr(each, "term")] == [3, 4]
    assert found.missing == (Missing("custody.tokyo", 0, 2), Missing("custody.tokyo", 3, 5))


async def test_a_ledger_of_which_nothing_is_left(fake: FakeCluster, cluster: Cluster) -> None:
    fake.log("custody.tokyo").start = 7
    assert (await read_ledgers(cluster, "tokyo")).missing == (Missing("custody.tokyo", 0, 7),)
