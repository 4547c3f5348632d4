"""Run a notebook's code without Jupyter: its cells in order, in one namespace."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any


def cells(file: Path) -> list[dict[str, Any]]:
    """Return the cells of a notebook in format 4.5.

    Raises:
        ValueError: the file is not such a notebook.
    """
    notebook = json.loads(file.read_text(encoding="utf-8"))
    if (notebook.get("nbformat"), notebook.get("nbformat_minor")) != (4, 5) or "metadata" not in notebook:
        raise ValueError(f"{file} is no notebook in format 4.5")
    found: list[dict[str, Any]] = notebook["cells"]
    for cell in found:
        wanted = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            wanted |= {"execution_count", "outputs"}
        if set(cell) != wanted or cell["cell_type"] not in ("code", "markdown"):
            raise ValueError(f"cell {cell.get('id')} is not as format 4.5 wants it")
    if len({cell["id"] for cell in found}) != len(found):
        raise ValueError("two cells have the same id")
    return found


def run(file: Path) -> dict[str, Any]:
    """Run all code cells; convert the value of each cell's last line to text, as Jupyter would.

    Returns:
        The namespace after the last cell.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells(file):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]), filename=f"{file.name}:{cell['id']}")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{file.name}:{cell['id']}", "exec"), namespace)  # noqa: S102  # our own notebook
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), f"{file.name}:{cell['id']}", "eval"), namespace)  # noqa: S307
            repr(shown)
    return namespace
