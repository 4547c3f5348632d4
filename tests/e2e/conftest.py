"""Run the command line as a user does: in its own processes, with its own home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Ran:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class Cli:
    """Run ``fairlead`` with a home of its own and no terminal."""

    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "FAIRLEAD_HOME": str(self.home), "COLUMNS": "120"}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "fairlead.cli.app", *arguments]

    def __call__(self, *arguments: str, timeout: float = 600) -> Ran:
        done = subprocess.run(  # noqa: S603 - our own command
            self.command(*arguments),
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """Provide ``fairlead`` with a fresh home; afterwards delete the sites of the topologies that tests use."""
    run = Cli(tmp_path_factory.mktemp("home"))
    yield run
    for topology in ("big-blue", "minimal", "two-headquarters"):
        if (run.home / topology).exists():
            assert run("down", "--purge", "--yes", "--topology", topology).code == 0
