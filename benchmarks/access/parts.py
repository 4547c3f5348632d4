"""What a part of the benchmark is, and which there are; as ``benchmarks.shore.parts``.

A part is a module ``benchmarks.access.<name>`` with ``HEADLINES`` (which of its figures also stand at the top of the
file), ``options(parser)`` and ``measure(options, say)``. It runs in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

Say = Callable[[str], None]

NAMES: Final = ("plan", "apply", "growth")


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
    return cast(Part, importlib.import_module(f"benchmarks.access.{name}"))


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One part's figures; what the process of its own runs."""
    return part(name).measure(options, say)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
