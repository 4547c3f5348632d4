"""What a program loads before it does anything: memory and seconds that every site pays. Modules, not figures."""

from __future__ import annotations

import subprocess
import sys

import pytest

TABLES = ("pandas", "pyarrow", "duckdb", "deltalake", "pyspark", "altair", "numpy")
STARTING = ("fairlead.jars", "fairlead.local.sites", "fairlead.local.formatting", "paho", "filelock")
REPLICATOR = "replication.replicator, fairlead.local.directory, topologies.directory"


def loaded(program: str) -> set[str]:
    """All modules that a program has loaded when it ends; packages by their name alone, too."""
    ask = f"{program}\nimport sys\nprint(' '.join(sys.modules))"
    command = [sys.executable, "-c", ask]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - ours
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("program", "unwanted"),
    [
        pytest.param(
            f"import {REPLICATOR}",
            (*TABLES, *STARTING, "kafka", "awscrt", "cramjam", "networkx", "searoute", "typer", "rich"),
            id="replicator",
        ),
        pytest.param(
            "import fairlead.commands.replicate, topologies.load",
            (*TABLES, *STARTING, "kafka", "networkx", "searoute", "prometheus_client"),
            id="fairlead replicate",
        ),
        *(
            pytest.param(f"import fairlead.commands.{each}", (*TABLES, *STARTING, "kafka", "searoute"), id=each)
            for each in ("link", "audit", "acl", "feed")
        ),
        pytest.param(
            "import fairlead.commands.shorestatus", ("pyspark", "altair", "searoute", "kafka"), id="shore status"
        ),
        pytest.param(
            "import fairlead.commands.sites, fairlead.commands.sitestatus", (*TABLES, "cryptography"), id="status"
        ),
        pytest.param("import edge.bridge", (*TABLES, "fairlead.jars", "kafka", "networkx"), id="bridge"),
        pytest.param(
            "import fairlead.cli",
            (*TABLES, *STARTING, "kafka", "confluent_kafka", "asyncio", "pydantic", "networkx", "topologies"),
            id="fairlead --help",
        ),
    ],
)
def test_nothing_is_loaded_that_is_not_needed(program: str, unwanted: tuple[str, ...]) -> None:
    assert loaded(program).isdisjoint(unwanted)
