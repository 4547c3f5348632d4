"""What a part of the benchmark is, and which there are.

A part is a module ``benchmarks.shore.<name>`` with

- ``HEADLINES``: which of its figures also stand at the top of the file, under their own names;
- ``options(parser)``: its command line options, with the sizes that the targets are about as defaults;
- ``measure(options, say) -> dict``: the figures, ready for JSON. It runs in a process of its own, so it may start a
  Spark session and leave it; brokers and files it ends and removes itself. It raises what goes wrong.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

Say = Callable[[str], None]

NAMES: Final = ("ingest", "skew", "alerts", "point_query")


class Part(Protocol):
    """Such a module."""

    HEADLINES: tuple[str, ...]

    def options(self, parser: argparse.ArgumentParser) -> None: ...
    def measure(self, options: argparse.Namespace, say: Say) -> dict[str, Any]: ...


def part(name: str) -> Part:
    """The module of a part.

    Raises:
        ModuleNotFoundError: there is none of this name.
    """
    return cast(Part, importlib.import_module(f"benchmarks.shore.{name}"))


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One part's figures; what the process of its own runs."""
    return part(name).measure(options, say)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
