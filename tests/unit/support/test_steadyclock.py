"""The clock for what must be quick on a machine that runs: it leaves out when nothing ran."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from tests.support.steadyclock import LONGEST, SteadyClock

SHOW = """
import sys, time
from tests.support.steadyclock import SteadyClock
with SteadyClock() as clock:
    began = time.monotonic()
    print("begun", flush=True)
    sys.stdin.readline()
    print(clock.seconds, time.monotonic() - began, flush=True)
"""


def test_it_counts_what_passes() -> None:
    began = time.monotonic()
    with SteadyClock() as clock:
        while clock.seconds < 3 * LONGEST:
            time.sleep(0.01)
        assert time.monotonic() - began >= 3 * LONGEST


def test_it_leaves_out_when_the_process_stood_still() -> None:
    held = subprocess.Popen([sys.executable, "-c", SHOW], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert held.stdout is not None and held.stdin is not None
    assert held.stdout.readline() == "begun\n"
    os.kill(held.pid, signal.SIGSTOP)
    time.sleep(4 * LONGEST)
    os.kill(held.pid, signal.SIGCONT)
    told, _ = held.communicate("go on\n")
    counted, passed = map(float, told.split())
    assert passed >= 4 * LONGEST
    assert counted <= passed - 3 * LONGEST
