"""Where helpers of tests lie: those that several folders use in ``tests/support``, the others in the folder that uses
them, none in a test module. A test module can then be renamed, split or run alone, and no other test notices.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def helpers_elsewhere(package: str, source: str) -> Iterator[str]:
    """Find what a module of this package imports from test modules, and from helpers of other folders."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules = [each.name for each in names]
            case ast.ImportFrom(module=name, names=names, level=level):
                found = resolve_name("." * level + (name or ""), package)
                is_module = (ROOT / found.replace(".", "/")).with_suffix(".py").is_file()
                modules = [found] if is_module else [f"{found}.{each.name}" for each in names]
            case _:
                continue
        for module in modules:
            folder, _, name = module.rpartition(".")
            near = folder == package or module.startswith("tests.support")
            if module.startswith("tests.") and (name.startswith("test_") or not near):
                yield f"line {node.lineno}: {module}"


def test_tests_import_no_test_module_and_no_helper_of_another_folder() -> None:
    found = {}
    for path in (ROOT / "tests").rglob("*.py"):
        file = path.relative_to(ROOT)
        if wrong := list(helpers_elsewhere(".".join(file.parts[:-1]), path.read_text(encoding="utf-8"))):
            found[str(file)] = wrong
    assert not found


NETWORK = "tests.unit.simulators.network"


@pytest.mark.parametrize(
    "line",
    [
        "from tests.unit.simulators.network.test_proxy import CLOCK",
        "from tests.unit.simulators.network import test_proxy",
        "from .test_proxy import CLOCK",
        "from tests.unit.acl.worlds import FLEET",
        "from tests.unit.acl import worlds",
        "from tests.unit.conftest import short_path",
        "import tests.unit.acl.worlds",
        "if True:\n    from tests.unit.acl import worlds",
    ],
)
def test_a_helper_elsewhere_is_found(line: str) -> None:
    assert list(helpers_elsewhere(NETWORK, line))


@pytest.mark.parametrize(
    "line",
    [
        "from tests.support import clock",
        "from tests.support.edge.samples import BOX",
        "from tests.unit.simulators.network.conftest import proxy",
        "from tests.unit.simulators.network import echo",
        "from .echo import ask",
        "import testcontainers",
        "from fairlead.names import imo",
    ],
)
def test_a_helper_at_its_place_is_not(line: str) -> None:
    assert not list(helpers_elsewhere(NETWORK, line))
