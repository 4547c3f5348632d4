"""A class's name says which class is meant: no two classes of the product share one."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests"


def shared_names(modules: Iterable[Path], root: Path) -> dict[str, list[str]]:
    """The names of classes that are defined more than once, with their places."""
    places = defaultdict(list)
    for path in sorted(modules):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(root)}:{node.lineno}")
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def test_each_class_of_the_product_has_its_own_name() -> None:
    packages = [path.parent for path in ROOT.glob("*/__init__.py") if path.parent != TESTS]
    assert {"fairlead", "shore", "benchmarks", "tools"} <= {package.name for package in packages}
    assert not shared_names((path for package in packages for path in package.rglob("*.py")), ROOT)


def test_a_shared_name_is_found_with_its_places(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Span: ...\n\nclass Other: ...\n")
    (tmp_path / "two.py").write_text("def made():\n    class Span: ...\n")
    assert shared_names(tmp_path.glob("*.py"), tmp_path) == {"Span": ["one.py:1", "two.py:2"]}
