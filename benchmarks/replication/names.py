"""What both sides of the benchmark call the two clusters. Imports nothing: the measured processes read it too."""

from __future__ import annotations

from typing import Final

SOURCE: Final = "alpha"
TARGET: Final = "beta"
USER: Final = "admin"
