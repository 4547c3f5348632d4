"""Settings for all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import settings

from tests.support.examples import SUITE, WHOLE
from tests.support.scheduling import FileScheduling

# What commands print does not depend on the terminal that the tests happen to run in.
os.environ["COLUMNS"] = "160"

# Machines are noisy: a slow example is no failure. What is found once is tried again first (the example database). On a
# build machine (CI set, as Hypothesis' own profile "ci" has it) the examples of a test are the same each time, so that
# a change is judged by what it changed; new examples are looked for everywhere else. The suite tries fewer of them than
# make chaos, which chooses the other profile.
for name, examples in (("fairlead", SUITE), ("whole", WHOLE)):
    settings.register_profile(name, deadline=None, derandomize="CI" in os.environ, max_examples=examples)
settings.load_profile("fairlead")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sites",
        choices=("processes", "containers", "kafka-3.9"),
        default="processes",
        help="what the sites of tests/integration are: processes of this machine, containers of the image fairlead, or "
        "processes with an older Kafka",
    )


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling:
    """With several workers (make test): what a file's tests share is made once."""
    return FileScheduling(config, log)


def pytest_testnodedown(node: Any, error: object) -> None:
    """Say how a worker process ended that has died: by which signal, or with which exit code."""
    if not error:
        return
    try:
        ended: object = node.gateway._io.popen.wait(timeout=10)  # noqa: SLF001 - execnet has no public way
    except subprocess.TimeoutExpired:
        ended = "none: it still runs, but has closed its channel"
    sys.stderr.write(f"\n{node.gateway.id} has died, exit code {ended} (negative: killed by that signal)\n")
