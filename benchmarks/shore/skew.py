"""Part ``skew``: not there yet."""

from __future__ import annotations

import argparse
from typing import Any, Final

from benchmarks.shore.parts import Say

HEADLINES: Final[tuple[str, ...]] = ()


def options(parser: argparse.ArgumentParser) -> None:
    """None yet."""


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    raise NotImplementedError("part skew")
