"""What a route takes from the logs, and what ends it."""

from __future__ import annotations

import pytest

from fairlead.kafka.protocol.record import Record
from fairlead.records import encode
from notify.service import _decoded
from tests.support.notices import alert


@pytest.mark.parametrize(("log", "taken"), [("alerts.tokyo", True), ("alerts.star", False), ("alerts.shore", False)])
def test_only_the_site_that_an_alert_names_is_heard(log: str, taken: bool) -> None:
    raised = alert("a")
    assert _decoded(log, Record(0, 0, None, encode(raised), ())) == (raised if taken else None)
