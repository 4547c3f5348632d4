"""``make test`` runs a file's tests in one worker, and all tests of Spark in one: what they share is made once. What
takes long begins first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.scheduling import LONG, SPARK, longest, scope_of

ROOT = Path(__file__).parents[3]


def test_a_file_is_a_group_and_sparks_tests_are_one() -> None:
    assert scope_of("tests/unit/wire/test_batch.py::Sizes::test_a[x::y]") == "tests/unit/wire/test_batch.py"
    assert scope_of("tests/integration/shore/test_a.py::test_b") == scope_of(
        "tests/integration/shore/test_c.py::test_d"
    )


def test_what_takes_long_begins_first() -> None:
    short = scope_of("tests/unit/wire/test_batch.py::test_a")
    assert [longest({short, LONG[-1], SPARK}), longest({short, LONG[-1]}), longest({short})] == [SPARK, LONG[-1], None]


def test_at_the_end_are_tests_that_start_nothing() -> None:
    """One that starts sites and is alone in its file would be the last by its number of tests, and take minutes."""
    unit, sites = scope_of("tests/unit/wire/test_batch.py::test_a"), scope_of("tests/e2e/test_new.py::test_a")
    assert [longest([unit, sites]), longest([unit, sites, LONG[-1]])] == [sites, LONG[-1]]


def test_all_groups_that_take_long_are_there() -> None:
    assert [group for group in LONG if not (ROOT / group).exists()] == []
    assert [group for group in LONG if scope_of(f"{group}::test_a") != group] == []
    assert len(set(LONG)) == len(LONG)


def test_workers_are_given_groups() -> None:
    """pytest and pytest-xdist agree on how; once they did not, and shared fixtures were made in every worker."""
    this = Path(__file__)
    chosen = f"{this}::test_a_file_is_a_group_and_sparks_tests_are_one"
    command = [sys.executable, "-m", "pytest", "-n", "1", "-v", "-p", "no:cacheprovider", chosen]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)  # noqa: S603
    assert "scheduling tests via FileScheduling" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
