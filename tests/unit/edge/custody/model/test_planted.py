"""Plant faults in the shipped custody protocol: the search finds each of them."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from edge.custody import protocol
from edge.custody.protocol import CustodyProtocol, KeepTail, Steps, Transfer
from edge.errors import ReplicaBehindError
from edge.logwriter.dedup import SequenceDedup
from fairlead.records.custody import Marker
from tests.unit.edge.custody.model import store
from tests.unit.edge.custody.model.disk import Violation
from tests.unit.edge.custody.model.machine import Custody


class OpensNoLog(CustodyProtocol):
    def _open(self, transfer: Transfer) -> Steps[None]:
        raise ReplicaBehindError(f"{transfer.log} seems to have records", log=transfer.log)


class EntersNoMarker(CustodyProtocol):
    def _made_here(self, marker: Marker) -> bool:
        return False


class ForgetsWaitingEvents(CustodyProtocol):
    def is_settled(self, topic: str, event_id: str, at: dt.datetime, *, known: bool, entered: bool = False) -> bool:
        return super().is_settled(topic, event_id, at, known=True, entered=entered)


class Fault(NamedTuple):
    """``wrong`` stands in place of an attribute."""

    where: Any
    name: str
    wrong: Any


FOUND: Final = {
    "a log that has no records is not opened": Fault(store, "CustodyProtocol", OpensNoLog),
    "a seizure takes the next term": Fault(protocol, "SEIZING_TERMS", 1),
    "a return throws the tail away": Fault(protocol, "KeepTail", lambda log, _, end: KeepTail(log, end, end)),
    "what a crash left between marker and entry stays": Fault(store, "CustodyProtocol", EntersNoMarker),
    "events that wait are forgotten when others have moved the log": Fault(
        store, "CustodyProtocol", ForgetsWaitingEvents
    ),
    "readings are never late": Fault(SequenceDedup, "is_late", lambda _memory, _reading: False),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FOUND.values(), ids=FOUND)
def test_a_planted_fault_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    class Planted(Custody):  # a subclass counts its own runs
        pass

    monkeypatch.setattr(*fault)
    with pytest.raises(Violation, match=r"^I\d: |does not come to rest|stops: "):
        run_state_machine_as_test(
            Planted,
            settings=settings(
                max_examples=1_500,
                stateful_step_count=100,
                deadline=None,
                database=None,
                derandomize=True,  # the same search each time
                phases=[Phase.generate],
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
