"""Measure access, print, and write ``build/bench/access.json``.

    python -m benchmarks.access [--only plan,apply,growth] [--customers N] [--containers N] ...

``plan``: planning for 200 customers at six sites with 50,000 containers. ``apply``: 2,000 changed rules at one site, a
real broker. ``growth``: how many rules worlds of several sizes have.

Wants a machine that does nothing else; the numbers make it smaller, for trying out. A part that fails has an ``error``
in the file, the others go on, and the exit code is 1. With ``--only`` the other parts keep what the file has of them.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import multiprocessing as mp
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final

from benchmarks._results import FOLDER, machine, write
from benchmarks.access.parts import NAMES, measure, part, say
from fairlead.errors import FairleadError

_NAME: Final = "access"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(NAMES), help="parts, separated by commas")
    for name in NAMES:
        part(name).options(parser)
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    if unknown := set(chosen) - set(NAMES):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    found = _before() if set(chosen) != set(NAMES) else {}
    failed = [name for name in NAMES if name in chosen and not _run(name, options, found)]
    print(json.dumps(found, indent=1))
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _run(name: str, options: argparse.Namespace, found: dict[str, Any]) -> bool:
    """Put the figures of one part into ``found`` and write the file; False when it failed."""
    say(name)
    here = machine()
    figures: dict[str, Any]
    try:
        # A process of its own, where no other part has been before.
        with ProcessPoolExecutor(1, mp_context=mp.get_context("spawn")) as pool:
            figures = pool.submit(measure, name, options).result()
    except (SystemExit, Exception) as error:
        traceback.print_exc()
        figures = {"error": error.what if isinstance(error, FairleadError) else f"{type(error).__name__}: {error}"}
    for headline in part(name).HEADLINES:
        found.pop(headline, None)
        if headline in figures:
            found[headline] = figures[headline]
    found[name] = {**figures, "machine": here, "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds")}
    write(_NAME, found)
    return "error" not in figures


def _before() -> dict[str, Any]:
    file = FOLDER / f"{_NAME}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


if __name__ == "__main__":
    main()
