"""A container's log writer without brokers: what becomes a stray, what is drained, and what happens when an append is
refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.custody.drain import StrayDrainer
from edge.custody.protocol import CustodyProtocol
from edge.holdings import CustodyState, Holdings
from edge.logwriter import records
from edge.logwriter.container import BrokenLogs, ContainerWriter
from edge.logwriter.tail_reader import DEPTH, LogTail
from edge.logwriter.writer import Barrier, EntryOutcome, LogEntry
from edge.messages import MessageId
from edge.metrics import Metrics
from edge.strays.store import StrayBook, Strays
from edge.writer_registry import Settlement, SiteCustody
from fairlead.custody.view import CustodyView
from fairlead.kafka.protocol.errors import Fenced
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.records.custody import CustodyEntry
from tests.support.edge.samples import BOX, BOX_LOG, NOW, NOW_MS, reading
from tests.unit.edge.logwriter.kafka_in_memory import Kafka

STRAYS = "strays.tokyo"


def said(sequence: int) -> NewRecord:
    return records.published(reading(sequence), key=BOX, at_ms=NOW_MS, received_ms=NOW_MS + 5)


class Site:
    """One box's writer at a site, with its strays and their drainer; ``restart`` forgets everything but the logs."""

    def __init__(self) -> None:
        self.kafka = Kafka()
        self.metrics = Metrics()
        self.outcomes: list[EntryOutcome] = []
        self.failures: list[BaseException] = []
        self.settlement = Settlement(self.metrics, self.failures.append)
        self.restart()

    def restart(self, *, state: CustodyState = CustodyState.ELSEWHERE) -> None:
        self.holdings = Holdings("tokyo", CustodyView())
        if state is CustodyState.HELD:
            self.holdings.hold(BOX_LOG, 1)
        self.strays = Strays(STRAYS, self.kafka, self.metrics, is_box_log=lambda log: True, fail=self.failures.append)
        for record in self.kafka.logs.get(STRAYS, []):
            self.strays.recall_record(record, lambda log: 0, lambda log, event: False)
        self.broken = BrokenLogs()
        book = self.book = StrayBook(self.strays, (), self.holdings.view)
        protocol = CustodyProtocol(self.holdings, book, sites=(), now=lambda: NOW, nonce=lambda: "n")
        kafka: Any = self.kafka
        self.drainer = StrayDrainer(protocol, self.strays, kafka, self.metrics, mock.Mock())
        self.writer = ContainerWriter(
            BOX_LOG,
            self.kafka,
            self.kafka,  # type: ignore[arg-type]
            SiteCustody(self.holdings, book, self.drainer, self.broken),
            settle=self._settled,
            fail=self.failures.append,
        )

    def _settled(self, entry: LogEntry[Any], outcome: EntryOutcome) -> None:
        self.outcomes.append(outcome)
        self.settlement.settle_reading(entry, outcome)

    @property
    def drained(self) -> int:
        return self.metrics.drained

    def put(self, sequence: int, *, redelivered: bool = False) -> None:
        self.writer.enqueue(LogEntry(said(sequence), MessageId("d1", 1, sequence), redelivered))

    async def quiet(self) -> None:
        while self.writer.busy or self.strays.writer.busy:
            await self.writer.idle()
            await self.strays.writer.idle()

    def stored(self) -> list[int]:
        found = (records.identity_of(record) for record in self.kafka.logs.get(BOX_LOG, []))
        return [identity.sequence for identity in found if identity is not None]

    def kept(self) -> list[int]:
        strays = (records.read_stray(record) for record in self.kafka.logs.get(STRAYS, []))
        found = (records.identity(stray.payload) for stray in strays if stray is not None)
        return [identity.sequence for identity in found if identity is not None]


async def test_strays_come_first_then_what_is_new() -> None:
    """When custody comes, the strays are appended before new readings."""
    site = Site()
    for sequence in (0, 1, 1, 2):
        site.put(sequence)
    await site.quiet()
    assert (site.stored(), site.kept(), site.strays.index.waiting) == ([], [0, 1, 2], 3)
    site.holdings.hold(BOX_LOG, 1)
    for sequence in (3, 2, 4):
        site.put(sequence)
    await site.quiet()
    assert (site.stored(), site.drained, site.strays.index.waiting) == ([0, 1, 2, 3, 4], 3, 0)
    first = site.kafka.logs[BOX_LOG][0]
    assert dict(first.headers) == {"received": b"%d" % (NOW_MS + 5), "origin": f"{STRAYS}@0".encode()}


async def test_strays_that_retention_has_deleted_are_counted_as_missing() -> None:
    """Strays that retention has deleted are counted as missing.

    They were acknowledged and will never be in their log, so somebody must be told.
    """
    site = Site()
    for sequence in range(4):
        site.put(sequence)
    await site.quiet()
    kept, read = site.kafka.logs[STRAYS], site.kafka.records

    async def cut_off(topic: str, start: int, end: int, *, patient: bool = True) -> AsyncIterator[Record]:
        async for record in read(topic, start, end, patient=patient):
            if topic != STRAYS or record.offset >= 2:
                yield record

    site.kafka.records = cut_off  # type: ignore[method-assign]
    site.holdings.hold(BOX_LOG, 1)
    site.put(9)
    await site.quiet()
    assert len(kept) == 4 and site.stored() == [2, 3, 9]
    assert site.metrics.strays_gone == 2


async def test_a_stray_that_is_still_being_stored_when_custody_comes_is_not_overtaken() -> None:
    """A stray that is still being stored when custody comes keeps its place before newer readings."""
    site = Site()
    site.kafka.slow[STRAYS] = asyncio.Event()
    site.put(0)
    await site.writer.idle()
    site.holdings.hold(BOX_LOG, 1)
    site.put(1)
    await asyncio.sleep(0.05)
    assert site.stored() == []
    site.kafka.slow[STRAYS].set()
    await site.quiet()
    assert (site.stored(), site.strays.index.waiting) == ([0, 1], 0)


async def test_a_stray_behind_newer_readings_is_marked_late() -> None:
    """A stray appended after newer readings is marked late."""
    site = Site()
    site.put(1)
    await site.quiet()
    site.restart(state=CustodyState.HELD)
    newer = records.published(reading(5), key=BOX, at_ms=NOW_MS, received_ms=NOW_MS)
    await site.kafka.append(TopicPartition(BOX_LOG), [newer])
    site.put(6)
    await site.quiet()
    assert site.stored() == [5, 1, 6]
    assert [dict(record.headers).get("late") for record in site.kafka.logs[BOX_LOG]] == [None, b"1", None]


async def test_a_refused_append_keeps_its_readings_as_strays_in_order() -> None:
    """A refused append keeps its readings as strays, in order."""
    site = Site()
    site.restart(state=CustodyState.HELD)
    site.put(0)
    await site.quiet()
    site.kafka.refuse[BOX_LOG] = Fenced("a later term exists")
    for sequence in (1, 2, 3):
        site.put(sequence)
    await site.quiet()
    assert site.holdings.state(BOX_LOG) is CustodyState.BROKEN
    assert (site.stored(), site.kept(), site.failures) == ([0], [1, 2, 3], [])
    assert (site.outcomes, site.metrics.strays) == ([EntryOutcome.APPENDED], 3)


async def test_a_drain_that_is_refused_forgets_no_stray() -> None:
    """A refused drain loses no stray."""
    site = Site()
    for sequence in range(3):
        site.put(sequence)
    await site.quiet()
    site.holdings.hold(BOX_LOG, 1)
    site.kafka.refuse[BOX_LOG] = Fenced("a later term exists")
    site.put(3)
    await site.quiet()
    assert (site.kept(), site.strays.index.waiting) == ([0, 1, 2, 3], 4)
    assert (site.drained, site.failures) == (0, [])


async def test_a_message_sent_again_after_the_box_left_is_not_kept_twice() -> None:
    """A message sent again after the box left is not kept twice."""
    site = Site()
    site.restart(state=CustodyState.HELD)
    site.put(0)
    await site.quiet()
    site.holdings.release(BOX_LOG)
    site.writer.unload()
    site.put(0, redelivered=True)
    site.put(1, redelivered=True)
    await site.quiet()
    assert (site.stored(), site.kept()) == ([0], [1])


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 12)),
        st.tuples(st.just("again"), st.integers(0, 12)),
        st.tuples(st.sampled_from(["hold", "give", "crash", "quiet"]), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("quiet_before_custody_moves", [True, False])
@given(steps)
async def test_every_reading_ends_in_the_log_once_however_custody_moves(
    quiet_before_custody_moves: bool, steps: list[tuple[str, int]]
) -> None:
    """However custody moves, every reading is in the log once."""
    site = Site()
    sent: set[int] = set()
    for step, sequence in steps:
        match step:
            case "put" | "again":
                site.put(sequence, redelivered=step == "again")
                sent.add(sequence)
            case "hold":
                if quiet_before_custody_moves:
                    await site.quiet()
                site.holdings.hold(BOX_LOG, 1)
            case "give":
                await site.quiet()  # a grant is a barrier of the writer: it never overtakes a reading
                site.holdings.release(BOX_LOG)
                site.writer.unload()
            case "crash":
                held = site.holdings.state(BOX_LOG)
                await site.quiet()
                site.restart(state=held)
            case _:
                await site.quiet()
    await site.quiet()
    site.holdings.hold(BOX_LOG, 1)
    site.put(99)
    await site.quiet()
    stored = site.stored()
    assert sorted(stored) == sorted({*sent, 99})
    assert site.failures == []


async def test_custody_that_comes_while_the_copy_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Custody may come while the writer searches its copy for a message that was sent again; the writer then starts its
    memory anew.
    """
    site = Site()
    looking, go_on = asyncio.Event(), asyncio.Event()
    read = site.kafka.read

    async def slow(topic: str, depth: int = DEPTH) -> LogTail:
        found = await read(topic, depth)
        looking.set()
        await go_on.wait()
        return found

    site.put(0)
    await site.quiet()
    assert site.strays.index.waiting == 1
    await site.kafka.append(TopicPartition(BOX_LOG), [said(1)])  # as a replica
    monkeypatch.setattr(site.kafka, "read", slow)
    site.put(1, redelivered=True)
    site.put(2)
    await looking.wait()
    site.holdings.hold(BOX_LOG, 2)
    site.writer.unload()
    go_on.set()
    await site.quiet()
    assert site.failures == []
    assert site.stored() == [1, 0, 2]
    assert site.strays.index.waiting == 0


async def test_a_message_sent_again_whose_log_comes_while_it_is_looked_for_is_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A repeated message whose log comes here during the search is appended.

    It must not become a stray of a log that is held here: nothing would drain it before the next reading.
    """
    site = Site()
    read = site.kafka.read

    async def comes(topic: str, depth: int = DEPTH) -> LogTail:
        found = await read(topic, depth)
        if site.holdings.state(BOX_LOG) is not CustodyState.HELD:
            site.holdings.hold(BOX_LOG, 2)
            site.writer.unload()
        return found

    monkeypatch.setattr(site.kafka, "read", comes)
    site.put(5, redelivered=True)
    await site.quiet()
    assert site.failures == []
    assert site.stored() == [5]
    assert site.strays.index.waiting == 0


def seizure(term: int, drained: dict[str, int]) -> CustodyEntry:
    return CustodyEntry(
        log=BOX_LOG,
        term=term,
        marker_offset=0,
        from_site="star",
        to_site="tokyo",
        event="SEIZURE",
        event_id=f"e{term}",
        event_date_time=NOW,
        granted_date_time=NOW,
        granted_by="tokyo",
        marker_batch=b"",
        drained=drained,
    )


async def test_after_a_seizure_nothing_is_passed_on_before_its_strays_were_looked_for_anew() -> None:
    """After a seizure, no grant is written before the log's strays were searched anew.

    The event that moves the box is first in the writer; its grant would call strays drained that the seizure has put
    back.
    """
    site = Site()
    for sequence in (0, 1, 2):
        site.put(sequence)
    await site.quiet()
    site.strays.index.drained(BOX_LOG, upto=2)  # according to a marker that the seizure has cut off
    site.holdings.view.apply(seizure(17, {}))
    site.holdings.hold(BOX_LOG, 17)
    site.writer.unload()
    site.writer.enqueue(Barrier(site.writer.prepare))  # as a grant begins
    await site.quiet()
    assert (site.stored(), site.drained) == ([0, 1, 2], 3)
    site.writer.enqueue(Barrier(site.writer.prepare))
    await site.quiet()
    assert (site.stored(), site.drained) == ([0, 1, 2], 3)


async def test_a_stray_that_comes_while_they_are_looked_for_anew_is_not_forgotten() -> None:
    """A stray that arrives during that search is not forgotten."""
    site = Site()
    for sequence in (0, 1):
        site.put(sequence)
    await site.quiet()
    read, came = site.kafka.records, False

    async def slow(topic: str, start: int, end: int, *, patient: bool = True) -> AsyncIterator[Record]:
        nonlocal came
        async for record in read(topic, start, end):
            yield record
            if topic == STRAYS and not came:
                came = True
                site.strays.keep_reading(BOX_LOG, LogEntry(said(2), MessageId("d1", 1, 2)))
                await site.strays.writer.idle()

    site.kafka.records = slow  # type: ignore[method-assign]
    site.holdings.view.apply(seizure(17, {}))
    site.holdings.hold(BOX_LOG, 17)
    site.put(3)
    await site.quiet()
    assert (site.stored(), site.strays.index.waiting) == ([0, 1, 2, 3], 0)


async def test_strays_that_another_site_has_drained_while_the_log_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another site may drain the strays while the log is read.

    The log is read before it is drained; during that an entry arrives that says all its strays are in it.
    """
    site = Site()
    site.put(20)
    await site.quiet()
    older = [records.published(reading(n), key=BOX, at_ms=NOW_MS, received_ms=NOW_MS) for n in range(10)]
    await site.kafka.append(TopicPartition(BOX_LOG), older)
    read = site.kafka.read

    async def passed_on(topic: str, depth: int = DEPTH) -> LogTail:
        if depth == DEPTH:
            site.book.passed_on(BOX_LOG, {STRAYS: 1})
        return await read(topic, depth)

    monkeypatch.setattr(site.kafka, "read", passed_on)
    site.holdings.view.apply(seizure(17, {}))  # of which nothing is known to be drained since offset 0
    site.holdings.hold(BOX_LOG, 17)
    site.put(21)
    await site.quiet()
    assert site.failures == []
    assert site.stored() == [*range(10), 21]
    assert site.strays.index.waiting == 0


blocked_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 12)),
        st.tuples(st.just("again"), st.integers(0, 12)),
        st.tuples(st.sampled_from(["block", "keep", "go on", "crash", "quiet"]), st.just(0)),
    ),
    max_size=40,
)


@given(blocked_steps)
async def test_every_reading_ends_in_the_log_once_however_often_it_is_blocked(
    steps: list[tuple[str, int]],
) -> None:
    """However often a log is blocked, every reading is in it once."""
    site = Site()
    site.restart(state=CustodyState.HELD)
    sent: dict[int, None] = {}

    def go_on() -> None:
        if (gate := site.kafka.slow.pop(BOX_LOG, None)) is not None:
            gate.set()

    for step, sequence in steps:
        match step:
            case "put" | "again":
                site.put(sequence, redelivered=step == "again")
                sent[sequence] = None
                await asyncio.sleep(0)
            case "block":
                site.kafka.slow.setdefault(BOX_LOG, asyncio.Event())
            case "keep":
                if site.writer.busy:
                    site.writer.keep_waiting()
            case "go on":
                go_on()
            case "crash":  # the append under way is not stored; its stray is
                await site.writer.close()
                await site.drainer.close()
                unsafe = {n for n in sent if n not in site.stored()}
                await site.strays.writer.idle()
                go_on()
                site.restart(state=CustodyState.HELD)
                for lost in sorted(unsafe - set(site.kept()), key=list(sent).index):
                    site.put(lost, redelivered=True)
            case _:
                go_on()
                await site.quiet()
    go_on()
    await site.quiet()
    site.put(99)
    await site.quiet()
    assert sorted(site.stored()) == sorted({*sent, 99})
    assert site.strays.index.waiting == 0
    assert (site.failures, site.writer.blocked) == ([], False)


async def test_what_is_under_way_when_a_log_is_blocked_is_kept_and_drained_once() -> None:
    """An append under way when a log is blocked is kept as a stray and drained once; each stray counts as drained."""
    site = Site()
    site.restart(state=CustodyState.HELD)
    site.put(0)
    await site.quiet()
    site.kafka.slow[BOX_LOG] = asyncio.Event()
    for sequence in (1, 2):
        site.put(sequence)
    await asyncio.sleep(0.01)
    site.writer.keep_waiting()
    site.put(3)
    await site.strays.writer.idle()
    assert (site.stored(), site.kept()) == ([0], [1, 2, 3])
    site.kafka.slow.pop(BOX_LOG).set()
    await site.quiet()
    site.put(4)
    await site.quiet()
    assert (site.stored(), site.strays.index.waiting, site.drained) == ([0, 1, 2, 3, 4], 0, 3)


async def test_a_blocked_append_that_is_refused_in_the_end_loses_and_repeats_nothing() -> None:
    """A blocked append that is refused in the end is neither lost nor stored twice."""
    site = Site()
    site.restart(state=CustodyState.HELD)
    site.kafka.slow[BOX_LOG] = asyncio.Event()
    site.put(0)
    await asyncio.sleep(0.01)
    site.writer.keep_waiting()
    site.kafka.refuse[BOX_LOG] = Fenced("a later term exists")
    site.kafka.slow.pop(BOX_LOG).set()
    await site.quiet()
    site.put(1)
    await site.quiet()
    assert site.holdings.state(BOX_LOG) is CustodyState.BROKEN
    assert (site.stored(), site.kept(), site.failures) == ([], [0, 1], [])
