"""A broker that answers with retriable errors for longer than one request's timeout delays a box's messages, and loses
none.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from unittest.mock import AsyncMock

import pytest

from edge.custody import recovery
from edge.custody.blocked import BlockedLogs
from edge.holdings import CustodyState
from edge.logwriter import container, follower
from edge.logwriter import retry as patience
from edge.logwriter.container import DedupWriter
from edge.logwriter.tail_reader import TailReader
from edge.logwriter.writer import Barrier, LogEntry
from edge.messages import MessageId
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import marker_record, term_batch
from fairlead.kafka.protocol.batch import MAGIC_AT
from fairlead.kafka.protocol.errors import CorruptBatch, Fenced
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import TP, LogPosition
from fairlead.records import encode
from fairlead.records.custody import CUSTODY_ORDERS, CustodyEntry, CustodyOrder, RefusalEntry
from fairlead.records.edge import Stray
from tests.support.edge.port import Port, copied, granted_by_sydney, running
from tests.support.edge.samples import BOX_LOG, IMO, NOW, NOW_MS, reading
from tests.support.kafka.fake_broker import FakeCluster, until
from tests.support.kafka.fake_log import damage

NO_LEADER = -1
HOUR = dt.timedelta(hours=1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(patience, "LONGEST_DELAY", 0.05)
    monkeypatch.setattr(container, "FIRST_LOOK", 0.05)
    monkeypatch.setattr(recovery, "_LOOK_LATEST", 0.1)


async def test_a_box_whose_log_has_no_leader_for_a_while_is_held_again_when_it_has_one(fake: FakeCluster) -> None:
    """A log without a leader for a while is held again when it has one.

    Its readings are kept as strays meanwhile, and are appended in order.
    """
    async with running(fake, request_timeout=0.3) as port:
        port.put_event("GTIN", "gate-in")
        port.put_reading(0)
        await until(lambda: port.metrics.readings == 1)
        port.writers.box(BOX_LOG).unload()  # as after a restart: the log's tail must be read first
        fake.logs[BOX_LOG].leader = NO_LEADER
        port.put_reading(1)
        await port.until_state(CustodyState.BROKEN)
        port.put_reading(2)
        await until(lambda: port.metrics.strays == 2)
        fake.logs[BOX_LOG].leader = 0
        await port.until_state(CustodyState.HELD)
        await until(lambda: port.metrics.drained == 2)
        port.put_reading(3)
        await until(lambda: port.metrics.readings == 2)
        assert await port.readings() == [0, 1, 2, 3]


async def test_a_log_is_looked_at_again_until_its_broker_answers(fake: FakeCluster) -> None:
    """A log is checked again until its broker answers.

    The first check after a refused append meets the same error: that is no reason to give the log up.
    """
    async with running(fake, request_timeout=0.3) as port:
        port.put_event("GTIN", "gate-in")
        await port.until_state(CustodyState.HELD)
        for _ in range(2):  # also a second time within the seconds in which a refused log is not tried again
            port.writers.box(BOX_LOG).unload()
            fake.logs[BOX_LOG].leader = NO_LEADER
            port.put_reading(0)
            await port.until_state(CustodyState.BROKEN)
            target = len(fake.requests) + 10
            await until(partial(_has_asked, fake, target))  # several checks, all of which fail
            assert port.state() is CustodyState.BROKEN
            fake.logs[BOX_LOG].leader = 0
            await port.until_state(CustodyState.HELD)
        await until(lambda: port.metrics.drained == 1)
        assert await port.readings() == [0]


def _has_asked(fake: FakeCluster, times: int) -> bool:
    return len(fake.requests) > times


async def test_an_append_that_is_refused_after_a_known_seizure_breaks_no_log(fake: FakeCluster) -> None:
    """An append in flight is refused after the ledger has given the log to another site.

    The log is that site's, and not broken here.
    """
    async with running(fake) as port:
        port.put_event("GTIN", "gate-in")
        await port.until_state(CustodyState.HELD)
        copied(fake, "custody.sydney", granted_by_sydney(17, 1, "sydney", "SEIZURE"))
        await port.until_state(CustodyState.ELSEWHERE)
        assert await port.writers.box(BOX_LOG).refused(Fenced("a later term exists"), ())
        await until(lambda: port.failures or not port.writers.broken.looks)
        assert (port.state(), port.holdings.broken, port.failures) == (CustodyState.ELSEWHERE, set(), [])


async def test_a_reading_that_asks_for_more_of_its_log_waits_as_well(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reading waits if the bridge must read more of its log to judge it.

    The part of the log in memory does not tell whether the reading is new, and the rest cannot be read now.
    """
    monkeypatch.setattr("edge.logwriter.container.NEWEST", 1)
    async with running(fake, request_timeout=0.3) as port:
        port.put_event("GTIN", "gate-in")
        for sequence in (0, 5):
            port.put_reading(sequence)
        await until(lambda: port.metrics.readings == 2)
        writer = port.writers.box(BOX_LOG)
        writer.unload()
        await writer.load(1)
        fake.logs[BOX_LOG].leader = NO_LEADER
        port.put_reading(3)
        await port.until_state(CustodyState.BROKEN)
        fake.logs[BOX_LOG].leader = 0
        await port.until_state(CustodyState.HELD)
        await until(lambda: port.metrics.drained == 1)
        assert await port.readings() == [0, 5, 3]


async def test_one_log_without_a_leader_keeps_no_other_from_being_drained(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One log without a leader does not keep another from being drained.

    Both logs are drained in one pass, for which more of the first must be read than is in memory.
    """
    monkeypatch.setattr("edge.logwriter.container.NEWEST", 1)
    other = "containers.BIGU1000010"
    async with running(fake, request_timeout=0.3) as port:
        for event_id, number in (("one", "BIGU1000005"), ("two", "BIGU1000010")):
            port.put_event("GTIN", event_id, number=number)
            port.put_reading(0, number)
            port.put_reading(1, number)
        await until(lambda: port.metrics.readings == 4)
        for log in (BOX_LOG, other):
            port.holdings.mark_broken(log)
        for number in ("BIGU1000005", "BIGU1000010"):
            port.put_reading(2, number)
        await until(lambda: port.metrics.strays == 2)
        for log in (BOX_LOG, other):
            port.writers.box(log).unload()
            await port.writers.box(log).load(1)
            port.holdings.hold(log, 1)
        fake.logs[BOX_LOG].leader = NO_LEADER
        for log in (BOX_LOG, other):
            port.writers.box(log).enqueue(Barrier(port.writers.box(log).prepare))
        await until(lambda: port.failures or port.metrics.drained == 1)
        assert port.failures == []
        assert await port.readings(other) == [0, 1, 2]
        await port.until_state(CustodyState.BROKEN)
        fake.logs[BOX_LOG].leader = 0
        await until(lambda: port.failures or port.metrics.drained == 2)
        assert await port.readings() == [0, 1, 2]


async def _read_again(port: Port) -> None:
    port.put_reading(2)


async def _asked_for_more(port: Port) -> None:
    """The newest record is known, and does not tell whether the reading is new."""
    await port.writers.box(BOX_LOG).load(1)
    port.put_reading(2)


async def _drained(port: Port) -> None:
    """The newest record is known, and a stray is drained only where the log is known from its marker on."""
    writer = port.writers.box(BOX_LOG)
    port.holdings.mark_broken(BOX_LOG)
    port.put_reading(2)
    await until(lambda: port.metrics.strays == 1)
    await writer.load(1)
    port.holdings.hold(BOX_LOG, 1)
    writer.enqueue(Barrier(writer.prepare))


async def hold_two_boxes(fake: FakeCluster, other: str) -> None:
    """Run a bridge until it holds two boxes' logs with a reading each, and end it."""
    async with running(fake) as port:
        for event_id, number in (("one", "BIGU1000005"), ("two", other)):
            port.put_event("GTIN", event_id, number=number)
            port.put_reading(0, number)
        await until(lambda: port.metrics.readings == 2)


async def test_a_log_without_a_leader_keeps_no_bridge_from_starting(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A bridge starts although a log that it holds has no leader, keeps its readings, and takes it up later.

    Meanwhile the log is blocked, so the alert LOG_BLOCKED names it. Nothing is wrong with the log when it is back.
    """
    other = "BIGU1000010"
    await hold_two_boxes(fake, other)
    fake.logs[BOX_LOG].leader = NO_LEADER
    async with asyncio.timeout(10), running(fake, request_timeout=0.3) as port:
        assert port.state() is CustodyState.INCOMING
        for number in ("BIGU1000005", other):
            port.put_reading(1, number)
        await until(lambda: port.failures or (port.metrics.readings, port.metrics.strays) == (1, 1))
        logs = BlockedLogs(port.writers, port.holdings, {}, AsyncMock())

        def blocked() -> bool:
            logs.check_writers(0.0)
            return BOX_LOG in logs.since_ms

        await until(blocked)
        fake.logs[BOX_LOG].leader = 0
        await until(lambda: port.failures or port.metrics.drained == 1)
        assert (port.failures, await port.readings(), blocked()) == ([], [0, 1], False)
        assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_many_logs_without_a_leader_are_one_line_of_the_log_at_the_start(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that is down may be the only one that has thousands of them."""
    async with running(fake) as port:
        for event_id, number in (("one", "BIGU1000005"), ("two", "BIGU1000010")):
            port.put_event("GTIN", event_id, number=number)
        await until(lambda: len(port.holdings.view.held_by("tokyo")) == 2)
    for number in ("BIGU1000005", "BIGU1000010"):
        fake.logs["containers." + number].leader = NO_LEADER
    async with running(fake, request_timeout=0.3):
        found = [each for each in caplog.messages if "LEADER_NOT_AVAILABLE" in each]
        assert len(found) == 1 and "2 logs" in found[0]


async def test_a_damaged_marker_without_an_entry_keeps_no_bridge_from_starting(fake: FakeCluster) -> None:
    """A crash between the marker of a grant and its entry, and a marker that cannot be read, concern their log only."""
    async with running(fake) as port:
        port.put_event("GTIN", "gate-in")
        await port.until_state(CustodyState.HELD)
    log = fake.logs[BOX_LOG]
    assert log.append(term_batch([marker_record(b"m", timestamp_ms=1)], term=2, offset=log.end, marker=log.end))[0] == 0
    damage(log)
    async with running(fake) as port:
        assert (port.state(), port.failures) == (CustodyState.BROKEN, [])


async def test_a_log_whose_last_header_is_damaged_keeps_no_bridge_from_starting(fake: FakeCluster) -> None:
    """The ends of all logs are read together, once the broker has forgotten who wrote last."""
    other = "BIGU1000010"
    await hold_two_boxes(fake, other)
    for number in ("BIGU1000005", other):
        fake.logs["containers." + number].forget_producers()
    damage(fake.logs[BOX_LOG], at=MAGIC_AT)
    async with running(fake) as port:
        await port.until_state(CustodyState.BROKEN)
        for number in ("BIGU1000005", other):
            port.put_reading(1, number)
        await until(lambda: port.failures or (port.metrics.readings, port.metrics.strays) == (1, 1))
        assert (port.failures, await port.readings("containers." + other)) == ([], [0, 1])


@pytest.mark.parametrize(
    ("reader", "place"),
    [(_read_again, 2), (_asked_for_more, 1), (_drained, 1)],
    ids=["read again", "asked for more", "drained"],
)
async def test_a_log_with_a_damaged_batch_stops_no_other(
    fake: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    reader: Callable[[Port], Awaitable[None]],
    place: int,
) -> None:
    """A log with a damaged batch among those that are read keeps no other log waiting.

    Whether it has a reading already is not known, so its readings are strays until another start finds it whole.
    """
    monkeypatch.setattr("edge.logwriter.container.NEWEST", 1)
    other = "BIGU1000010"
    async with running(fake) as port:
        for event_id, number in (("one", "BIGU1000005"), ("two", other)):
            port.put_event("GTIN", event_id, number=number)
            for sequence in (0, 5):
                before = port.metrics.readings
                port.put_reading(sequence, number)
                await until(lambda before=before: port.metrics.readings > before)  # type: ignore[misc]
        damage(fake.logs[BOX_LOG], place)
        port.writers.box(BOX_LOG).unload()  # as after a restart
        await reader(port)
        port.put_reading(6, other)
        await port.until_state(CustodyState.BROKEN)
        await until(lambda: port.failures or (port.metrics.readings, port.metrics.strays) == (5, 1))
        assert (port.failures, port.writers.broken.looks, caplog.text.count("cannot append any more")) == ([], {}, 1)
    async with running(fake) as port:
        await port.until_state(CustodyState.BROKEN)
    damage(fake.logs[BOX_LOG], place)
    async with running(fake) as port:
        await until(lambda: port.failures or port.metrics.drained == 1)
        assert (port.failures, await port.readings()) == ([], [0, 5, 2])


async def test_a_message_that_comes_again_is_kept_where_the_copy_here_is_damaged(fake: FakeCluster) -> None:
    """It is kept as a stray although the copy may have it; the drain drops it then."""
    async with running(fake) as port:
        port.put_event("GTIN", "gate-in")
        port.put_reading(0)
        await until(lambda: port.metrics.readings == 1)
        port.put_event("LOAD", "load", at=NOW + HOUR, vesselIMONumber=IMO)
        await port.until_state(CustodyState.ELSEWHERE)
        damage(fake.logs[BOX_LOG])
        record = NewRecord(reading(0), timestamp_ms=NOW_MS)
        port.writers.box(BOX_LOG).enqueue(LogEntry(record, MessageId("d1", 1, 0), redelivered=True))
        await until(lambda: port.failures or port.metrics.strays == 1)
        assert port.failures == []


async def test_a_damaged_ledger_of_another_site_holds_up_only_what_it_may_say(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bridge starts, and goes on, without the entries behind a damaged batch.

    What it holds it appends to. It opens no log, because one of these entries may name the holder.
    """
    monkeypatch.setattr(follower, "_LOOK_FOR_LOGS", 0.01)
    other = "BIGU1000010"
    async with running(fake) as port:
        port.put_event("GTIN", "gate-in")
        await port.until_state(CustodyState.HELD)
    copied(fake, "custody.sydney", granted_by_sydney(2, 1, None, "GTOT"))
    damage(fake.logs["custody.sydney"])
    async with running(fake) as port:
        await until(lambda: port.failures or port.metrics.unread == {"custody.sydney"})
        port.put_event("GTIN", "two", number=other)
        for sequence in (0, 1):
            port.put_reading(sequence)
            await until(lambda sequence=sequence: port.failures or port.metrics.readings > sequence)  # type: ignore[misc]
        assert (port.failures, port.holdings.state("containers." + other)) == ([], CustodyState.ELSEWHERE)
        damage(fake.logs["custody.sydney"])
        await until(lambda: port.failures or port.holdings.state("containers." + other) is CustodyState.HELD)
        await until(lambda: port.failures or not port.metrics.unread)
        assert port.failures == []


@pytest.mark.parametrize("seized", [False, True])
async def test_a_strays_log_of_another_site_that_is_damaged_after_it_was_read_holds_up_only_what_is_behind(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, seized: bool
) -> None:
    """Drains read it again, as does the search for strays after a seizure; it is told once, and goes on when whole."""
    monkeypatch.setattr(follower, "_LOOK_FOR_LOGS", 0.01)
    strays = "strays.sydney"
    copied(fake, strays, *(encode(Stray(log=BOX_LOG, payload=reading(n), received_date_time=NOW)) for n in range(3)))
    async with running(fake) as port:
        damage(fake.logs[strays], 2)
        if seized:
            log = fake.log(BOX_LOG)
            for term in (17, 18):
                marker = marker_record(b"m%d" % term, timestamp_ms=1)
                assert log.append(term_batch([marker], term=term, offset=log.end, marker=log.end))[0] == 0
            given = granted_by_sydney(17, 0, "sydney", "SEIZURE"), granted_by_sydney(18, 1, "tokyo", "DISC", NOW + HOUR)
            copied(fake, "custody.sydney", *given)
        else:
            port.put_event("GTIN", "gate-in")
        await until(lambda: port.failures or port.metrics.unread == {strays})
        for sequence in (5, 6):
            await port.until_state(CustodyState.HELD)
            before = port.metrics.readings
            port.put_reading(sequence)
            await until(lambda before=before: port.failures or port.metrics.readings > before)  # type: ignore[misc]
        assert (port.failures, await port.readings(), port.metrics.strays_gone) == ([], [0, 5, 6], 0)
        assert caplog.text.count(f"{strays} is not read beyond offset 2") == 1
        damage(fake.logs[strays], 2)
        await until(lambda: port.failures or (port.metrics.drained == 3 and not port.metrics.unread))
        assert (port.failures, await port.readings()) == ([], [0, 5, 6, 1, 2])


async def test_two_readers_that_meet_one_damaged_batch_of_strays_leave_none_out(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second reader begins inside the batch: what the first has left waits all the same."""
    monkeypatch.setattr(follower, "_LOOK_FOR_LOGS", 0.01)
    strays = "strays.sydney"
    copied(fake, strays)
    log = fake.logs[strays]
    waiting = [
        NewRecord(encode(Stray(log=BOX_LOG, payload=reading(n), received_date_time=NOW)), timestamp_ms=NOW_MS)
        for n in range(3)
    ]
    assert log.append(term_batch(waiting, term=1, offset=log.end, marker=0))[0] == 0
    fake.change()
    async with running(fake) as port:
        damage(log, 1)
        find = port.custody._drainer._find  # noqa: SLF001 (else it takes two seizures at once)
        await asyncio.gather(find(BOX_LOG, strays, 1, 4), find("containers.other", strays, 3, 4))
        damage(log, 1)
        await until(lambda: not port.metrics.unread)
        port.put_event("GTIN", "gate-in")
        await until(lambda: port.failures or port.metrics.drained == 3)
        assert (port.failures, await port.readings()) == ([], [0, 1, 2])


async def test_a_bridge_does_not_start_with_a_damaged_ledger_of_its_own(fake: FakeCluster) -> None:
    """It would not know which orders it has answered, nor what it has returned."""
    async with running(fake) as port:
        port.put_event("GTIN", "gate-in")
        await port.until_state(CustodyState.HELD)
    damage(fake.logs["custody.tokyo"])
    with pytest.raises(CorruptBatch, match=r"^custody\.tokyo: "):
        async with running(fake):
            pass


async def test_a_ships_own_log_is_waited_for(fake: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """The ship's own log is waited for.

    It has no strays: the message stays unacknowledged until the log can be read.
    """
    log = "ships.9074729.location"
    fake.log(log)
    failures: list[BaseException] = []
    stored: list[int] = []
    async with await Cluster.open(fake.endpoint(), client_id="test", request_timeout=0.2) as cluster:
        appender, tails = Appender(cluster, linger=0.0), TailReader(cluster)
        await appender.ensure_open(TP(log), marker_record(b"m", timestamp_ms=1))
        writer = DedupWriter(
            log, appender, tails, settle=lambda entry, _: stored.append(entry.key.sequence), fail=failures.append
        )
        fake.logs[log].leader = NO_LEADER
        writer.enqueue(LogEntry(NewRecord(reading(7), timestamp_ms=NOW_MS), MessageId("d1", 1, 7)))
        await until(lambda: failures or "reading the end of ships" in caplog.text)  # longer than one request waits
        assert (failures, stored) == ([], [])
        fake.logs[log].leader = 0
        await until(lambda: stored or failures)
        assert (failures, stored) == ([], [7])
        await writer.close()
        await tails.close()
        await appender.close()


async def test_a_box_is_loaded_although_the_broker_restarts_at_that_moment(fake: FakeCluster) -> None:
    """A box is loaded although the broker restarts at that moment.

    The broker stops when the event is among the site's events and the marker is not written yet.
    """
    async with running(fake) as port:
        port.put_event("GTIN", "gate-in")
        port.put_reading(0)
        await until(lambda: port.metrics.readings == 1)
        away = _goes_before_the_marker(port)
        port.put_event("LOAD", "load", at=NOW + HOUR, vesselIMONumber=IMO)
        await until(lambda: port.failures or away.is_set())
        await until(lambda: port.failures or port.writers.strays.writer.busy)
        assert port.failures == []
        await fake.start(0)
        await until(lambda: port.failures or port.metrics.grants == 1)
        assert (port.failures, port.rejected) == ([], [])
        assert [(each.term, each.to_site) for each in await port.entries() if isinstance(each, CustodyEntry)] == [
            (1, "tokyo"),
            (2, "star"),
        ]
        await until(lambda: not port.writers.strays.events)


async def test_a_loading_waits_while_its_log_cannot_be_read(fake: FakeCluster) -> None:
    """A LOAD event waits while its log cannot be read.

    This site holds the log: the event is no dead letter, and is carried out when the broker serves the log.
    """
    async with running(fake, request_timeout=0.3) as port:
        port.put_event("GTIN", "gate-in")
        port.put_reading(0)
        await until(lambda: port.metrics.readings == 1)
        port.writers.box(BOX_LOG).unload()
        fake.logs[BOX_LOG].leader = NO_LEADER
        port.put_event("LOAD", "load", at=NOW + HOUR, vesselIMONumber=IMO)
        await until(lambda: port.failures or port.rejected or port.writers.strays.events)
        assert (port.failures, port.rejected) == ([], [])
        fake.logs[BOX_LOG].leader = 0
        await until(lambda: port.failures or port.metrics.grants == 1)
        assert (port.failures, port.rejected) == ([], [])


async def test_a_log_is_opened_although_the_broker_restarts_at_that_moment(fake: FakeCluster) -> None:
    async with running(fake) as port:
        away = _goes_before_the_marker(port)
        port.put_event("GTIN", "gate-in")
        await until(lambda: port.failures or away.is_set())
        await until(lambda: port.failures or port.writers.strays.writer.busy)
        assert port.failures == []
        await fake.start(0)
        await port.until_state(CustodyState.HELD)
        assert port.rejected == []


async def test_an_order_by_hand_is_carried_out_although_the_broker_restarts_at_that_moment(fake: FakeCluster) -> None:
    async with running(fake) as port:
        port.put_event("GTIN", "gate-in")
        await port.until_state(CustodyState.HELD)
        away = _goes_before_the_marker(port)
        order = CustodyOrder(
            order_id="order",
            kind="grant",
            log=BOX_LOG,
            at_site="tokyo",
            to_site="star",
            ordered_date_time=NOW + HOUR,
            ordered_by="somebody",
            reason="a test",
        )
        port.custody.orders.add_order(CUSTODY_ORDERS, Record(0, NOW_MS, None, encode(order), ()), False)
        await until(lambda: port.failures or away.is_set())
        await until(lambda: port.failures or not port.writers.box(BOX_LOG).busy)
        assert port.failures == []
        await fake.start(0)
        await until(lambda: port.failures or port.metrics.grants == 1)
        assert port.failures == []
        assert not [each for each in await port.entries() if isinstance(each, RefusalEntry)]


def _goes_before_the_marker(port: Port) -> asyncio.Event:
    """Stop the broker when the end of the box's log is next asked for."""
    position, away = port.appender.position, asyncio.Event()

    async def stop_and_ask(log: TP) -> LogPosition | None:
        if not away.is_set():
            await port.fake.stop(0)
            await until(lambda: not port.cluster.pool.connected)
            away.set()
        return await position(log)

    port.appender.position = stop_and_ask  # type: ignore[method-assign]
    return away
