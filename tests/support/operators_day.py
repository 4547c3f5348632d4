"""Extract what docs/access.md, docs/book.md and README.md show: commands, and the section about an operator's day."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "access.md"
README: Final = ROOT / "README.md"
BOOK: Final = ROOT / "docs" / "book.md"


@dataclass(frozen=True, slots=True)
class Part:
    """One paragraph of the section: its commands as printed, and its other lines of code (parts of a topology)."""

    commands: tuple[str, ...]
    code: str


def commands_of(page: str) -> list[str]:
    """Return every command in a line of code, without the comment behind it."""
    return [re.split(r"\s{2,}|\s#", line)[0] for line in code_of(page) if line.startswith("fairlead ")]


def code_of(page: str) -> list[str]:
    """Return the lines of code."""
    return [line[4:] for line in page.splitlines() if line.startswith("    ")]


def parts_of_the_day(page: str) -> dict[str, Part]:
    """Return the section's parts, by their bold titles."""
    (section,) = re.findall(r"^## An operator's day\n(.*?)(?=^## )", page, re.S | re.M)
    pieces = re.split(r"^\*\*(.+?)\.\*\*", section, flags=re.M)
    found = {}
    for title, text in zip(pieces[1::2], pieces[2::2], strict=True):
        others = [line for line in code_of(text) if not line.startswith("fairlead ")]
        found[title] = Part(tuple(commands_of(text)), "".join(f"{line}\n" for line in others))
    return found


def by_hand() -> list[str]:
    """Return the commands of README.md's section "By hand", up to the part about running a voyage of one's own."""
    section = README.read_text(encoding="utf-8").partition("\n## By hand\n")[2].partition("\n## ")[0]
    block = section.partition("\nRun a voyage of your own")[0]
    return [line.removeprefix("    ") for line in block.splitlines() if line.startswith("    ")]


def rows_of_the_book() -> dict[str, list[str]]:
    """Return the commands and tests of each row of docs/book.md, by what the book asks for."""
    lines = [line for line in BOOK.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    found: dict[str, list[str]] = {}
    asked = ""
    for line in lines:
        if line.startswith(("| the book |", "|---|")):
            continue
        cells = re.split(r"(?<!\\)\|", line.removeprefix("|").removesuffix("|"))
        if len(cells) != 3:
            raise ValueError(f"not three cells: {line}")
        asked = cells[0].strip() or asked  # without words of its own, a row goes on with the one before
        found.setdefault(asked, []).extend(re.findall(r"`((?:fairlead|pytest) [^`]+)`", cells[2]) or [""])
    return found
