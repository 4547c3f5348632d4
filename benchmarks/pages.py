"""Write the pages of figures under docs from a template and the figures, and nothing else.

    python -m benchmarks.pages access|replication|shore [--figures build/bench/NAME.json]

With ``--figures`` that file first replaces the page's copy of the figures, ``docs/benchmarks/NAME.json``. Parts that
the figures do not have, or that failed, are left out.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, StrictUndefined

from benchmarks.harness import flatten

PAGES: Final = {
    "access": Path("docs/benchmarks/access.md"),
    "replication": Path("docs/benchmarks/replication.md"),
    "shore": Path("docs/benchmarks/shore.md"),
}
AT_LEAST: Final = frozenset(
    {
        "speed_ratio_from_start",
        "speed_ratio_from_first_record",
        "throughput_ratio",
        "rows_per_second",
        "readings_per_second",
    }
)
"""The targets that are lower limits; all others are upper limits."""

WORDS: Final = {
    "speed_ratio_from_start": "times MirrorMaker's speed, from the start of the process",
    "speed_ratio_from_first_record": "times MirrorMaker's speed, from the first record",
    "floor_ratio": "times the seconds that the machine's cores need for the work of all three, from the first record",
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
    "new_log_seconds": "s until the first records of a new log are copied",
    "fetched_ratio": "times the bytes that one replicator fetches",
    "seconds_until_replaced": "s until the logs of a killed member go on",
    "repeated_records": "records appended twice",
}

_SHORE: Final = (
    ("alerts", "Alerts"),
    ("point_query", "One container among very many readings"),
    ("feeds", "From a log at headquarters to a customer's feed"),
    ("once", "A first voyage of 60 boxes, and one new reading"),
    ("growth", "What a trigger costs as history grows"),
    ("outlook", "When cargo leaves its band"),
)


class Verdict(NamedTuple):
    """One figure beside its target. ``relation`` is ``>=`` or ``<=``."""

    what: str
    measured: float
    relation: str
    target: float

    @property
    def name(self) -> str:
        return self.what.replace("_", " ")

    @property
    def wanted(self) -> str:
        return f"at {'least' if self.relation == '>=' else 'most'} {number(self.target)}"

    @property
    def met(self) -> bool:
        return self.measured >= self.target if self.relation == ">=" else self.measured <= self.target


def verdicts(part: Mapping[str, Any]) -> list[Verdict]:
    """Every figure of a part that has a target, in the order of its targets.

    Raises:
        KeyError: a target is for a figure that was not measured.
    """
    return [
        Verdict(name, part[name], ">=" if name in AT_LEAST else "<=", target)
        for name, target in part.get("target", {}).items()
    ]


def render(template: str, figures: Mapping[str, Any]) -> str:
    """A page in Markdown."""
    environment = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, from our own figures
    )
    environment.filters |= {"number": number, "fraction": fraction}
    return environment.from_string(template).render(
        figures=figures, verdicts=verdicts, shown=shown, words=WORDS, named=named, plain=flatten, others=_SHORE
    )


def number(value: float) -> str:
    """A number to be read: thousands with commas, otherwise three digits that count."""
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def fraction(value: float) -> str:
    """A part of a whole: a 27th is easier to see than 0.037."""
    return f"1/{1 / value:.0f}" if 0 < value < 0.5 else number(value)


def shown(name: str, value: float) -> str:
    """A figure that has a target, as the page shows it."""
    return fraction(value) if name == "cpu_ratio" else number(value)


def named(rounds: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Rounds with their names: the first is cold."""
    return [("cold" if nth == 0 else f"warm, round {nth + 1}", one) for nth, one in enumerate(rounds)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", choices=PAGES)
    parser.add_argument("--figures", type=Path, help="new figures")
    options = parser.parse_args(arguments)
    copy = Path(f"docs/benchmarks/{options.page}.json")
    if options.figures is not None:
        copy.write_text(options.figures.read_text(encoding="utf-8"), encoding="utf-8")
    template = Path(__file__).with_name(f"{options.page}.md.j2").read_text(encoding="utf-8")
    text = render(template, json.loads(copy.read_text(encoding="utf-8")))
    if options.page != "replication":
        text = re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"
    PAGES[options.page].write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
