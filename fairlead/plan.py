"""Plans: the changes that a command is about to make, as a frozen list of steps.

Every command that changes a cluster works in the same way. It gathers facts; a pure function builds a ``Plan`` from
them or refuses; ``Plan.lines`` shows it to a person, ``Plan.to_builtins`` to a program; ``execute`` carries it out.
Each step describes itself and carries itself out, so a plan shows exactly the steps that it executes.

To add a step: write a frozen dataclass below ``PlanStep`` whose fields name the action and its objects.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

SHOWN: Final = 10  # names that a step lists; of the rest it shows the number

Tell = Callable[[str], None]
"""A function that receives a sentence about each step in progress."""


def silent(text: str) -> None:
    """Ignore the text; a ``Tell``."""


class LineStyle(StrEnum):
    """The kind of a plan's line; the console gives each kind its colour."""

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
    """The context that steps are carried out in: connections, waiting times, and results so far."""

    @property
    def tell(self) -> Tell:
        """Receives each step's description when the step begins, and a step's reports while it runs."""


C = TypeVar("C", bound=StepContext)


class PlanStep(ABC, Generic[C]):
    """One step of a plan; subclasses are frozen dataclasses."""

    __slots__ = ()
    style: ClassVar[LineStyle] = LineStyle.STEP

    @property
    def kind(self) -> str:
        """The step's name in JSON."""
        return type(self).__name__

    @abstractmethod
    def describe(self) -> str:
        """Return what the step does: a sentence in the imperative, without a full stop."""

    def details(self) -> Iterable[PlanLine]:
        """Return the lines that belong below the description."""
        return ()

    @abstractmethod
    async def carry_out(self, context: C) -> None:
        """Carry out the step. Repeating it after an interruption is safe.

        Raises:
            FairleadError: the plan ends here; completed steps stay done.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[C]):
    """The steps to do, in order. ``notes`` are facts that a person should know before confirming."""

    shows_identity: ClassVar[bool] = False  # to a program, under ``plan``
    steps: tuple[PlanStep[C], ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the plan has no step."""
        return not self.steps

    @property
    def identity(self) -> str:
        """A digest, the same for equal plans."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]

    def heading(self) -> str:
        """Return the plan's subject, a line above its steps; may be empty."""
        return ""

    def lines(self) -> Iterator[PlanLine]:
        """Yield the plan for a person: heading, numbered steps, notes."""
        if self.heading():
            yield PlanLine(self.heading())
        if self.is_empty:
            yield PlanLine("nothing to do")
        yield from explain(self.steps)
        yield from (PlanLine(f"note: {note}", LineStyle.NOTE) for note in self.notes)

    def to_builtins(self) -> dict[str, Any]:
        """Return the plan JSON-ready: all fields; each step with its kind (``step``) and description (``does``)."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        body["steps"] = [
            {"step": step.kind, "does": step.describe(), **fields}
            for step, fields in zip(self.steps, body["steps"], strict=True)
        ]
        return {"plan": self.identity, **body} if self.shows_identity else body


def explain(steps: Iterable[PlanStep[Any]], *, numbered: bool = True) -> Iterator[PlanLine]:
    """Yield steps for a person, each with its details indented below it."""
    for number, step in enumerate(steps, 1):
        mark, indent = (f"{number}. ", "   ") if numbered else ("", "  ")
        yield PlanLine(mark + step.describe(), step.style)
        yield from (PlanLine(indent + line.text, line.style) for line in step.details())


async def execute(steps: Iterable[PlanStep[C]], context: C) -> None:
    """Carry out the steps in order and report each as it begins. Stop at the first error and raise it."""
    for step in steps:
        context.tell(step.describe())
        await step.carry_out(context)


def shortened(texts: Sequence[str]) -> Iterator[PlanLine]:
    """Yield the first ``SHOWN`` texts as details, then how many more there are."""
    yield from (PlanLine(text, LineStyle.DETAIL) for text in texts[:SHOWN])
    if len(texts) > SHOWN:
        yield PlanLine(f"and {len(texts) - SHOWN} more", LineStyle.DETAIL)
