"""A marker that a ledger quotes is appended only if it is what the entry says."""

from __future__ import annotations

import datetime as dt

import pytest
from msgspec.structs import replace

from fairlead.records.custody import CustodyEntry
from fairlead.wire.convention import marker_record, term_batch
from fairlead.wire.record import NewRecord
from replication.placing import marker_of

NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
MARKER = bytes(term_batch([marker_record(b"{}", timestamp_ms=5)], term=3, offset=70, marker=70))
STORED = (70).to_bytes(8, "big") + MARKER[8:]
ENTRY = CustodyEntry(
    log="boxes.BIGU1234560",
    term=3,
    marker_offset=70,
    from_site="tokyo",
    to_site="duck-star",
    event="LOAD",
    event_id="1",
    event_date_time=NOW,
    granted_date_time=NOW,
    granted_by="tokyo",
    marker_batch=STORED,
)
DATA = bytes(term_batch([NewRecord(b"x", timestamp_ms=5)], term=3, offset=71, marker=70))
TWO = bytes(term_batch([NewRecord(b"x", timestamp_ms=5)] * 2, term=3, offset=70, marker=70))


def test_a_marker_goes_to_its_own_offset_as_it_was_stored() -> None:
    item = marker_of(ENTRY)
    assert item is not None
    assert (item.base, item.stop, item.term, item.marker, item.opens_term) == (70, 71, 3, 70, True)
    assert bytes(item.data) == bytes(8) + STORED[8:]


@pytest.mark.parametrize(
    "batch",
    [b"", STORED[:40], STORED[:-1], STORED + b"\0", STORED[:-2] + b"??", DATA, TWO],
    ids=["nothing", "half a header", "cut", "too long", "damaged", "no marker", "more than a marker"],
)
def test_anything_else_is_refused(batch: bytes) -> None:
    assert marker_of(replace(ENTRY, marker_batch=batch)) is None


def test_a_marker_of_another_term_is_refused() -> None:
    assert marker_of(replace(ENTRY, term=4)) is None
