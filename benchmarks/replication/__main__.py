"""Measure, print, and write ``build/bench/replication.json``.

    python -m benchmarks.replication [--only many_topics,bulk,...,idle,latency,tls,growth] [--topics N]

With ``--only`` the other parts keep what the file has of them. Everything together takes about half an hour and
wants a machine that does nothing else; ``--topics`` makes it smaller, for trying out.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from benchmarks._results import FOLDER, machine, write
from benchmarks.replication import bulk, growth, idle, latency, many_topics, secure
from benchmarks.replication.mirrormaker_side import DELIVERED, LEAN, TUNED, Setting, described

Part = Callable[[int | None], Coroutine[Any, Any, dict[str, Any]]]


def _many_topics(settings: Sequence[Setting]) -> Part:
    return lambda topics: many_topics.measure(topics or many_topics.TOPICS, settings=settings)


def _bulk(settings: Sequence[Setting]) -> Part:
    return lambda topics: bulk.measure(bulk.RECORDS if topics is None else topics * 100, settings=settings)


PARTS: Final[dict[str, Part]] = {
    "many_topics": _many_topics(DELIVERED),
    "bulk": _bulk(DELIVERED),
    "many_topics_lean": _many_topics(LEAN),
    "bulk_lean": _bulk(LEAN),
    "many_topics_tuned": _many_topics(TUNED),
    "bulk_tuned": _bulk(TUNED),
    "idle": lambda topics: idle.measure(topics or idle.LOGS),
    "latency": lambda topics: latency.measure(topics or latency.LOGS),
    "tls": lambda topics: secure.measure(secure.RECORDS if topics is None else topics * 100),
    "growth": lambda topics: growth.measure(growth.LOGS if topics is None else (topics // 10, topics // 3, topics)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--topics", type=int, help="how many logs, instead of each part's own number")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    found = _before() if set(chosen) != set(PARTS) else {}
    found["peer"] = described()
    for name in chosen:
        here = machine()
        figures = asyncio.run(_until_told(PARTS[name](options.topics)))
        found[name] = {**figures, "machine": here, "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds")}
        write("replication", found)
        print(f"{name:12}", json.dumps({key: value for key, value in figures.items() if key != "target"}, indent=1))


async def _until_told(part: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Run one part; Ctrl-C and SIGTERM end it, and its brokers with it."""
    task, loop = asyncio.ensure_future(part), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise SystemExit("stopped") from None


def _before() -> dict[str, Any]:
    file = FOLDER / "replication.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {name: part for name, part in known.items() if name in PARTS and "at" in part}


if __name__ == "__main__":
    main()
