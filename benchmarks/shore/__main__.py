"""Measure shore, print, and write ``build/bench/shore.json``.

    python -m benchmarks.shore [--only ingest,skew,alerts,point_query,feeds] [--logs N] [--readings N] ...

``ingest``: 1,000,000 readings of 10,000 logs to table ``readings``, warm, a trigger with nothing new, and how much
memory two admission limits need. ``skew``: one log with very many records beside very many with few. ``alerts``: how
many readings a second the stateful job takes, and how fast its state is back. ``point_query``: one container among 100
million readings. ``feeds``: how long a reading takes from its log to a customer's feed.

Wants a machine that does nothing else; the numbers make it smaller, for trying out. A part that fails has an ``error``
in the file, the others go on, and the exit code is 1. With ``--only`` the other parts keep what the file has of them.
"""

from __future__ import annotations

from typing import Final

from benchmarks import _suite

NAMES: Final = ("ingest", "skew", "alerts", "point_query", "feeds")

if __name__ == "__main__":
    _suite.main("shore", NAMES, __doc__)
