"""The harness of all benchmarks: the command line, a process for each part, figures as a table and as JSON.

A benchmark gives ``main`` its parts, functions ``measure(options, say) -> figures``. Each part runs in a process of its
own, where no other part has been before; it ends its brokers and removes its files itself, and raises what goes wrong.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import multiprocessing as mp
import os
import platform
import signal
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from fairlead.errors import FairleadError

FOLDER: Final = Path("build/bench")
Figures = dict[str, Any]
Say = Callable[[str], None]
Measure = Callable[[argparse.Namespace, Say], Figures]
_NOT_SHOWN: Final = frozenset({"at", "machine", "target"})


def main(
    name: str,
    parts: Mapping[str, Measure],
    description: str | None,
    add_options: Callable[[argparse.ArgumentParser], None],
    arguments: Sequence[str] | None = None,
) -> None:
    """Measure the parts that the command line asks for, print them, and write ``build/bench/NAME.json``.

    A part that fails has an ``error`` in the file, the others go on, and the exit code is 1. With ``--only`` the other
    parts keep what the file has of them. The figures of a benchmark with one part are at the top of its file.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if len(parts) > 1:
        parser.add_argument("--only", default=",".join(parts), help="parts, separated by commas")
    add_options(parser)
    options = parser.parse_args(arguments)
    chosen = options.only.split(",") if len(parts) > 1 else list(parts)
    if unknown := set(chosen) - set(parts):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing may be left behind
    found = _known(name, parts) if set(chosen) != set(parts) else {}
    failed = []
    for part in chosen:
        say(part)
        figures = _measure_alone(parts[part], options)
        if "error" in figures:
            failed.append(part)
        found = {**found, part: figures} if len(parts) > 1 else figures
        for row in flatten(figures):
            print(f"{row[0]:<60} {row[1]}")
        write(name, found)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def say(text: str) -> None:
    """Print a line with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def write(name: str, figures: Figures) -> None:
    """Write ``build/bench/NAME.json``."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def flatten(figures: Figures, before: str = "") -> list[tuple[str, Any]]:
    """Numbers, words and yes or no; those of nested figures with their names joined. Lists are left out."""
    found: list[tuple[str, Any]] = []
    for key, value in figures.items():
        name = f"{before}{key.replace('_', ' ')}"
        if not before and key in _NOT_SHOWN:
            continue
        if isinstance(value, dict):
            found += flatten(value, f"{name}: ")
        elif isinstance(value, int | float | str):
            found.append((name, value))
    return found


def _known(name: str, parts: Mapping[str, Measure]) -> Figures:
    file = FOLDER / f"{name}.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {part: figures for part, figures in known.items() if part in parts}


def _measure_alone(measure: Measure, options: argparse.Namespace) -> Figures:
    """Figures, machine and time of one part; on an error, its text."""
    machine = describe_machine()
    figures: Figures
    try:
        with ProcessPoolExecutor(1, mp_context=mp.get_context("spawn")) as pool:
            try:
                figures = pool.submit(measure, options, say).result()
            except KeyboardInterrupt:
                for process in mp.active_children():
                    if process.pid is not None:
                        os.kill(process.pid, signal.SIGINT)
                raise
    except (SystemExit, Exception) as error:
        traceback.print_exc()
        figures = {"error": error.what if isinstance(error, FairleadError) else f"{type(error).__name__}: {error}"}
    return {**figures, "machine": machine, "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds")}


def describe_machine() -> Figures:
    """The machine and its load before the measurement."""
    return {
        "cpu_count": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "fsync_ms": round(_fsync_ms(), 3),
    }


def _fsync_ms() -> float:
    """Milliseconds until a small new file is on the disk that has the brokers' data (``TMPDIR``): the median of nine.
    A broker does that twice for each new log."""
    taken = []
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        for number in range(9):
            began = time.perf_counter()
            with (Path(folder) / str(number)).open("wb") as file:
                file.write(b"x" * 100)
                file.flush()
                os.fsync(file.fileno())
            taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)
