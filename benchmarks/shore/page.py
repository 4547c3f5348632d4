"""The page of shore's figures, made from the figures and nothing else.

    python -m benchmarks.shore.page [--figures build/bench/shore.json]

Copies the figures to ``docs/benchmarks/shore.json`` and writes ``docs/benchmarks/shore.md`` from them. Without
``--figures`` the page is made again from the copy that is there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks._page import environment, make, number

TEMPLATE: Final = Path(__file__).with_name("page.md.j2")
FIGURES: Final = Path("docs/benchmarks/shore.json")
PAGE: Final = Path("docs/benchmarks/shore.md")
_OTHERS: Final = (
    ("alerts", "Alerts"),
    ("point_query", "One container among very many readings"),
    ("feeds", "From a log at headquarters to a customer's feed"),
)
_NOT_SHOWN: Final = frozenset({"at", "machine", "target"})


def render(figures: dict[str, Any]) -> str:
    """The page in Markdown. Parts that the figures do not have are left out."""
    template = environment().from_string(TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(figures=figures, verdicts=verdicts, named=named, plain=plain, others=_OTHERS)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def named(rounds: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Rounds with their names: the first is cold."""
    return [("cold" if nth == 0 else f"warm, round {nth + 1}", one) for nth, one in enumerate(rounds)]


class Verdict(NamedTuple):
    """A figure with what was wanted of it."""

    name: str
    measured: float
    wanted: str
    met: bool


def verdicts(part: dict[str, Any]) -> list[Verdict]:
    """Each figure of a part that has a target: rates are to be at least that, seconds at most.

    Raises:
        KeyError: a target is about a figure that was not measured.
    """
    found = []
    for key, target in part.get("target", {}).items():
        measured, rate = part[key], key.endswith("_per_second")
        wanted = f"at {'least' if rate else 'most'} {number(target)}"
        found.append(
            Verdict(key.replace("_", " "), measured, wanted, measured >= target if rate else measured <= target)
        )
    return found


def plain(part: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Numbers, words and yes or no of a part, those of nested figures with their names joined."""
    found: list[tuple[str, Any]] = []
    for key, value in part.items():
        name = f"{before}{key.replace('_', ' ')}"
        if not before and key in _NOT_SHOWN:
            continue
        if isinstance(value, dict):
            found += plain(value, f"{name}: ")
        elif isinstance(value, int | float | str):
            found.append((name, value))
    return found


if __name__ == "__main__":
    make(FIGURES, PAGE, render, __doc__)
