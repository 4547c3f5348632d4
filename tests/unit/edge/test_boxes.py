"""A container's lane without brokers: what is kept, what is drained, and what happens when an append is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import records
from edge.boxes import BoxLane
from edge.drain import Drainer
from edge.holdings import Custody, Holdings
from edge.lane import Control, Entry, Outcome
from edge.messages import Identity
from edge.straybook import StrayBook
from edge.strays import Strays
from edge.tails import DEPTH, LogTail
from fairlead.custody import CustodyView
from fairlead.records.custody import CustodyEntry
from fairlead.wire.errors import Fenced
from fairlead.wire.record import NewRecord, Record
from fairlead.wire.types import Appended, TopicPartition
from tests.unit.edge.samples import BOX, BOX_LOG, NOW, NOW_MS, reading

STRAYS = "strays.tokyo"


def said(sequence: int) -> NewRecord:
    return records.published(reading(sequence), key=BOX, at_ms=NOW_MS, received_ms=NOW_MS + 5)


class Kafka:
    """Logs in memory, as lanes and tails see them."""

    def __init__(self) -> None:
        self.logs: dict[str, list[Record]] = {}
        self.refuse: dict[str, Exception] = {}
        self.slow: dict[str, asyncio.Event] = {}

    def submit(
        self, log: TopicPartition, records: Sequence[NewRecord], *, term: int | None = None
    ) -> asyncio.Future[Appended]:
        return asyncio.ensure_future(self.append(log, records))

    async def append(self, log: TopicPartition, records: Sequence[NewRecord]) -> Appended:
        await asyncio.sleep(0)
        if log.topic in self.slow:
            await self.slow[log.topic].wait()
        if log.topic in self.refuse:
            raise self.refuse[log.topic]
        stored = self.logs.setdefault(log.topic, [])
        base = len(stored)
        stored += [Record(base + n, r.timestamp_ms, r.key, r.value, r.headers) for n, r in enumerate(records)]
        return Appended(base, len(records))

    async def read(self, topic: str, depth: int = DEPTH) -> LogTail:
        stored = self.logs.get(topic, [])
        floor = max(0, len(stored) - depth)
        return LogTail(0, floor, len(stored), stored[floor:])

    async def records(self, topic: str, start: int, end: int) -> AsyncIterator[Record]:
        for record in self.logs.get(topic, [])[start:end]:
            yield record


class Site:
    """One box's lane at a site, with its strays and its drainer; ``restart`` forgets all but the logs."""

    def __init__(self) -> None:
        self.kafka = Kafka()
        self.drained = 0
        self.outcomes: list[Outcome] = []
        self.failures: list[BaseException] = []
        self.restart()

    def restart(self, *, state: Custody = Custody.ELSEWHERE) -> None:
        self.holdings = Holdings("tokyo", CustodyView())
        if state is Custody.HELD:
            self.holdings.hold(BOX_LOG, 1)
        self.strays = Strays(STRAYS, self.kafka, settle=self._settled, fail=self.failures.append)
        for record in self.kafka.logs.get(STRAYS, []):
            self.strays.found(record, lambda log: 0, lambda log, event: False)
        self.lost: list[str] = []
        book = StrayBook(self.strays, (), self.holdings.view, on_stray=self.lost.append)
        drainer = Drainer(self.kafka, book, self.holdings, on_drained=self._count)  # type: ignore[arg-type]
        self.lane = BoxLane(
            BOX_LOG,
            self.kafka,
            self.kafka,  # type: ignore[arg-type]
            self.holdings,
            book,
            drainer,
            on_lost=self.lost.append,
            settle=self._settled,
            fail=self.failures.append,
        )

    def _settled(self, entry: Entry[Any], outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def _count(self, count: int) -> None:
        self.drained += count

    def put(self, sequence: int, *, redelivered: bool = False) -> None:
        self.lane.put(Entry(said(sequence), Identity("d1", 1, sequence), redelivered))

    async def quiet(self) -> None:
        while self.lane.busy or self.strays.lane.busy:
            await self.lane.idle()
            await self.strays.lane.idle()

    def stored(self) -> list[int]:
        found = (records.identity_of(record) for record in self.kafka.logs.get(BOX_LOG, []))
        return [identity.sequence for identity in found if identity is not None]

    def kept(self) -> list[int]:
        strays = (records.read_stray(record) for record in self.kafka.logs.get(STRAYS, []))
        found = (records.identity(stray.payload) for stray in strays if stray is not None)
        return [identity.sequence for identity in found if identity is not None]


async def test_strays_come_first_then_what_is_new() -> None:
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


async def test_a_stray_that_is_still_being_stored_when_custody_comes_is_not_overtaken() -> None:
    site = Site()
    site.kafka.slow[STRAYS] = asyncio.Event()
    site.put(0)
    await site.lane.idle()
    site.holdings.hold(BOX_LOG, 1)
    site.put(1)
    await asyncio.sleep(0.05)
    assert site.stored() == []
    site.kafka.slow[STRAYS].set()
    await site.quiet()
    assert (site.stored(), site.strays.index.waiting) == ([0, 1], 0)


async def test_a_stray_behind_newer_readings_is_marked_late() -> None:
    site = Site()
    site.put(1)
    await site.quiet()
    site.restart(state=Custody.HELD)
    newer = records.published(reading(5), key=BOX, at_ms=NOW_MS, received_ms=NOW_MS)
    await site.kafka.append(TopicPartition(BOX_LOG), [newer])
    site.put(6)
    await site.quiet()
    assert site.stored() == [5, 1, 6]
    assert [dict(record.headers).get("late") for record in site.kafka.logs[BOX_LOG]] == [None, b"1", None]


async def test_a_refused_append_keeps_its_readings_as_strays_in_order() -> None:
    site = Site()
    site.restart(state=Custody.HELD)
    site.put(0)
    await site.quiet()
    site.kafka.refuse[BOX_LOG] = Fenced("a later term exists")
    for sequence in (1, 2, 3):
        site.put(sequence)
    await site.quiet()
    assert site.holdings.state(BOX_LOG) is Custody.BROKEN
    assert (site.stored(), site.kept(), site.failures) == ([0], [1, 2, 3], [])
    assert site.outcomes == [Outcome.APPENDED] * 4


async def test_a_drain_that_is_refused_forgets_no_stray() -> None:
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
    site = Site()
    site.restart(state=Custody.HELD)
    site.put(0)
    await site.quiet()
    site.holdings.gave(BOX_LOG)
    site.lane.unload()
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
                site.lane.wake()
            case "give":
                await site.quiet()  # a grant is a control of the lane: it never overtakes a reading
                site.holdings.gave(BOX_LOG)
                site.lane.unload()
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
    """A message that was sent again is looked for in the copy; meanwhile the log comes here, and its memory is void."""
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
    site.lane.unload()
    go_on.set()
    await site.quiet()
    assert site.failures == []
    assert site.stored() == [1, 0, 2]
    assert site.strays.index.waiting == 0


async def test_a_message_sent_again_whose_log_comes_while_it_is_looked_for_is_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It must not become a stray of a log that is held here: nobody would drain it before the next reading."""
    site = Site()
    read = site.kafka.read

    async def comes(topic: str, depth: int = DEPTH) -> LogTail:
        found = await read(topic, depth)
        if site.holdings.state(BOX_LOG) is not Custody.HELD:
            site.holdings.hold(BOX_LOG, 2)
            site.lane.unload()
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
    """An event that moves the box is first in the lane; what it would say to be drained, the seizure has put back."""
    site = Site()
    for sequence in (0, 1, 2):
        site.put(sequence)
    await site.quiet()
    site.strays.index.drained(BOX_LOG, upto=2)  # as a marker said that the seizure has cut off
    site.holdings.view.apply(seizure(17, {}))
    site.holdings.hold(BOX_LOG, 17)
    site.lane.unload()
    site.lane.put(Control(site.lane.prepare))  # as a grant begins
    await site.quiet()
    assert (site.stored(), site.drained) == ([0, 1, 2], 3)
    site.lane.put(Control(site.lane.prepare))
    await site.quiet()
    assert (site.stored(), site.drained) == ([0, 1, 2], 3)


async def test_a_stray_that_comes_while_they_are_looked_for_anew_is_not_forgotten() -> None:
    site = Site()
    for sequence in (0, 1):
        site.put(sequence)
    await site.quiet()
    read, came = site.kafka.records, False

    async def slow(topic: str, start: int, end: int) -> AsyncIterator[Record]:
        nonlocal came
        async for record in read(topic, start, end):
            yield record
            if topic == STRAYS and not came:
                came = True
                site.strays.keep(BOX_LOG, Entry(said(2), Identity("d1", 1, 2)))
                await site.strays.lane.idle()

    site.kafka.records = slow  # type: ignore[method-assign]
    site.holdings.view.apply(seizure(17, {}))
    site.holdings.hold(BOX_LOG, 17)
    site.put(3)
    await site.quiet()
    assert (site.stored(), site.strays.index.waiting) == ([0, 1, 2, 3], 0)
