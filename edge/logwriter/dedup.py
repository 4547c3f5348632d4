"""Remembers which readings a log has, by (device, boot, sequence), in bounded memory per log. Pure.

The memory is filled from the log's tail, then from every append. Sequences are kept as runs (first, last), so a device
that counts without gaps costs two integers. A reading is a repeat, new, or undecided. Undecided means that it may be in
the part of the log that has not been read; the caller then reads further back. Only a reading that was seen is a
repeat, because a reading wrongly dropped as one would be lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from enum import Enum
from typing import ClassVar, Generic, TypeVar

from edge.messages import MessageId

MAX_RUNS = 512
MAX_BOOTS = 16
MAX_DEVICES = 16

H = TypeVar("H", bound=Hashable)


class DedupResult(Enum):
    NEW = "new"
    REPEAT = "repeat"
    UNDECIDED = "undecided"


class _DeviceRuns:
    """The readings of one device: runs by boot, with ``runs`` those of its newest boot.

    ``anchored``: at least one known reading was the device's newest when it was appended, that is, not late.
    """

    __slots__ = ("anchored", "boot", "older", "runs")

    def __init__(self, boot: int, sequence: int) -> None:
        self.anchored = False
        self.boot = boot
        self.runs = [sequence, sequence]
        self.older: dict[int, list[int]] | None = None  # None for most devices: few boot twice

    def of(self, boot: int) -> list[int] | None:
        if boot == self.boot:
            return self.runs
        return self.older.get(boot) if self.older is not None else None

    def begin(self, boot: int, sequence: int) -> bool:
        """Add a boot. Returns False when another boot had to be forgotten for it."""
        if self.older is None:
            self.older = {}
        if boot > self.boot:
            self.older[self.boot] = self.runs
            self.boot, self.runs = boot, [sequence, sequence]
        else:
            self.older[boot] = [sequence, sequence]
        if len(self.older) < MAX_BOOTS:
            return True
        del self.older[min(self.older)]
        return False


class SequenceDedup:
    """The memory of one log.

    Args:
        complete: Whether every record of the log was added and none forgotten.
        deep: Whether at least as many of the newest records were added as may be unacknowledged at the MQTT broker. The
            memory then knows every stored message that the broker may send again.
    """

    __slots__ = ("_devices", "complete", "deep")

    only_redelivered: ClassVar[bool] = False

    def __init__(self, *, complete: bool = False, deep: bool = False) -> None:
        self._devices: dict[str, _DeviceRuns] = {}
        self.complete = complete
        self.deep = deep

    def check(self, identity: MessageId, *, redelivered: bool = False) -> DedupResult:
        """Return whether the log has this reading.

        Args:
            redelivered: The MQTT DUP flag. It never makes a message a repeat; it only means that knowing the newest few
                records is not enough to call the message new.
        """
        name, boot, sequence = identity
        device = self._devices.get(name)
        if device is None:
            runs = None
        else:
            runs = device.runs if boot == device.boot else device.of(boot)
        if runs is not None and sequence <= runs[-1] and _contains(runs, sequence):
            return DedupResult.REPEAT
        if self.complete:
            return DedupResult.NEW
        if device is None or not device.anchored or (redelivered and not self.deep):
            return DedupResult.UNDECIDED
        if boot > device.boot or (boot == device.boot and sequence > device.runs[-1]):
            return DedupResult.NEW  # newer than a record that was itself newer than all before it
        return DedupResult.UNDECIDED

    def is_late(self, identity: MessageId) -> bool:
        """Return whether a newer reading of the same device is known."""
        device = self._devices.get(identity.device)
        return device is not None and (device.boot, device.runs[-1]) > (identity.boot, identity.sequence)

    def add(self, identity: MessageId, *, late: bool = False) -> None:
        """Add a reading that the log has.

        Args:
            late: The log has a newer reading of the device before this one, so it does not anchor the device.
        """
        name, boot, sequence = identity
        device = self._devices.get(name)
        if device is None:
            if len(self._devices) >= MAX_DEVICES:
                del self._devices[next(iter(self._devices))]
                self.complete = False
            device = self._devices[name] = _DeviceRuns(boot, sequence)
            device.anchored = not late
            return
        if not late:
            device.anchored = True
        runs = device.runs if boot == device.boot else device.of(boot)
        if runs is None:
            if not device.begin(boot, sequence):
                self.complete = False
            return
        if sequence == runs[-1] + 1:
            runs[-1] = sequence
            return
        _insert(runs, sequence)
        if len(runs) > 2 * MAX_RUNS:
            del runs[:2]
            self.complete = False


class RecentKeys(Generic[H]):
    """Remembers the newest ``size`` keys of a log's entries, such as the ids of events and alerts.

    ``only_redelivered``: a known key makes a repeat only if the message also has the MQTT DUP flag. For entries without
    an id, because two equal ones may both be intended (dead letters, bookings).
    """

    def __init__(self, size: int = 20_000, *, only_redelivered: bool = False) -> None:
        self._size = size
        self.only_redelivered = only_redelivered
        self._keys: dict[H, None] = {}

    def __contains__(self, key: H) -> bool:
        return key in self._keys

    def check(self, key: H, *, redelivered: bool = False) -> DedupResult:
        known = key in self._keys and (redelivered or not self.only_redelivered)
        return DedupResult.REPEAT if known else DedupResult.NEW

    def add(self, key: H) -> None:
        self._keys.pop(key, None)
        self._keys[key] = None
        if len(self._keys) > self._size:
            del self._keys[next(iter(self._keys))]


def _contains(runs: list[int], sequence: int) -> bool:
    """Return whether a run has the sequence. ``runs`` is first, last, first, last, ... ascending, with gaps."""
    if sequence > runs[-1]:
        return False
    place = bisect_right(runs, sequence)
    return place % 2 == 1 or (place > 0 and runs[place - 1] == sequence)


def _insert(runs: list[int], sequence: int) -> None:
    if _contains(runs, sequence):
        return
    place = bisect_right(runs, sequence)  # even: between two runs
    joins_left = place > 0 and runs[place - 1] == sequence - 1
    joins_right = place < len(runs) and runs[place] == sequence + 1
    if joins_left and joins_right:
        del runs[place - 1 : place + 1]
    elif joins_left:
        runs[place - 1] = sequence
    elif joins_right:
        runs[place] = sequence
    else:
        runs[place:place] = [sequence, sequence]
