"""Plant faults in the shipped custody protocol: the search finds each of them."""

# ruff: noqa: SLF001 - what is private is planted too

from __future__ import annotations
import __future__

import contextlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from edge.custody.protocol import CustodyProtocol
from edge.logwriter.dedup import SequenceDedup
from tests.unit.edge.custody.model.disk import Violation
from tests.unit.edge.custody.model.machine import Custody


class Plant(NamedTuple):
    """A planted fault: ``right`` occurs exactly once in the source of ``where``, and ``wrong`` replaces it."""

    where: Callable[..., Any]
    right: str
    wrong: str


@contextlib.contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """Return the shipped function with this fault. Raises AssertionError if that piece of source does not exist any
    more.
    """
    function = plant.where
    source = textwrap.dedent(inspect.getsource(function))
    times = source.count(plant.right)
    assert times == 1, f"{function.__qualname__} has {plant.right!r} {times} times"
    wrong = compile(
        source.replace(plant.right, plant.wrong),
        f"<fault in {function.__qualname__}>",
        "exec",
        flags=__future__.annotations.compiler_flag,
    )
    made: dict[str, Any] = {}
    exec(wrong, function.__globals__, made)  # noqa: S102 - our own source
    owner: Any = sys.modules[function.__module__]
    *outer, name = function.__qualname__.split(".")
    for each in outer:
        owner = getattr(owner, each)
    setattr(owner, name, made[name])
    try:
        yield
    finally:
        setattr(owner, name, function)


FOUND: Final = {
    "a log that has records is opened, and one that has none is not": Plant(
        CustodyProtocol._open, "is not None", "is None"
    ),
    "a seizure takes the next term": Plant(CustodyProtocol.seize, "+ SEIZING_TERMS", "+ 1"),
    "a return throws the tail away": Plant(
        CustodyProtocol.return_tail, "KeepTail(topic, stale.cut,", "KeepTail(topic, stale.end,"
    ),
    "what a crash left between marker and entry stays": Plant(
        CustodyProtocol.complete, "if self._made_here(marker):", "if False:"
    ),
    "events that wait are forgotten when others have moved the log": Plant(
        CustodyProtocol.is_settled, "grant.at > at and known", "grant.at > at"
    ),
    "readings are never late": Plant(SequenceDedup.is_late, "is not None", "is None"),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", FOUND.values(), ids=FOUND)
def test_a_planted_fault_is_found(plant: Plant) -> None:
    class Planted(Custody):  # a subclass counts its own runs
        pass

    with planted(plant), pytest.raises(Violation, match=r"^I\d: |does not come to rest|stops: "):
        run_state_machine_as_test(
            Planted,
            settings=settings(
                max_examples=1_500,
                stateful_step_count=100,
                deadline=None,
                database=None,
                derandomize=True,  # the same search each time
                phases=[Phase.generate],
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
