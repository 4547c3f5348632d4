"""Plans: what a command is about to change, as a frozen list of steps.

Every command that changes a cluster goes the same way. It gathers facts; a pure function builds a ``Plan`` from them or
refuses; ``Plan.lines`` shows it to a person, ``Plan.to_builtins`` to a program; ``execute`` carries it out. Each step
describes itself and carries itself out, so a plan cannot say one thing and do another.

To add a step: write a frozen dataclass below ``PlanStep`` whose fields say what is done, to what.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

SHOWN: Final = 10  # names that a step lists; of more only the number

Tell = Callable[[str], None]
"""Receives a sentence about each thing that is being done."""


def silent(text: str) -> None:
    """A ``Tell`` that ignores its text."""


class LineStyle(StrEnum):
    """What a line of a plan is about; the console gives each its colour."""

    STEP = "step"
    DETAIL = "detail"
    NOTE = "note"
    PLAIN = "plain"
    ADD = "add"
    REMOVE = "remove"
    UNTOUCHED = "untouched"
    ERROR = "error"


class PlanLine(NamedTuple):
    """One line of a plan for a person."""

    text: str
    style: LineStyle = LineStyle.PLAIN


class StepContext(Protocol):
    """What steps are carried out against: connections, waiting times, and what was done so far."""

    @property
    def tell(self) -> Tell:
        """Receives each step's description when the step begins, and what a step reports while it runs."""


C = TypeVar("C", bound=StepContext)


class PlanStep(ABC, Generic[C]):
    """One step of a plan, a frozen dataclass."""

    __slots__ = ()
    style: ClassVar[LineStyle] = LineStyle.STEP

    @property
    def kind(self) -> str:
        """The step's name in JSON."""
        return type(self).__name__

    @abstractmethod
    def describe(self) -> str:
        """What the step does: a sentence in the imperative, without a full stop."""

    def details(self) -> Iterable[PlanLine]:
        """Lines that belong below the description."""
        return ()

    @abstractmethod
    async def carry_out(self, context: C) -> None:
        """Do it. Doing it again after an interruption is safe.

        Raises:
            FairleadError: the plan ends here; what was done before stays done.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[C]):
    """What will be done, in order. ``notes`` are what a person should know before saying yes."""

    steps: tuple[PlanStep[C], ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.steps

    @property
    def identity(self) -> str:
        """A digest: equal plans have the same."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]

    def heading(self) -> str:
        """What the plan is about, above its steps; may be empty."""
        return ""

    def lines(self) -> Iterator[PlanLine]:
        """The plan for a person: heading, numbered steps, notes."""
        if self.heading():
            yield PlanLine(self.heading())
        if self.is_empty:
            yield PlanLine("nothing to do")
        yield from explain(self.steps)
        yield from (PlanLine(f"note: {note}", LineStyle.NOTE) for note in self.notes)

    def to_builtins(self) -> dict[str, Any]:
        """The plan for a program, JSON-ready: all fields; each step with its kind (``step``) and what it does."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        body["steps"] = [
            {"step": step.kind, "does": step.describe(), **fields}
            for step, fields in zip(self.steps, body["steps"], strict=True)
        ]
        return body


def explain(steps: Iterable[PlanStep[Any]], *, numbered: bool = True) -> Iterator[PlanLine]:
    """Steps for a person, each with its details indented below it."""
    for number, step in enumerate(steps, 1):
        mark, indent = (f"{number}. ", "   ") if numbered else ("", "  ")
        yield PlanLine(mark + step.describe(), step.style)
        yield from (PlanLine(indent + line.text, line.style) for line in step.details())


async def execute(steps: Iterable[PlanStep[C]], context: C) -> None:
    """Carry the steps out in order, telling each as it begins. The first error ends it and is raised."""
    for step in steps:
        context.tell(step.describe())
        await step.carry_out(context)


def shortened(texts: Sequence[str]) -> Iterator[PlanLine]:
    """The first ``SHOWN`` texts as details, then how many more there are."""
    yield from (PlanLine(text, LineStyle.DETAIL) for text in texts[:SHOWN])
    if len(texts) > SHOWN:
        yield PlanLine(f"and {len(texts) - SHOWN} more", LineStyle.DETAIL)
