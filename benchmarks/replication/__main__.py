"""Replication beside MirrorMaker 2: the figures of docs/benchmarks/replication.md.

    python -m benchmarks.replication [--only many_topics,bulk,...,idle,latency,tls,growth,sharing] [--topics N]

Everything together takes about half an hour on a machine that does nothing else; ``--topics`` makes it smaller, for
trying out. ``python -m benchmarks.pages replication`` writes the page.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Final

from benchmarks.harness import Measure, main
from benchmarks.replication import parts, sharing
from benchmarks.replication.mirrormaker_side import DELIVERED, LEAN, TUNED

PARTS: Final[dict[str, Measure]] = {
    "peer": parts.describe_peer,
    "many_topics": partial(parts.measure_many_topics, settings=DELIVERED),
    "bulk": partial(parts.measure_bulk, settings=DELIVERED),
    "many_topics_lean": partial(parts.measure_many_topics, settings=LEAN),
    "bulk_lean": partial(parts.measure_bulk, settings=LEAN),
    "many_topics_tuned": partial(parts.measure_many_topics, settings=TUNED),
    "bulk_tuned": partial(parts.measure_bulk, settings=TUNED),
    "idle": parts.measure_idle,
    "latency": parts.measure_latency,
    "tls": parts.measure_tls,
    "growth": parts.measure_growth,
    "sharing": sharing.measure,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topics", type=int, help="how many logs, instead of each part's own number")


if __name__ == "__main__":
    main("replication", PARTS, __doc__, add_options)
