from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from edge.logwriter import records
from edge.logwriter.writer import LogEntry
from edge.messages import MessageId
from edge.metrics import Metrics
from edge.strays.store import KeptReading, StrayBook, StrayIndex, Strays
from fairlead.custody.view import CustodyView
from fairlead.kafka.convention import filler_batch
from fairlead.kafka.protocol.record import Record, decode_batch
from fairlead.records import encode
from fairlead.records.custody import CustodyEntry
from fairlead.records.edge import Stray
from tests.support.edge.samples import reading

A, B = "containers.BIGU1000005", "containers.BIGU1000010"
OWN, OTHER = "strays.tokyo", "strays.star"
AT = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def stray(log: str, offset: int, sequence: int, *, event: bool = False) -> Record:
    kept = Stray(log=log, payload=reading(sequence), received_date_time=AT, event=event)
    return Record(offset=offset, timestamp_ms=offset, key=b"k", value=encode(kept), headers=())


def granted(log: str, term: int, drained: dict[str, int], *, since: int | None = None) -> CustodyEntry:
    return CustodyEntry(
        log=log,
        term=term,
        marker_offset=term * 10,
        from_site="star",
        to_site="tokyo",
        event="DISC",
        event_id=f"e{term}",
        event_date_time=AT,
        granted_date_time=AT,
        granted_by="star",
        marker_batch=b"",
        drained=drained,
        drained_since=since,
    )


@pytest.fixture
def view() -> CustodyView:
    return CustodyView()


@pytest.fixture
def book(view: CustodyView) -> StrayBook:
    own = MagicMock(spec=Strays)
    own.log, own.index, own.has_any_for = OWN, StrayIndex(), lambda log: log in own.index.kept
    own.is_box_log = lambda log: True
    return StrayBook(cast(Strays, own), (OTHER,), view)


def test_strays_of_other_sites_wait_until_a_marker_says_they_are_drained(book: StrayBook, view: CustodyView) -> None:
    """Strays at other sites count as waiting until a custody marker says that they are drained."""
    for offset, (log, sequence) in enumerate([(A, 0), (B, 0), (A, 1)], start=4):
        assert book.add_record(OTHER, stray(log, offset, sequence)) == log
    assert book.logs() == {A, B}
    assert book.drained(A) == {OTHER: 4}
    assert book.drained("containers.none") == {}
    view.apply(granted(A, 2, {OTHER: 6}))
    book.passed_on(A, {OTHER: 6})
    assert book.has_any_for(A)
    book.passed_on(A, {OTHER: 7})
    assert (book.has_any_for(A), book.has_any_for(B)) == (False, True)
    assert book.drained(A) == {OTHER: 7}


def test_what_a_site_is_not_trusted_with_waits_and_is_not_drained(book: StrayBook, view: CustodyView) -> None:
    """Strays of a site that is not trusted with a log wait and are not drained.

    A ship's strays wait until a ledger shows that the box was granted to the ship.
    """
    given: set[tuple[str, str]] = set()
    careful = StrayBook(book.own, (OTHER,), view, trusted=lambda strays, log: (strays, log) in given)
    careful.add_record(OTHER, stray(A, 4, 0))
    assert (careful.has_any_for(A), careful.may_drain(OTHER, A), careful.may_drain(OWN, A)) == (False, False, True)
    assert (careful.logs(), careful.drained(A)) == ({A}, {OTHER: 4})
    given.add((OTHER, A))
    assert (careful.has_any_for(A), careful.may_drain(OTHER, A)) == (True, True)


def test_what_was_drained_before_is_not_learnt_again(book: StrayBook, view: CustodyView) -> None:
    """Strays that were drained before are not added again."""
    view.apply(granted(A, 2, {OTHER: 5}))
    assert book.add_record(OTHER, stray(A, 4, 0)) is None
    assert not book.has_any_for(A)
    assert book.add_record(OTHER, stray(A, 5, 1)) == A
    assert book.has_any_for(A)


def test_what_is_behind_a_damaged_batch_counts_as_drained_only_where_it_was(book: StrayBook) -> None:
    """The next marker lets no site append a stray a second time, nor leave one out that waits behind the damage."""
    for offset, log in enumerate((A, B, A, B)):
        book.add_record(OTHER, stray(log, offset, offset))
    index = dict(book.indexes())[OTHER]
    index.drained(B, upto=4)
    book.go_back(OTHER, 1)
    assert (list(index.offsets(A)), index.waiting, book.drained(A), book.drained(B)) == ([0], 1, {OTHER: 0}, {OTHER: 4})
    index.drained(A, upto=index.end)
    assert (book.has_any_for(A), book.drained(A)) == (False, {OTHER: 1})
    assert book.add_record(OTHER, stray(A, 2, 2)) == A
    assert (list(index.offsets(A)), book.drained(A)) == ([2], {OTHER: 2})


def test_events_fillers_and_nonsense_are_nobodys_strays(book: StrayBook) -> None:
    """Events, fillers and invalid records are not counted as readings that wait."""
    book.add_record(OTHER, stray(A, 0, 0, event=True))
    [filler] = decode_batch(filler_batch(1, term=1, offset=1, marker=0, timestamp_ms=1))
    book.add_record(OTHER, filler)
    book.add_record(OTHER, Record(offset=2, timestamp_ms=0, key=None, value=b"{", headers=()))
    assert book.logs() == set()
    assert dict(book.indexes())[OTHER].end == 3


def test_a_seizure_puts_back_how_far_strays_are_drained(book: StrayBook, view: CustodyView) -> None:
    """A seizure puts back how far strays are drained, so that drained ones wait again."""
    view.apply(granted(A, 2, {OTHER: 6}))
    kept = [stray(A, offset, offset) for offset in range(8)]
    for record in kept:
        book.add_record(OTHER, record)
    assert list(dict(book.indexes())[OTHER].offsets(A)) == [6, 7]
    assert not book.is_put_back(A)
    view.apply(granted(A, 18, {OTHER: 3}, since=0))
    assert book.is_put_back(A)
    book.look_again(A, OTHER, [KeptReading(each.offset, MessageId("d1", 1, each.offset)) for each in kept])
    assert not book.is_put_back(A)
    assert list(dict(book.indexes())[OTHER].offsets(A)) == [3, 4, 5, 6, 7]
    assert book.drained(A) == {OTHER: 3}


def test_that_less_is_drained_than_was_said_shows_by_itself(book: StrayBook, view: CustodyView) -> None:
    """The book notices that fewer strays are drained than a marker said before.

    This works also where the entry of the seizure has not arrived yet, only one of a later term.
    """
    for log in (A, B):
        view.apply(granted(log, 1, {}))
    for offset, log in enumerate((A, B, A)):
        book.add_record(OTHER, stray(log, offset, offset))
    view.apply(granted(A, 2, {OTHER: 3}))
    book.passed_on(A, {OTHER: 3})
    assert not book.is_put_back(A)
    view.apply(granted(A, 19, {OTHER: 1}))
    book.passed_on(A, {OTHER: 1})
    assert (book.is_put_back(A), book.is_put_back(B)) == (True, False)


async def test_events_that_wait_are_known_again_after_a_restart() -> None:
    """Events that wait are known again after a restart."""
    stored: list[Any] = []
    failures: list[BaseException] = []

    class Sink:
        def submit(self, log: Any, given: Any, *, term: int | None = None) -> Any:
            return asyncio.ensure_future(self._append(given))

        async def _append(self, given: Any) -> Any:
            stored.extend(given)
            return MagicMock(base_offset=len(stored) - len(given))

    def strays() -> Strays:
        return Strays(OWN, Sink(), Metrics(), is_box_log=lambda log: True, fail=failures.append)

    first = strays()
    body = b'{"metadata":{"eventID":"e7","eventCreatedDateTime":"2026-03-01T00:00:00Z","eventType":"EQUIPMENT",' + (
        b'"publisher":"x"},"payload":{"eventDateTime":"2026-03-01T00:00:00Z","equipmentEventTypeCode":"LOAD"}}'
    )
    event = records.published(body, key="e7", at_ms=1, received_ms=2)
    for _ in range(2):  # the MQTT broker sends it again
        first.keep_event(A, event, "e7", AT, "fairlead/v1/events", None)
        await first.writer.idle()
    first.keep_reading(
        A, LogEntry(records.published(reading(0), key="k", at_ms=1, received_ms=2), MessageId("d1", 1, 0))
    )
    await first.writer.idle()
    assert len(stored) == 2
    assert [each.event_id for each in first.events[A]] == ["e7"]
    assert first.index.mark(A) == 1

    def recalled(done: bool) -> Strays:
        again = strays()
        for offset, record in enumerate(stored):
            kept = Record(offset, record.timestamp_ms, record.key, record.value, record.headers)
            again.recall_record(kept, lambda log: 0, lambda log, waiting: done)
        return again

    assert recalled(done=False).events == first.events
    assert recalled(done=True).events == {}
    assert list(recalled(done=True).index.offsets(A)) == [1]
    first.carried_out(A, "e7")
    assert first.events == {}
    assert failures == []
