"""Run the full duck voyage with twenty customers (``make chaos``): no customer reads a byte of another.

``tests/integration/shore/test_leaks.py`` is a smaller version that always runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.leak_world import CHECKS, sailed

pytestmark = [pytest.mark.e2e, pytest.mark.chaos, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_leaks(tmp_path: Path, seed: int) -> None:
    with sailed(tmp_path, seed=seed, containers=200, hours=3, bookings=600) as world:
        for check in CHECKS:
            check(world)
