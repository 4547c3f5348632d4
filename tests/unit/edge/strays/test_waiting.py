"""Which strays still wait: none that the marker counts as drained, none that is in its log, no event that came too
late.
"""

from __future__ import annotations

import datetime as dt
import tracemalloc

import pytest

from edge.ingest.dead_letters import dead_letter
from edge.logwriter.records import dead
from edge.messages import Rejected, RejectReason
from edge.strays.report import StrayList, find_waiting
from edge.strays.store import Refusals
from fairlead.custody.history import chain
from fairlead.custody.ledger import read_ledgers
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import marker_record
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.records import encode
from fairlead.records.edge import Stray
from tests.support.edge.samples import BOX_LOG, NOW, NOW_MS, event, reading
from tests.support.kafka.fake_broker import FakeCluster
from tests.support.kafka.fake_log import put
from tests.support.ledgers import LOG, entry

HOUR = dt.timedelta(hours=1)


def stray(sequence: int, log: str = BOX_LOG, *, hours: int = 0) -> bytes:
    return encode(Stray(log=log, payload=reading(sequence), received_date_time=NOW + hours * HOUR))


def waiting_event(event_id: str, at: dt.datetime = NOW, log: str = BOX_LOG) -> bytes:
    payload = event("LOAD", event_id=event_id, at=at)
    return encode(Stray(log=log, payload=payload, received_date_time=NOW, event=True))


def record(offset: int, value: bytes) -> Record:
    return Record(offset, 5, None, value, ())


def test_strays_below_the_mark_and_those_in_the_log_are_drained() -> None:
    """Strays that a marker counts as drained, and those that are in the log, do not wait."""
    strays = StrayList(
        [entry(1, 0, "tokyo", log=BOX_LOG), entry(2, 9, "star", log=BOX_LOG, drained={"strays.star": 3})],
        lambda log: True,
    )
    for offset in range(6):
        strays.add("strays.star", record(offset, stray(offset, hours=offset)))
    strays.add("strays.tokyo", record(0, stray(7, hours=-2)))
    strays.add("strays.tokyo", record(1, stray(8, "containers.new")))
    strays.add("strays.tokyo", record(2, b"no stray"))
    strays.add("strays.tokyo", marker_at(3))
    unsure = strays.unsure()
    assert {log: grant.drained_since for log, grant in unsure.items()} == {BOX_LOG: 9}
    strays.add_records(BOX_LOG, [record(10, reading(4)), record(11, reading(70))])
    own, new = strays.waiting()
    assert (own.log, own.holder, own.term, len(own.readings)) == (BOX_LOG, "star", 2, 3)
    assert (own.kept_at, own.oldest) == ({"star": 2, "tokyo": 1}, NOW - 2 * HOUR)
    assert (new.log, new.holder, new.term) == ("containers.new", None, None)
    old = own.longer_than(HOUR, NOW + 4 * HOUR)
    assert old is not None and [kept.site for kept in old.readings] == ["tokyo", "star"]
    assert own.longer_than(dt.timedelta(days=9), NOW) is None


def marker_at(offset: int) -> Record:
    made = marker_record(b"m", timestamp_ms=5)
    return Record(offset, 5, None, made.value, made.headers)


@pytest.mark.parametrize(
    ("event_id", "happened", "waits"),
    [("e9", NOW, True), ("e2", NOW, False), ("e9", NOW - 3 * HOUR, False), ("e9", NOW - 9 * HOUR, False)],
)
def test_an_event_waits_until_it_is_done_or_overtaken(event_id: str, happened: dt.datetime, waits: bool) -> None:
    """An event waits until it is carried out or a later one is."""
    grants = [
        entry(1, 0, "tokyo", log=BOX_LOG, event_date_time=NOW - 8 * HOUR),
        entry(2, 9, "star", log=BOX_LOG, event_date_time=NOW - 2 * HOUR),
    ]
    strays = StrayList(grants, lambda log: True)
    strays.add("strays.star", record(0, waiting_event(event_id, happened)))
    strays.add("strays.star", record(1, encode(Stray(log=BOX_LOG, payload=b"{", received_date_time=NOW, event=True))))
    assert [[kept.name for kept in each.events] for each in strays.waiting()] == ([[event_id]] if waits else [])
    assert strays.unsure() == {}


async def test_the_logs_themselves_are_asked_after_drained_since(fake: FakeCluster, cluster: Cluster) -> None:
    """Strays are searched in the logs themselves, from the offset on that a marker names."""
    log, kept, ledger = fake.log(LOG), fake.log("strays.star"), fake.log("custody.tokyo")
    for n in range(4):
        put(log, NewRecord(reading(n), timestamp_ms=5))  # the offset of the marker does not matter here
    put(kept, *(NewRecord(stray(n, LOG), timestamp_ms=5) for n in (0, 3, 8)))
    put(kept, NewRecord(stray(1, "containers.elsewhere"), timestamp_ms=5))
    entries = [entry(1, 1, "tokyo"), entry(1, 0, "tokyo", log="containers.elsewhere")]
    put(ledger, *(NewRecord(encode(each), timestamp_ms=5) for each in entries))
    ledgers = await read_ledgers(cluster, "tokyo")
    assert chain(LOG, ledgers.entries).holder == "tokyo"
    found = {each.log: len(each.readings) for each in await find_waiting(cluster, ledgers, lambda log: True)}
    # A seizure cut number 3 off from the log, although this site's copy still has it: it waits again.
    seizure = entry(17, 3, "sydney", "SEIZURE", drained_since=1)
    put(ledger, NewRecord(encode(seizure), timestamp_ms=5))
    cut = {
        each.log: len(each.readings)
        for each in await find_waiting(cluster, await read_ledgers(cluster, "tokyo"), lambda log: True)
    }
    assert cut[LOG] == 3
    # Number 0 is in the log, but before the marker, and ``drained`` alone covers what came before the marker.
    assert found == {LOG: 2, "containers.elsewhere": 1}


def test_only_refusals_of_events_that_wait_are_remembered() -> None:
    """A device can have very many events refused."""
    tracemalloc.start()
    try:
        refusals = Refusals({"old"})
        for n in range(2_000):
            refused = Rejected(RejectReason.NOT_HOLDER, "")
            letter = dead_letter("fairlead/v1/events", event("LOAD", event_id=f"{n:0100}"), refused, NOW_MS)
            refusals.add("deadletters.star", record(n, encode(letter)))
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


async def test_an_event_that_was_refused_waits_no_more(fake: FakeCluster, cluster: Cluster) -> None:
    """An event whose dead letter is not older than itself does not wait: neither one of another site, nor a new one."""
    for site in ("tokyo", "star"):
        put(fake.log(f"strays.{site}"), NewRecord(waiting_event("old"), timestamp_ms=5))
    again = Stray(log=BOX_LOG, payload=event("LOAD", event_id="again"), received_date_time=NOW + 2 * HOUR, event=True)
    put(fake.logs["strays.star"], NewRecord(encode(again), timestamp_ms=5))
    refused = [
        dead_letter("fairlead/v1/events", event("LOAD", event_id=name), Rejected(RejectReason.NOT_HOLDER, ""), NOW_MS)
        for name in ("old", "again")
    ]
    put(fake.log("deadletters.star"), *(dead(each, 5) for each in refused))
    fake.log("custody.tokyo")
    (log,) = await find_waiting(cluster, await read_ledgers(cluster, "tokyo"), lambda log: True)
    assert [(kept.site, kept.name) for kept in log.events] == [("tokyo", "old"), ("star", "again")]
