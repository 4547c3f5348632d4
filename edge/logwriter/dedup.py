"""Which readings a log already has: by (device, boot, sequence), in memory bounded per log. Pure.

The memory is filled from the log's tail and then follows what is appended. Sequences are kept as runs (first, last), so
a device that counts on costs two integers. A reading is told apart three ways: known, new, or undecided, when it may
lie in the part of the log that has not been read; then the caller reads further back. Nothing is ever called a repeat
that was not seen, because a reading wrongly called so would be lost.
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
    """What is known of one device: runs by boot, those of its newest boot at hand.

    ``anchored``: a record of it is known that was the newest when it was appended.
    """

    __slots__ = ("anchored", "boot", "older", "runs")

    def __init__(self, boot: int, sequence: int) -> None:
        self.anchored = False
        self.boot = boot
        self.runs = [sequence, sequence]
        self.older: dict[int, list[int]] | None = None  # few devices have booted twice

    def of(self, boot: int) -> list[int] | None:
        if boot == self.boot:
            return self.runs
        return self.older.get(boot) if self.older is not None else None

    def begin(self, boot: int, sequence: int) -> bool:
        """A boot that was not known; False when another had to be forgotten for it."""
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
    """Memory of one log.

    Args:
        complete: Every record of the log has been added and nothing forgotten.
        deep: At least as many of the newest records have been added as may be unacknowledged at the MQTT broker, so
            that a message which it sends again is found if it is there.
    """

    __slots__ = ("_devices", "complete", "deep")

    only_redelivered: ClassVar[bool] = False

    def __init__(self, *, complete: bool = False, deep: bool = False) -> None:
        self._devices: dict[str, _DeviceRuns] = {}
        self.complete = complete
        self.deep = deep

    def check(self, identity: MessageId, *, redelivered: bool = False) -> DedupResult:
        """Whether the log has this reading.

        ``redelivered`` (the MQTT DUP flag) never decides that a message is a repeat; it only says that looking at the
        newest records is not enough.
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
            return DedupResult.NEW  # beyond a record that was newer than everything before it
        return DedupResult.UNDECIDED

    def is_late(self, identity: MessageId) -> bool:
        """Whether a newer reading of the same device is known."""
        device = self._devices.get(identity.device)
        return device is not None and (device.boot, device.runs[-1]) > (identity.boot, identity.sequence)

    def add(self, identity: MessageId, *, late: bool = False) -> None:
        """Remember a reading that the log has.

        Args:
            late: A newer reading of the device was in the log before it, so it tells nothing about what is older.
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
    """The newest keys of a log whose entries have an id of their own (events, alerts); older ones are forgotten.

    ``only_redelivered``: an entry counts as a repeat only when the broker says that it sends it again. For entries that
    have no id, where two equal ones may both be meant (dead letters).
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
    """``runs`` is ascending first, last, first, last, ... with gaps between."""
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
