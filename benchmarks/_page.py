"""Pages of figures: a template and the figures, and nothing else, make Markdown."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined


def environment() -> Environment:
    """Where templates are rendered; filter ``number`` makes numbers readable."""
    made = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, from our own figures
    )
    made.filters["number"] = number
    return made


def number(value: float) -> str:
    """A number to be read: thousands with commas, otherwise three digits that count."""
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def make(figures: Path, page: Path, render: Callable[[dict[str, Any]], str], description: str | None) -> None:
    """Write a page from a file of figures, which ``--figures`` replaces first."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, help=f"new figures, to be kept as {figures}")
    given = parser.parse_args().figures
    if given is not None:
        figures.write_text(given.read_text(encoding="utf-8"), encoding="utf-8")
    page.write_text(render(json.loads(figures.read_text(encoding="utf-8"))), encoding="utf-8")
