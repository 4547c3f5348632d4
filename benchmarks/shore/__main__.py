"""The cost of shore: tables, alerts, queries, feeds.

    python -m benchmarks.shore [--only ingest,skew,alerts,point_query,feeds,growth,once,outlook] [--logs N] ...

``ingest``: 1,000,000 readings of 10,000 logs to table ``readings``, warm, a trigger with nothing new, and how much
memory two admission limits need. ``skew``: one log with very many records beside very many with few. ``alerts``: how
many readings a second the stateful job takes, and how fast its state is back. ``point_query``: one container among 100
million readings. ``feeds``: how long a reading takes from its log to a customer's feed. ``growth``: what a trigger of
each derived query costs with a history of 1, 10 and 100 days. ``once``: a first run over a voyage of 60 boxes, and one
with a single new reading. ``outlook``: how well that table says when cargo leaves its band.

Use a machine that does nothing else. The options make it smaller, for trying out.
"""

from __future__ import annotations

import argparse
from typing import Final

from benchmarks.harness import main
from benchmarks.shore import alerts, feeds, growth, ingest, once, outlook, point_query, skew

PARTS: Final = {
    "ingest": ingest.measure,
    "skew": skew.measure,
    "alerts": alerts.measure,
    "point_query": point_query.measure,
    "feeds": feeds.measure,
    "growth": growth.measure,
    "once": once.measure,
    "outlook": outlook.measure,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    for part in (ingest, skew, alerts, point_query, feeds, growth, once, outlook):
        part.add_options(parser)


if __name__ == "__main__":
    main("shore", PARTS, __doc__, add_options)
