"""Small pieces of Markdown, as both GitHub and the site read them. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def generated_by(module: str) -> str:
    """The comment at the top of a generated page."""
    return f"<!-- Written by python -m handbook ({module}). Change the code or handbook/, not this page. -->"


def cell(text: str) -> str:
    """Text that may stand in a table: one line, bars and angle brackets as themselves."""
    return plain(" ".join(text.split())).replace("|", "\\|")


def plain(text: str) -> str:
    """Text whose angle brackets are no HTML; in inline code they are themselves anyway."""
    parts = text.split("`")
    return "`".join(part if inside % 2 else part.replace("<", "&lt;") for inside, part in enumerate(parts))


def code(text: str) -> str:
    """Inline code for a table's cell, nothing for nothing."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are Markdown already."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(re.sub(r"  +", " ", line) for line in lines)
