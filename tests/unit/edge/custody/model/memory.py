"""The deduplication memory of a log that a bridge of the model holds: ``SequenceDedup``, filled from the newest records
first.
"""

from __future__ import annotations

from edge.logwriter.dedup import DedupResult, SequenceDedup
from edge.messages import MessageId
from tests.unit.edge.custody.model.disk import Copy

DEPTH = 3  # number of records read at first


class Memory:
    """The deduplication memory of one copy."""

    __slots__ = ("_copy", "repeats")

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._load(max(0, len(copy.records) - DEPTH))

    def _load(self, floor: int) -> None:
        self.repeats = SequenceDedup(complete=floor == 0, deep=True)
        for record in self._copy.records[floor:]:
            if isinstance(record.body, MessageId):
                self.repeats.add(record.body, late=record.late)

    def is_repeat(self, identity: MessageId) -> bool:
        """Decide whether a reading is a repeat; read the whole copy if necessary."""
        verdict = self.repeats.check(identity)
        if verdict is DedupResult.UNDECIDED:
            self._load(0)
            verdict = self.repeats.check(identity)
        return verdict is DedupResult.REPEAT
