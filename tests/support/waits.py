"""How long tests wait for what must come."""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 120.0
"""Seconds. A machine that builds is held up for half a minute now and then, and a longer wait only delays a failure.
Not for what must *not* come: such a test waits as long as it says."""
