"""Part ``point_query``: not there yet."""

from __future__ import annotations

import argparse
from typing import Any, Final

from benchmarks.shore.parts import Say

HEADLINES: Final[tuple[str, ...]] = ("point_query_seconds",)


def options(parser: argparse.ArgumentParser) -> None:
    """None yet."""


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    raise NotImplementedError("part point_query")
