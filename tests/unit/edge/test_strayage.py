from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from edge.messages import Identity
from edge.strayage import StrayAge
from edge.strays import StrayIndex
from fairlead.records import decoder
from fairlead.records.alert import Alert

LOG = "containers.BIGU1000005"


@pytest.fixture
def lanes() -> Any:
    made = MagicMock()
    made.strays.index = StrayIndex()
    made.strays.log = "strays.tokyo"
    return made


def raised(lanes: Any) -> list[Alert]:
    return [decoder(Alert).decode(call.args[0].record.value) for call in lanes.alerts.put.call_args_list]


def test_one_alert_per_log_until_its_strays_are_gone(lanes: Any) -> None:
    age = StrayAge("tokyo", lanes, limit=60)
    for offset, received in enumerate((1_000, 5_000)):
        lanes.strays.index.add(LOG, offset, Identity("d", 1, offset), received)
    age.look(60_999)
    assert raised(lanes) == []
    age.look(61_000)
    age.look(65_000)
    [opened] = raised(lanes)
    assert (opened.kind, opened.state, opened.severity) == ("STRAYS_WAITING", "OPENED", "WARNING")
    assert (opened.equipment_reference, opened.event_date_time.timestamp()) == ("BIGU1000005", 1.0)
    assert "2 readings" in opened.evidence[0].detail

    again = StrayAge("tokyo", lanes, limit=60)  # after a restart it goes on with what it has raised
    again.restore(opened)
    again.look(70_000)
    assert len(raised(lanes)) == 1
    lanes.strays.index.drained(LOG, upto=2)
    again.look(71_000)
    again.look(72_000)
    [_, cleared] = raised(lanes)
    assert (cleared.state, cleared.alert_id) == ("CLEARED", opened.alert_id)

    last = StrayAge("tokyo", lanes, limit=60)
    for alert in (opened, cleared):
        last.restore(alert)
    last.look(80_000)
    assert len(raised(lanes)) == 2
