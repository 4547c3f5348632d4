"""A plan of custody by hand as data: the steps that ``explain`` tells and ``execute`` does."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.records.custody import CustodyOrder


@dataclass(frozen=True, slots=True)
class WriteOrder:
    """Append the order to ``fairlead.custody`` at ``site``; the topic is made where it is missing."""

    site: str
    order: CustodyOrder


@dataclass(frozen=True, slots=True)
class AwaitAnswer:
    """Wait until the bridge of ``site`` has answered the order in ``custody.<site>``."""

    site: str
    order: CustodyOrder


Step = WriteOrder | AwaitAnswer


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done, in order. ``notes`` are what a person should know before.

    Args:
        site: The site whose bridge acts.
        holder: Who holds the log before.
        term: The newest term before.
    """

    site: str
    holder: str | None
    term: int
    order: CustodyOrder
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
