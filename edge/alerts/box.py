"""The state of one container for the alert rules: newest reading, limits, pending and open alerts. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from edge.alerts.thresholds import CommodityThresholds
from edge.messages import MessageId, ReadingMessage
from fairlead.detection import usual_interval
from fairlead.records.alert import Alert, AlertKind, Cause
from fairlead.records.booking import Booking

NOT_YET_STORED = -1
_DEVICES = 8  # per container; the one that reported longest ago is forgotten


@dataclass(slots=True, eq=False)
class HeardDevice:
    """The readings of one device about one container, ordered by the device's counters. Late readings change nothing.

    Args:
        first_ms, last_ms: When the first and the newest reading were received, by the site's clock.
        before_ms: When the reading before the newest was received.
        first_device_ms, last_device_ms, before_device_ms: Device times of the same readings.
        last: Identity of the newest reading.
        log: The log where the newest reading was stored.
    """

    first_ms: int
    last_ms: int
    first_device_ms: int
    last_device_ms: int
    last: MessageId
    log: str
    before_ms: int | None = None
    before_device_ms: int = 0

    def cause(self) -> Cause:
        """Return the reference to the device's newest reading for an alert."""
        device, boot, sequence = self.last
        return Cause(log=self.log, offset=NOT_YET_STORED, device_id=device, boot_id=boot, sequence=sequence)


@dataclass(slots=True, eq=False)
class ContainerState:
    """One container at the site.

    Args:
        limits: Its thresholds.
        booking: The booking in force, or None.
        booking_from_ms, booking_until_ms: The device times for which that is so.
        stream: The stream of its log; empty before its first reading.
        log: Where its readings are stored now: its own log, or the site's strays.
        held: Whether the site has custody of the container's log.
        received_ms: When its last reading was received, by the site's clock.
        heard: What was heard from each of its devices, by the device's id.
        at_ms: Device time of the newest reading.
        heard_ms: The clock of the ship or yard (``ShipState.at_ms``) when the newest reading was received; 0: unknown.
        interval_ms: The device's usual interval between readings, learnt from these; 0: not known yet.
        disturbed: Whether the newest reading shows a defrost or a pre-trip inspection.
        disturbed_ms: Device time of the last reading that showed one.
        known_from_ms: After a restart, device time of the oldest reading that was read again, if older ones of its stay
            at the site were not; 0 otherwise.
        dismissed: Alerts that a person has cleared; the same condition raises no new alert.
        pending: The memory of each rule; a rule writes under its own kind only.
        open: The newest state of each open alert.
    """

    number: str
    limits: CommodityThresholds
    booking: Booking | None = None
    booking_from_ms: float = -math.inf
    booking_until_ms: float = math.inf
    stream: str = ""
    log: str = ""
    held: bool = False
    received_ms: int = 0
    heard: dict[str, HeardDevice] = field(default_factory=dict)
    device: str = ""
    boot: int = -1
    sequence: int = -1
    at_ms: int = 0
    heard_ms: int = 0
    interval_ms: int = 0
    disturbed: bool = False
    disturbed_ms: int | None = None
    stowage: str | None = None
    newest: ReadingMessage | None = None
    known_from_ms: int = 0
    pending: dict[AlertKind, Any] = field(default_factory=dict)
    open: dict[AlertKind, Alert] = field(default_factory=dict)
    dismissed: dict[AlertKind, Alert] = field(default_factory=dict)

    def note_receipt(self, message: ReadingMessage, received_ms: int) -> None:
        """Note the receipt of a reading from its device, whether or not the reading is the newest."""
        self.received_ms = received_ms
        identity = message.identity
        known = self.heard.get(identity.device)
        if known is None:
            if len(self.heard) >= _DEVICES:
                del self.heard[min(self.heard, key=lambda device: self.heard[device].last_ms)]
            at = message.device_ms
            self.heard[identity.device] = HeardDevice(received_ms, received_ms, at, at, identity, self.log)
        elif identity > known.last:
            known.before_ms, known.before_device_ms = known.last_ms, known.last_device_ms
            known.last_ms, known.last_device_ms = received_ms, message.device_ms
            known.last, known.log = identity, self.log

    def add_reading(self, message: ReadingMessage, ship_ms: int) -> bool:
        """Apply a reading. Returns False if this one, or a newer one of its device, was applied before.

        Readings of one device are ordered by its counters. Device clocks decide only between two devices on one
        container.

        Args:
            ship_ms: The clock of the ship or yard now; 0 if it is not known.
        """
        device, boot, sequence = message.identity
        at = message.device_ms
        if device == self.device:
            if boot < self.boot or (boot == self.boot and sequence <= self.sequence):
                return False
        elif at < self.at_ms:
            return False
        if self.newest is not None:
            self.interval_ms = usual_interval(self.interval_ms, at - self.at_ms, self.limits.silence.intervals)
        self.device, self.boot, self.sequence = device, boot, sequence
        self.at_ms, self.heard_ms, self.newest = at, ship_ms, message
        reading = message.reading
        settings = reading.reefer_settings
        self.disturbed = settings.is_defrosting or settings.is_pre_trip_inspection
        if self.disturbed:
            self.disturbed_ms = at
        if reading.stowage_position is not None:
            self.stowage = reading.stowage_position
        return True

    def settled(self, at_ms: int, after_ms: int) -> bool:
        """Return whether no defrost or pre-trip inspection was reported at ``at_ms`` or in the ``after_ms`` before."""
        if self.disturbed_ms is None:
            return True
        if self.disturbed or 0 <= at_ms - self.disturbed_ms < after_ms:
            return False
        return True

    @property
    def bay(self) -> str | None:
        """The container's bay, from its stowage position; None when that is not known."""
        return self.stowage[:-4] if self.stowage is not None and len(self.stowage) in (6, 7) else None

    def cause(self, message: ReadingMessage) -> Cause:
        """Return the reference to a reading for an alert."""
        device, boot, sequence = message.identity
        return Cause(log=self.log, offset=NOT_YET_STORED, device_id=device, boot_id=boot, sequence=sequence)


def unique(causes: list[Cause]) -> tuple[Cause, ...]:
    """Return the causes in order, without repeats."""
    return tuple(dict.fromkeys(causes))
