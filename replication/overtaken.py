"""Histories that a seizure has cut off are not taken from any source: two such sites would feed each other for ever."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.custody import Seizure
from fairlead.lineage import overtaken
from fairlead.wire.batch import split
from fairlead.wire.types import FetchedPartition

Seizures = Callable[[str], Sequence[Seizure]]
"""The seizures of a log that the ledgers here know."""


def never_seized(_topic: str) -> Sequence[Seizure]:
    return ()


def before(part: FetchedPartition, seizures: Sequence[Seizure]) -> tuple[FetchedPartition, Seizure | None]:
    """What comes before the first batch whose term a seizure has ended, and that seizure."""
    for start, _, header in split(part.records):
        seizure = overtaken(seizures, header)
        if seizure is not None:
            return part._replace(records=part.records[:start]), seizure
    return part, None
