"""What a rule says about a container, and the base of all rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from edge.detection.box import Box
from edge.detection.ship import ShipState
from edge.messages import ReadingMessage
from fairlead.records.alert import Alert, AlertKind, AlertState, Cause, Evidence, Severity
from fairlead.records.reading import GeoLocation


@dataclass(frozen=True, slots=True)
class Finding:
    """One change of one condition: it begins (OPENED), changes (UPDATED) or ends (CLEARED).

    Args:
        at_ms: Device time of the reading that decided it.
        causes: The readings that led to it, the condition's first one first: it names the alert for ever.
        place: Where the container was, when that is better known than by the reading.
    """

    state: AlertState
    severity: Severity
    at_ms: int
    causes: tuple[Cause, ...]
    evidence: tuple[Evidence, ...] = ()
    place: GeoLocation | None = None


class Rule:
    """One kind of alert. A rule is without state of its own: what it must remember of a container it keeps in
    ``box.pending[self.kind]``, so that it is forgotten with the container and made anew by replaying its readings.
    What it remembers must follow from the readings alone, not from ``box.open``.
    """

    kind: ClassVar[AlertKind]
    takes_late: ClassVar[bool] = False
    """Whether readings count that come after a newer one of their device."""
    by_receipt: ClassVar[bool] = False
    """Whether ``Finding.at_ms`` is the time of receipt (``Box.received_ms``), for rules that doubt devices' clocks."""

    def see(self, box: Box, message: ReadingMessage, ship: ShipState) -> Finding | None:
        """Judge a reading that ``box`` has just taken in."""
        return None

    def is_same(self, box: Box, dismissed: Alert, finding: Finding) -> bool:
        """Whether a finding that would open an alert is about the condition of one that a person has cleared."""
        return bool(finding.causes) and finding.causes[0] == dismissed.causes[0]

    def tick(self, ship: ShipState) -> Iterable[tuple[Box, Finding]]:
        """Judge what follows from time passing; called when the ship's own clock (``ship.at_ms``) has moved on."""
        return ()
