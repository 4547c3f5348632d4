"""One direction of a line: when what is sent arrives. No sockets, and the clock is a parameter.

A packet is what the proxy takes from a connection at once, at most ``SEGMENT`` bytes where the line is thin; a larger
piece counts as so many segments. TCP repairs what is lost, so a loss is not a gap: everything behind it on the same
connection waits until it has been sent again.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final

SEGMENT: Final = 1448  # bytes of data in an Ethernet frame with TCP's timestamps
LEAST_RETRANSMISSION: Final = 0.2  # seconds: Linux's TCP_RTO_MIN
_MOST_RETRANSMISSION: Final = 60.0
_CHUNK_SECONDS: Final = 0.005  # of the line's time that one piece takes
_CHUNK_BYTES: Final = (512, 1 << 20)
_AHEAD: Final = 0.05  # seconds of data that the line takes before it lets the sender wait: its modem's buffer


@dataclass(slots=True)
class ProxyDirection:
    """One direction of a line. ``bytes`` counts what has been delivered. Everything may be changed at any time; what
    is under way keeps what counted when it was sent."""

    rate: float = 0.0  # bits per second; 0 means no limit
    delay: float = 0.0  # seconds
    jitter: float = 0.0  # seconds: each piece is delayed by up to so much more; order is kept
    loss: float = 0.0  # chance of a segment to be lost
    bytes: int = 0
    lost: int = 0  # pieces that had to be sent again
    resets: int = 0  # how many connections ``fuse`` has ended
    open: asyncio.Event = field(default_factory=asyncio.Event)
    fuse: int | None = None  # bytes until the connection that carries the last of them is reset
    chance: random.Random = field(default_factory=random.Random)
    _free_at: float = 0.0  # when everything taken so far has left

    def __post_init__(self) -> None:
        self.open.set()

    @property
    def piece(self) -> int:
        """Bytes to take at once."""
        wanted = int(self.rate / 8 * _CHUNK_SECONDS) if self.rate else 1 << 16
        return min(max(wanted, _CHUNK_BYTES[0]), _CHUNK_BYTES[1])

    @property
    def retransmission(self) -> float:
        """Seconds until a lost segment is sent again: two round trips, each way taking as long as this one."""
        return max(LEAST_RETRANSMISSION, 4 * self.delay)

    def busy_for(self, now: float) -> float:
        """Seconds until more may be taken."""
        return max(0.0, self._free_at - now - _AHEAD)

    def take(self, size: int, now: float) -> float:
        """Put ``size`` bytes on the line; when they arrive at its other end.

        On one connection nothing overtakes: whoever delivers keeps the order in which things were taken.
        """
        taken = size * 8 / self.rate if self.rate else 0.0
        self._free_at = max(self._free_at, now) + taken
        return self._free_at + self.delay + self._misfortune(size)

    def _misfortune(self, size: int) -> float:
        late = self.jitter * self.chance.random() if self.jitter else 0.0
        if self.loss and size:
            segments = -(-size // SEGMENT)
            again, wait = 1 - (1 - self.loss) ** segments, self.retransmission
            while self.chance.random() < again:  # what is sent again may be lost again; TCP then waits twice as long
                late += wait
                again, wait = self.loss, min(2 * wait, _MOST_RETRANSMISSION)
                self.lost += 1
        return late
