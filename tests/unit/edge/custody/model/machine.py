"""Search the model's world with a Hypothesis state machine. Each step is one number, from which the world chooses an
action.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.unit.edge.custody.model import invariants
from tests.unit.edge.custody.model.model import World

NUMBERS: Final = st.integers(0, (1 << 20) - 1)
STRIDE: Final = 7_919  # other choices than the number before


class Custody(RuleBasedStateMachine):
    """The state machine. ``runs`` and ``steps`` count the actions carried out, ``idle`` the steps that changed
    nothing."""

    runs: ClassVar[int] = 0
    steps: ClassVar[int] = 0
    idle: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize(n=st.integers(0, 7))
    def begin(self, n: int) -> None:
        self.world = World(3 + n % 2, 1 + n // 2 % 2, restarts=n >= 4)
        type(self).runs += 1

    def _do(self, action: Callable[[int], None], *numbers: int) -> None:
        before = self.world.changes
        for number in numbers:
            action(number)
        if self.world.changes == before:  # nothing to do at that site: try another one
            for other in (self.world.links.copy, self.world.work, self.world.publish):
                other(numbers[0])
        type(self).steps += 1
        type(self).idle += self.world.changes == before

    @rule(n=NUMBERS)
    def publish(self, n: int) -> None:
        self._do(self.world.publish, n)

    @rule(n=NUMBERS)
    def move(self, n: int) -> None:
        self._do(self.world.move, n)

    @rule(n=NUMBERS)
    def order(self, n: int) -> None:
        self._do(self.world.order, n)

    @rule(n=NUMBERS)
    def cut(self, n: int) -> None:
        self._do(self.world.links.toggle, n)

    @rule(n=NUMBERS)
    def fail(self, n: int) -> None:
        self._do(self.world.fail, n)

    @rule(n=NUMBERS)
    def work(self, n: int) -> None:
        self._do(self.world.work, n)

    @rule(n=NUMBERS)
    def work_more(self, n: int) -> None:
        self._do(self.world.work, *(n + turn * STRIDE for turn in range(4)))

    @rule(n=NUMBERS)
    def copy(self, n: int) -> None:
        self._do(self.world.links.copy, n)

    @rule(n=NUMBERS)
    def copy_more(self, n: int) -> None:
        self._do(self.world.links.copy, *(n + turn * STRIDE for turn in range(3)))

    def teardown(self) -> None:
        self.world.settle()
        invariants.check(self.world)
