"""Run shell scripts that do not end by themselves, as a user would, and read their output."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def shell(script: str, folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run a script in a shell and process group of its own; end it when the context closes."""
    process = subprocess.Popen(  # noqa: S603
        ["bash", "-c", script],  # noqa: S607
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    watchdog = threading.Timer(120, os.killpg, (process.pid, signal.SIGKILL))
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def first_line(process: subprocess.Popen[str], wanted: str) -> str:
    """Return the first line of output that has any text."""
    assert process.stdout is not None and process.stderr is not None
    for line in process.stdout:
        if wanted in line:
            return line
    raise AssertionError(f"it ended without {wanted!r}: {process.stderr.read()}")
