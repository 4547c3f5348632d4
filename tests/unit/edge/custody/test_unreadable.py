"""A record that cannot be decoded, in a log that a bridge follows, is logged and skipped."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from edge.alerts.service import AlertService
from edge.custody.handlers import OrderHandler
from edge.custody.protocol import CustodyProtocol
from edge.holdings import Holdings
from edge.strays.store import readable
from fairlead.custody.view import CustodyView
from fairlead.kafka.protocol.record import Record
from fairlead.records.custody import CUSTODY_ORDERS
from tests.support.edge.samples import topology

UNREADABLE = (b"", b"{}", b"nonsense", b'{"orderId":"\xff"}', b'{"x":' + b"[" * 100_000, b"\x00", b"[1]")


@pytest.mark.parametrize("value", UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_record_that_nobody_can_read_stops_nothing(value: bytes) -> None:
    """A record that cannot be decoded does not stop the bridge."""
    record = Record(3, 1, b"k", value, ())
    holdings = Holdings("star", CustodyView())
    protocol = CustodyProtocol(holdings, MagicMock(), sites=(), now=MagicMock(), nonce=MagicMock())
    orders = OrderHandler(topology(), MagicMock(), MagicMock(protocol=protocol))
    orders.add_order(CUSTODY_ORDERS, record, False)
    assert readable(record) is None
    AlertService(topology(), "star", MagicMock())._apply_booking("bookings.tokyo", record, False)  # noqa: SLF001
