"""Benchmarks of several parts: which there are, one process for each, and one file of figures.

A part is a module ``benchmarks.<suite>.<name>`` with

- ``HEADLINES``: which of its figures also stand at the top of the file, under their own names;
- ``options(parser)``: its command line options, with the sizes that the targets are about as defaults;
- ``measure(options, say) -> dict``: the figures, ready for JSON. It runs in a process of its own, so it may start a
  Spark session and leave it; brokers and files it ends and removes itself. It raises what goes wrong.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import json
import multiprocessing as mp
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Protocol, cast

from benchmarks._results import FOLDER, machine, write
from fairlead.errors import FairleadError

Say = Callable[[str], None]


class Part(Protocol):
    """Such a module."""

    HEADLINES: tuple[str, ...]

    def options(self, parser: argparse.ArgumentParser) -> None: ...
    def measure(self, options: argparse.Namespace, say: Say) -> dict[str, Any]: ...


def part(suite: str, name: str) -> Part:
    """The module of a part.

    Raises:
        ModuleNotFoundError: there is none of this name.
    """
    return cast(Part, importlib.import_module(f"benchmarks.{suite}.{name}"))


def measure(suite: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One part's figures; what the process of its own runs."""
    return part(suite, name).measure(options, say)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main(suite: str, names: Sequence[str], description: str | None, arguments: Sequence[str] | None = None) -> None:
    """Run the parts that the command line asks for, print, and write ``build/bench/<suite>.json``.

    A part that fails has an ``error`` in the file, the others go on, and the exit code is 1. With ``--only`` the other
    parts keep what the file has of them.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(names), help="parts, separated by commas")
    for name in names:
        part(suite, name).options(parser)
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(names):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing may be left behind
    found = _before(suite) if set(chosen) != set(names) else {}
    failed = [name for name in names if name in chosen and not _run(suite, name, options, found)]
    print(json.dumps(found, indent=1))
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _run(suite: str, name: str, options: argparse.Namespace, found: dict[str, Any]) -> bool:
    """Put the figures of one part into ``found`` and write the file; False when it failed."""
    say(name)
    here = machine()
    figures: dict[str, Any]
    try:
        # A process of its own, where no other part has been before.
        with ProcessPoolExecutor(1, mp_context=mp.get_context("spawn")) as pool:
            figures = pool.submit(measure, suite, name, options).result()
    except (SystemExit, Exception) as error:
        traceback.print_exc()
        figures = {"error": error.what if isinstance(error, FairleadError) else f"{type(error).__name__}: {error}"}
    for headline in part(suite, name).HEADLINES:
        found.pop(headline, None)
        if headline in figures:
            found[headline] = figures[headline]
    found[name] = {**figures, "machine": here, "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds")}
    write(suite, found)
    return "error" not in figures


def _before(suite: str) -> dict[str, Any]:
    file = FOLDER / f"{suite}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
