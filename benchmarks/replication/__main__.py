"""Replication beside MirrorMaker 2: the figures of docs/benchmarks/replication.md.

    python -m benchmarks.replication [--only many_topics,bulk,...,idle,latency,tls,growth,sharing,sizes,simulation]
        [--topics N] [--logs 10000,100000,500000]

Everything together takes about half an hour on a machine that does nothing else; ``--topics`` makes it smaller, for
trying out. ``python -m benchmarks.pages replication`` writes the page, and ``python -m tools.sizing_reference`` that of
``sizes`` and ``simulation``, docs/sizing.md.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Final

from benchmarks.harness import Measure, main
from benchmarks.replication import parts, sharing, simulation, sizes
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
    "sizes": sizes.measure,
    "simulation": simulation.measure,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topics", type=int, help="how many logs, instead of each part's own number")
    parser.add_argument(
        "--logs", type=_sizes, default=simulation.SIZES, help="sizes of the simulation, separated by commas"
    )


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


if __name__ == "__main__":
    main("replication", PARTS, __doc__, add_options)
