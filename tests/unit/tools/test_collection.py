"""What pytest collects: the same tests in every process, or xdist's workers refuse to run any (`make test`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
CHANGING = ("time.", "dt.datetime.now", "datetime.now", "uuid.uuid", "random.", "secrets.", "os.urandom")


def parameters_that_change(source: str) -> Iterator[str]:
    """Calls within a `parametrize` whose value another process does not have: the id of the test would hold it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parametrize"):
            called = (ast.unparse(part.func) for part in ast.walk(node) if isinstance(part, ast.Call))
            yield from (f"line {node.lineno}: {name}" for name in called if name.startswith(CHANGING))


def test_no_parameter_of_a_test_depends_on_the_clock_or_on_luck() -> None:
    found = {}
    for path in TESTS.rglob("test_*.py"):
        source = path.read_text()
        if "parametrize" in source and (changing := list(parameters_that_change(source))):
            found[str(path.relative_to(TESTS))] = changing
    assert not found


@pytest.mark.parametrize("call", ["time.time()", "uuid.uuid4()", "dt.datetime.now(dt.UTC)", "secrets.token_hex()"])
def test_a_parameter_that_depends_on_them_is_found(call: str) -> None:
    assert list(parameters_that_change(f'@pytest.mark.parametrize("at", [{{"exp": {call}}}])\ndef test(at): ...'))
