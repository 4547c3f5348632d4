"""The benchmark page, made from the figures and nothing else.

    python -m benchmarks.replication.page [--figures build/bench/replication.json]

Copies the figures to ``docs/benchmarks/replication.json`` and writes ``docs/benchmarks/replication.md`` from them.
Without ``--figures`` the page is made again from the copy that is there.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from benchmarks._page import environment, number
from benchmarks.replication.ratios import Figures, verdicts

TEMPLATE: Final = Path(__file__).with_name("page.md.j2")
FIGURES: Final = Path("docs/benchmarks/replication.json")
PAGE: Final = Path("docs/benchmarks/replication.md")

WORDS: Final = {
    "speed_ratio": "times MirrorMaker's speed",
    "cpu_ratio": "of MirrorMaker's CPU",
    "rss_mb": "MB resident at most",
    "core_percent": "% of a core, replicator",
    "wire_kb_per_second": "kB/s on the wire",
    "source_broker_core_percent": "% of a core, source broker",
    "p50_ms": "ms, median",
    "p99_ms": "ms, 99th percentile",
    "seconds_ratio": "times the seconds, from the start",
    "seconds_from_first_record_ratio": "times the seconds, from the first record",
    "rss_ratio": "times the memory",
    "throughput_ratio": "of the speed without TLS",
}
"""What a figure with a target is, in words that follow the number."""


def render(figures: Figures) -> str:
    """The page in Markdown. Parts that the figures do not have are left out."""
    made = environment()
    made.filters["fraction"] = fraction
    template = made.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(figures=figures, verdicts=verdicts, shown=shown, words=WORDS)


def fraction(value: float) -> str:
    """A part of a whole: a 27th is easier to see than 0.037."""
    return f"1/{1 / value:.0f}" if 0 < value < 0.5 else number(value)


def shown(name: str, value: float) -> str:
    """A figure that has a target, as the page shows it."""
    return fraction(value) if name == "cpu_ratio" else number(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, default=FIGURES)
    given: Path = parser.parse_args().figures
    figures: dict[str, Any] = json.loads(given.read_text(encoding="utf-8"))
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    PAGE.write_text(render(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
