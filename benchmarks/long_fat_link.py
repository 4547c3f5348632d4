"""One log over a long fat line: a round trip of 250 ms at 100 Mbit/s. How much of the line is used?

    python -m benchmarks.long_fat_link [--megabytes 200]

Writes ``build/bench/long_fat_link.json``: ``share`` of the line between the 20th megabyte and the last one, when the
link has learned how much to ask for; ``seconds_to_first`` from the start of the replicator to the first data;
``share_from_start`` over everything. The line is a proxy that delays and limits; TCP's own windows are not part of it.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import secrets
import time

import uvloop

from benchmarks._lines import carried, two_sites
from benchmarks._results import machine, write

RTT, LINE = 0.25, 100e6
BATCH, RECORD = 500, 1000  # batches of half a megabyte
WARM = 20_000_000


async def measure(megabytes: int) -> dict[str, float]:
    async with two_sites() as lines:
        stream = "b" + secrets.token_hex(4)
        (log,) = await lines.make([f"{stream}.alpha"])
        end = megabytes * 1_000_000 // RECORD
        for offset in range(0, end, BATCH):
            await lines.append([log], offset, BATCH, RECORD)
        began = time.monotonic()
        async with lines.copying({stream: {}}, rtt=RTT, line=LINE) as (way, _):
            first = await carried(way, 50_000)
            warm = await carried(way, WARM)
            last = await carried(way, end * RECORD)
            await lines.copied(log, end)
            whole = time.monotonic() - began
        line = LINE / 8
        return {
            "megabytes": megabytes,
            "round_trip_ms": RTT * 1000,
            "line_mbit": LINE / 1e6,
            "share": round((end * RECORD - WARM) / (last - warm) / line, 3),
            "share_from_start": round(end * RECORD / whole / line, 3),
            "seconds_to_first": round(first - began, 2),
            "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200)
    options = parser.parse_args()
    busy = machine()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(measure(options.megabytes))
    for name, figure in found.items():
        print(f"{name:18}{figure}")
    write("long_fat_link", {**found, "machine": busy})


if __name__ == "__main__":
    main()
