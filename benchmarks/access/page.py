"""The page of access's figures, made from the figures and nothing else.

    python -m benchmarks.access.page [--figures build/bench/access.json]

Copies the figures to ``docs/benchmarks/access.json`` and writes ``docs/benchmarks/access.md`` from them. Without
``--figures`` the page is made again from the copy that is there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from benchmarks._page import environment, make

TEMPLATE: Final = Path(__file__).with_name("page.md.j2")
FIGURES: Final = Path("docs/benchmarks/access.json")
PAGE: Final = Path("docs/benchmarks/access.md")


def render(figures: dict[str, Any]) -> str:
    """The page in Markdown. Parts that the figures do not have, or that failed, are left out."""
    text = environment().from_string(TEMPLATE.read_text(encoding="utf-8")).render(figures=figures)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


if __name__ == "__main__":
    make(FIGURES, PAGE, render, __doc__)
