"""How long tests wait for something that must happen."""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 120.0
"""Seconds to wait for something that must happen.

A busy machine stalls for half a minute now and then, and a longer wait only delays a failure. Do not use it
for something that must *not* happen: such a test always waits that long.
"""
