"""The marker of a refused seizure: why its entry is not written is logged, because no site learns of it without one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest

from edge.custody.protocol import CustodyProtocol, ReadMarker, ReadPosition, Steps, StoredMarker, Transfer
from edge.holdings import Holdings
from fairlead.custody.view import CustodyView
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.types import LogPosition
from fairlead.records.custody import Marker
from tests.support.edge.samples import BOX_LOG, NOW
from tests.support.ledgers import entry

ORDER = Transfer(BOX_LOG, "SEIZURE", "o1", NOW, "sydney", reason="sank", ordered_by="ann")
END = LogPosition(end=31, term=18, marker=30)


def marker(**changed: Any) -> Marker:
    made: dict[str, Any] = {
        "log": BOX_LOG,
        "term": 18,
        "from_site": "star",
        "to_site": "sydney",
        "event": "SEIZURE",
        "event_id": "o1",
        "event_date_time": NOW,
        "nonce": "n",
        "drained": {},
    }
    return Marker(**{**made, **changed})


def enter(known_term: int, position: object, stored: object) -> bool:
    """Return whether Sydney writes the entry, where the ledgers know a term and the copy is as given."""
    view = CustodyView()
    view.apply(entry(known_term, 10, "star", log=BOX_LOG))
    protocol = CustodyProtocol(
        Holdings("sydney", view), MagicMock(), sites=(), now=lambda: NOW, nonce=lambda: "", disbelieve=MagicMock()
    )
    steps: Steps[bool] = protocol.enter_refused_seizure(ORDER)
    answers: Iterator[object] = iter((position, stored))
    action = next(steps)
    try:
        while isinstance(action, ReadPosition | ReadMarker):
            answer = next(answers)
            action = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
    except StopIteration as end:
        return bool(end.value)
    return True


@pytest.mark.parametrize(
    ("known_term", "position", "stored", "why"),
    [
        (2, END, CorruptBatch(f"{BOX_LOG}: a batch is damaged"), "a batch is damaged"),
        (19, END, StoredMarker(marker(), b""), "in term 19"),
    ],
)
def test_why_no_entry_is_written_is_logged(
    known_term: int, position: object, stored: object, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert not enter(known_term, position, stored)
    [said] = [each.getMessage() for each in caplog.records]
    assert all(each in said for each in (why, BOX_LOG, "o1"))


def test_a_marker_of_another_kind_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """Almost every order that is refused was never carried out."""
    with caplog.at_level(logging.INFO):
        assert not enter(2, END, StoredMarker(marker(event="LOAD"), b""))
    assert not caplog.records
