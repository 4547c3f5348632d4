"""``make test`` runs a file's tests in one worker, and all tests of Spark in one: what they share is made once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.scheduling import scope_of


def test_a_file_is_a_group_and_sparks_tests_are_one() -> None:
    assert scope_of("tests/unit/wire/test_batch.py::Sizes::test_a[x::y]") == "tests/unit/wire/test_batch.py"
    assert scope_of("tests/integration/shore/test_a.py::test_b") == scope_of(
        "tests/integration/shore/test_c.py::test_d"
    )


def test_workers_are_given_groups() -> None:
    """pytest and pytest-xdist agree on how; once they did not, and shared fixtures were made in every worker."""
    this = Path(__file__)
    chosen = f"{this}::test_a_file_is_a_group_and_sparks_tests_are_one"
    command = [sys.executable, "-m", "pytest", "-n", "1", "-v", "-p", "no:cacheprovider", chosen]
    done = subprocess.run(command, cwd=this.parents[3], capture_output=True, text=True, check=False, timeout=120)  # noqa: S603
    assert "scheduling tests via FileScheduling" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
