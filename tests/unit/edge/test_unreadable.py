"""A record that nobody can read in a log that a bridge follows: it is said, and the bridge goes on."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from edge.handwork import Handwork
from edge.holdings import Holdings
from edge.strays import readable
from edge.watchside import WatchSide
from fairlead.custody import CustodyView
from fairlead.records.custody import CUSTODY_ORDERS
from fairlead.wire.record import Record
from tests.unit.edge.samples import topology

UNREADABLE = (b"", b"{}", b"nonsense", b'{"orderId":"\xff"}', b'{"x":' + b"[" * 100_000, b"\x00", b"[1]")


@pytest.mark.parametrize("value", UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_record_that_nobody_can_read_stops_nothing(value: bytes) -> None:
    record = Record(3, 1, b"k", value, ())
    holdings = Holdings("star", CustodyView())
    handwork = Handwork(
        topology(), holdings, MagicMock(), MagicMock(), MagicMock(), MagicMock(), on_held=lambda topic: None
    )
    handwork.take(CUSTODY_ORDERS, record, False)
    assert readable(record) is None
    WatchSide(topology(), "star")._take("bookings.tokyo", record, False)  # noqa: SLF001
