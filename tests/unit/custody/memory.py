"""What a bridge of the model remembers of a log that it holds: the real ``Repeats``, filled from the tail first.

"New, because beyond everything known" is believed only when the remembered part has a record of the device that is not
late: all before that part is then older than it. Otherwise the whole copy is read.
"""

from __future__ import annotations

from edge.messages import Identity
from edge.repeats import Repeats, Verdict
from tests.unit.custody.disk import Copy
from tests.unit.custody.faults import Faults

DEPTH = 3  # records read at first


class Memory:
    """Memory of one copy."""

    __slots__ = ("_copy", "_faults", "_firm", "repeats")

    def __init__(self, copy: Copy, faults: Faults) -> None:
        self._copy = copy
        self._faults = faults
        self._load(max(0, len(copy.records) - DEPTH))

    def _load(self, floor: int) -> None:
        self.repeats = Repeats(complete=floor == 0, deep=True)
        self._firm: set[str] = set()
        for record in self._copy.records[floor:]:
            if isinstance(record.body, Identity):
                self.add(record.body, late=record.late)

    def add(self, identity: Identity, *, late: bool) -> None:
        self.repeats.add(identity)
        if not late or self._faults.late_counts_as_beyond:
            self._firm.add(identity.device)

    def is_repeat(self, identity: Identity) -> bool:
        """Decide, reading the whole copy if need be."""
        verdict = self.repeats.check(identity)
        if verdict is Verdict.NEW and not self.repeats.complete and identity.device not in self._firm:
            verdict = Verdict.UNDECIDED
        if verdict is Verdict.UNDECIDED and not self._faults.drain_repeats:
            self._load(0)
            verdict = self.repeats.check(identity)
        return verdict is Verdict.REPEAT

    def is_late(self, identity: Identity) -> bool:
        """Whether the log has a newer reading of the device; exact after ``is_repeat``."""
        return self.repeats.is_late(identity)
