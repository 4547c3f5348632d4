"""The engine of plans: what is shown is what is done, in this order, up to the first error."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from fairlead.errors import FairleadError
from fairlead.plan import LineStyle, Plan, PlanLine, PlanStep, Tell, execute, explain, shortened, silent


@dataclass
class Memory:
    done: list[str] = field(default_factory=list)
    tell: Tell = silent


@dataclass(frozen=True, slots=True)
class Put(PlanStep[Memory]):
    name: str
    fails: bool = False

    def describe(self) -> str:
        return f"put {self.name}"

    def details(self) -> Iterable[PlanLine]:
        return shortened([self.name] * 12)

    async def carry_out(self, context: Memory) -> None:
        if self.fails:
            raise FairleadError("no room")
        context.done.append(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutPlan(Plan[Memory]):
    where: str

    def heading(self) -> str:
        return f"into {self.where}"


def test_a_plan_for_a_person() -> None:
    lines = list(PutPlan(where="a box", steps=(Put("x"), Put("y")), notes=("it is full",)).lines())
    assert lines[:2] == [("into a box", LineStyle.PLAIN), ("1. put x", LineStyle.STEP)]
    assert lines[2:13] == [("   x", LineStyle.DETAIL)] * 10 + [("   and 2 more", LineStyle.DETAIL)]
    assert lines[13] == ("2. put y", LineStyle.STEP) and lines[-1] == ("note: it is full", LineStyle.NOTE)
    assert [text for text, _ in PutPlan(where="a box", steps=()).lines()] == ["into a box", "nothing to do"]
    assert next(explain([Put("x")], numbered=False)).text == "put x"


def test_a_plan_for_a_program() -> None:
    plan = PutPlan(where="a box", steps=(Put("x"),), notes=("it is full",))
    assert json.loads(json.dumps(plan.to_builtins())) == {
        "where": "a box",
        "steps": [{"step": "Put", "does": "put x", "name": "x", "fails": False}],
        "notes": ["it is full"],
    }
    assert plan.identity == PutPlan(where="a box", steps=(Put("x"),), notes=("it is full",)).identity
    assert plan.identity != PutPlan(where="a box", steps=(Put("y"),), notes=("it is full",)).identity


async def test_steps_are_done_in_order_until_the_first_error() -> None:
    told: list[str] = []
    memory = Memory(tell=told.append)
    await execute([Put("x"), Put("y")], memory)
    assert memory.done == ["x", "y"]
    with pytest.raises(FairleadError, match="no room"):
        await execute([Put("z"), Put("q", fails=True), Put("r")], memory)
    assert memory.done == ["x", "y", "z"]
    assert told == ["put x", "put y", "put z", "put q"]
