"""How fast custody moves, and what retention costs.

    python -m benchmarks.custody [--only calls,retention,seizure] [--sizes 1000,5000,10000] [--own 10000]
        [--brokers 1] [--seized 2000,20000]

``calls``: port calls of that many boxes, each on two fresh sites with a bridge and a replicator at each (a few minutes
in all). ``retention``: sweeps over that many own logs. ``seizure``: a port takes over all logs of a lost ship, with
three brokers for more than 10,000. A broker needs an open file for each log: where ``ulimit -n`` cannot be raised,
20,000 boxes need ``--brokers 3`` at each site.
"""

from __future__ import annotations

import argparse

from benchmarks.custody.port_call import measure_calls
from benchmarks.custody.retention import measure_retention
from benchmarks.custody.seizure import measure_seizures
from benchmarks.harness import main


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", default="1000,5000,10000", help="boxes of each call")
    parser.add_argument("--own", type=int, default=10_000, help="logs that a site holds and cuts by age")
    parser.add_argument("--seized", default="2000,20000", help="boxes of each lost ship")
    parser.add_argument("--brokers", type=int, default=1, help="of each site in a call; an odd number")


if __name__ == "__main__":
    parts = {
        "calls": measure_calls,
        "retention": measure_retention,
        "seizure": measure_seizures,
    }
    main("custody", parts, __doc__, add_options)
