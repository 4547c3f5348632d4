"""What a rule says about one reading, and the interface of a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from edge.detection.ship import ShipState
from edge.messages import ReadingMessage
from fairlead.records.alert import AlertKind, AlertState, Evidence, Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """One change of one incident: it begins (OPENED) or ends (CLEARED)."""

    kind: AlertKind
    severity: Severity
    state: AlertState
    evidence: tuple[Evidence, ...] = ()


class Rule(Protocol):
    """One kind of alert. Rules keep their own state per box and may be asked about any box at any time."""

    kind: AlertKind

    def see(self, message: ReadingMessage, ship: ShipState, *, open_now: bool) -> Finding | None:
        """Take a reading in; ``open_now`` says that an incident of this kind is open for the box."""

    def forget(self, number: str) -> None:
        """The box has left."""
