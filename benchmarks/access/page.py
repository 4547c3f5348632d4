"""The page of access's figures, made from the figures and nothing else.

    python -m benchmarks.access.page [--figures build/bench/access.json]

Copies the figures to ``docs/benchmarks/access.json`` and writes ``docs/benchmarks/access.md`` from them. Without
``--figures`` the page is made again from the copy that is there.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined

from benchmarks.replication.page import number

TEMPLATE: Final = Path(__file__).with_name("page.md.j2")
FIGURES: Final = Path("docs/benchmarks/access.json")
PAGE: Final = Path("docs/benchmarks/access.md")


def render(figures: dict[str, Any]) -> str:
    """The page in Markdown. Parts that the figures do not have, or that failed, are left out."""
    environment = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, from our own figures
    )
    environment.filters["number"] = number
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(figures=figures)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, help="new figures, to be kept as docs/benchmarks/access.json")
    given = parser.parse_args().figures
    if given is not None:
        FIGURES.write_text(given.read_text(encoding="utf-8"), encoding="utf-8")
    PAGE.write_text(render(json.loads(FIGURES.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
