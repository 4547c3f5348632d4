"""The source imports little: Spark starts a Python process for each of its streams, and others for each batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import shore.tables
from shore.tables.model import Table

ROOT = Path(__file__).parents[4]
SHOWN = "import sys, shore.datasource; print(*sys.modules)"
DRIVERS = {"duckdb", "pandas", "topologies", "shore.tables.catalogue", "shore.tables.reference"}


def test_the_source_brings_nothing_that_only_drivers_need() -> None:
    ran = subprocess.run([sys.executable, "-c", SHOWN], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    imported = set(ran.stdout.split())
    assert "shore.source.readings" in imported
    assert imported & DRIVERS == set()


def test_tables_are_there_when_somebody_wants_them() -> None:
    assert shore.tables.TABLES["readings"].name == "readings"
    assert shore.tables.Table is Table
    with pytest.raises(AttributeError, match="no attribute 'TABLE'"):
        shore.tables.TABLE  # noqa: B018
