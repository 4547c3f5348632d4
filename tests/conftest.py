"""Settings for all tests."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import settings

# What commands print does not depend on the terminal that the tests happen to run in.
os.environ["COLUMNS"] = "160"

# Machines are noisy: a slow example is no failure. What is found once is tried again first (the example database). On a
# build machine (CI set, as Hypothesis' own profile "ci" has it) the examples of a test are the same each time, so that
# a change is judged by what it changed; new examples are looked for everywhere else.
settings.register_profile("fairlead", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("fairlead")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """With several workers (make test): a file's tests stay together, and all tests of Spark, which is started once."""
    for item in items:
        file = item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group("spark" if item.get_closest_marker("spark") else file))
