"""Measure how custody moves, print, and write ``build/bench/custody.json``.

    python -m benchmarks.custody [--only calls,ledger] [--sizes 1000,5000,10000] [--logs 100000] [--brokers 1]

``calls`` are port calls of that many boxes, each on two fresh sites with a bridge and a replicator at each (a few
minutes in all); ``ledger`` is what it takes to read the ledgers of that many logs at start. With ``--only`` the other
part keeps what the file has of it. FAIRLEAD_BENCH_SIZES and FAIRLEAD_BENCH_LOGS say the same as the options. A broker
needs an open file for each log: where ``ulimit -n`` cannot be raised, 20,000 boxes need ``--brokers 3`` at each site.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import os
import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks._results import FOLDER, machine, write
from benchmarks.custody import call, ledger

SIZES: Final = "1000,5000,10000"
LOGS: Final = "100000"
TARGET: Final = {"containers": 5000, "seconds": 20.0, "ms_per_container_ratio": 1.0}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="calls,ledger", help="parts, separated by commas")
    parser.add_argument("--sizes", default=os.environ.get("FAIRLEAD_BENCH_SIZES", SIZES), help="boxes of each call")
    parser.add_argument("--logs", default=os.environ.get("FAIRLEAD_BENCH_LOGS", LOGS), help="logs in the ledgers")
    parser.add_argument("--brokers", type=int, default=1, help="of each site in a call; an odd number")
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    if unknown := set(chosen) - {"calls", "ledger"}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are calls, ledger")
    sizes = [int(size) for size in options.sizes.split(",")]
    found = _before() if set(chosen) != {"calls", "ledger"} else {}
    for name in chosen:
        here = machine()
        figures = asyncio.run(
            _calls(sizes, options.brokers) if name == "calls" else ledger.measure(int(options.logs), _say)
        )
        found[name] = {**figures, "machine": here, "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds")}
        write("custody", found)
    print(json.dumps(found, indent=1))


async def _calls(sizes: Sequence[int], brokers: int) -> dict[str, Any]:
    rows = []
    for count in sizes:
        _say(f"a port call of {count:,} boxes")
        rows.append(await call.measure(count, _say, brokers=brokers))
    cheapest, dearest = rows[0]["ms_per_container"], rows[-1]["ms_per_container"]
    return {"brokers": brokers, "rows": rows, "ms_per_container_ratio": round(dearest / cheapest, 2), "target": TARGET}


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _before() -> dict[str, Any]:
    file = FOLDER / "custody.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {name: part for name, part in known.items() if name in ("calls", "ledger")}


if __name__ == "__main__":
    main()
