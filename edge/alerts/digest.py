"""The picture at sea: every 15 minutes, a digest of the boxes aboard that changed, in the ship's log ``digest``.

The readings of a box reach the shore when the ship berths. Until then a digest has what a reader ashore shows of each
box, in a few bytes (``fairlead.records.digest``). It says what the alert engine knows: the newest reading of each box,
whether its air is in the band, and how many of its alerts are open. Boxes of which nothing changed are left out. The
first digest after a start has all boxes, and so has one every 6 hours.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from edge.alerts.box import ContainerState
from edge.alerts.rules.reefer import TemperatureRule
from edge.alerts.ship import ShipState
from edge.logwriter.retry import retry_transient
from edge.logwriter.tail_reader import TailReader
from edge.logwriter.writer import LogWriter
from fairlead.detection import Good
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records import UNREADABLE
from fairlead.records.alert import SEVERITIES
from fairlead.records.digest import Digest, DigestBox, decode_digest, encode_digest
from fairlead.records.reading import milliseconds, moment_of

INTERVAL_S: Final = 900.0
WHOLE_EVERY: Final = 24  # digests; the others have the boxes that changed
_LOOK_EVERY_S: Final = 0.25  # a simulated ship's clock runs fast: 0.25 s of a voyage are an hour or more
_band = TemperatureRule()


class DigestMaker:
    """Decides when a digest is due, and what is in it. Without I/O.

    Args:
        imo: The ship's number.
        made_ms: The time of the newest digest in the log; 0 if there is none.
        host_s: The host's monotonic clock now.
    """

    def __init__(self, imo: str, made_ms: int, host_s: float) -> None:
        self._imo = imo
        self._ship_ms = made_ms
        self._host_s = host_s
        self._told: dict[str, DigestBox] = {}  # by number: what the digests since the start say
        self._made = 0  # digests since the start

    def is_due(self, ship_ms: int, host_s: float) -> bool:
        """Return whether 15 minutes have passed since the last digest, by the ship's clock or by the host's.

        The ship's clock is the time of its newest position. The host's clock counts when no position comes.
        """
        return self._by_ship(ship_ms) or host_s - self._host_s >= INTERVAL_S

    def make(self, ship: ShipState, now_ms: int, host_s: float) -> Digest | None:
        """Return the digest that is due; None if nothing changed. Call ``confirm`` when it is stored: until then, the
        boxes in it count as changed.

        Args:
            now_ms: The site's wall time; the digest's own time if the ship has no clock.
        """
        as_of_ms = ship.at_ms if self._by_ship(ship.at_ms) else now_ms
        self._ship_ms, self._host_s = max(self._ship_ms, ship.at_ms), host_s
        boxes = {box.number: told for box in ship.aboard.values() if (told := digest_box(box, ship)) is not None}
        self._told = {number: told for number, told in self._told.items() if number in boxes}
        whole = self._made % WHOLE_EVERY == 0
        chosen = [told for number, told in boxes.items() if whole or told != self._told.get(number)]
        if not chosen:
            return None
        return Digest(
            vessel_imo_number=self._imo,
            as_of_date_time=moment_of(as_of_ms),
            whole=whole,
            boxes=tuple(sorted(chosen, key=lambda told: told.equipment_reference)),
        )

    def confirm(self, digest: Digest) -> None:
        """Note that a digest is stored."""
        self._made += 1
        self._told |= {told.equipment_reference: told for told in digest.boxes}

    def _by_ship(self, ship_ms: int) -> bool:
        return ship_ms - self._ship_ms >= 1000 * INTERVAL_S


def digest_box(box: ContainerState, ship: ShipState) -> DigestBox | None:
    """Return what a digest says of a box; None before its first reading."""
    message = box.newest
    if message is None:
        return None
    reading = message.reading
    heard = box.heard.get(box.device)
    received_ms = heard.last_ms if heard is not None else box.received_ms
    deviation = _band.find_deviation(box, message, ship)
    severities = [alert.severity for alert in box.open.values()]
    motion = reading.motion
    return DigestBox(
        equipment_reference=box.number,
        reading_date_time=moment_of(max(0, min(box.at_ms, received_ms))),
        setpoint_temperature=reading.setpoints.temperature,
        supply_temperature=reading.measurements.supply_temperature,
        return_temperature=reading.measurements.return_temperature,
        is_connected_to_power_source=reading.is_connected_to_power_source is not False,
        is_powered=reading.is_powered is not False,
        in_band=None if deviation is None else isinstance(deviation, Good),
        is_disturbed=box.disturbed,
        door_open=motion is not None and motion.door_open,
        immersed=motion is not None and motion.immersed,
        open_alerts=len(severities),
        worst_severity=max(severities, key=SEVERITIES.index, default=None),
    )


class DigestSender:
    """Appends the digests of one ship to its log.

    Args:
        ship: The state that the alert engine keeps.
        writer: The writer of the ship's digest log.
        tails: Reads the newest digest at the start, so that a restart sends none before its time.
    """

    def __init__(self, imo: str, ship: ShipState, writer: LogWriter[int], tails: TailReader) -> None:
        self._imo = imo
        self._ship = ship
        self._writer = writer
        self._tails = tails

    async def run(self) -> None:
        """Append a digest whenever one is due, until the task is cancelled."""
        made_ms = await retry_transient(self._newest_ms, f"reading the end of {self._writer.log}")
        maker = DigestMaker(self._imo, made_ms, time.monotonic())
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if maker.is_due(self._ship.at_ms, time.monotonic()):
                digest = maker.make(self._ship, time.time_ns() // 1_000_000, time.monotonic())
                if digest is not None:
                    at_ms = milliseconds(digest.as_of_date_time)
                    await self._writer.append(record_of(digest), at_ms)
                    maker.confirm(digest)

    async def _newest_ms(self) -> int:
        """Return the time of the newest digest in the log; 0 if there is none that can be read."""
        for record in reversed((await self._tails.read(self._writer.log, 1)).records):
            if record.value is not None and is_data(record):
                with contextlib.suppress(*UNREADABLE):
                    return milliseconds(decode_digest(record.value).as_of_date_time)
        return 0


def record_of(digest: Digest) -> NewRecord:
    """Return the record of a digest. Its key is the ship's number, its time the digest's own."""
    at_ms = milliseconds(digest.as_of_date_time)
    return NewRecord(encode_digest(digest), digest.vessel_imo_number.encode(), timestamp_ms=at_ms)
