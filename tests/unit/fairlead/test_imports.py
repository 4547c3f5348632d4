"""What a program loads before it does anything: memory and seconds that every site pays. Modules, not figures.

And which packages are required: each is imported by something that is shipped, and what images install is locked as
in the whole lock.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SHIPPED = ("acl", "board", "compose", "edge", "fairlead", "notify", "replication", "shore", "simulators", "topologies")
BY_OTHERS = {"pandas", "protobuf", "python_multipart"}  # Spark and Starlette load them (docs/dependencies.md)
TABLES = ("pandas", "pyarrow", "duckdb", "deltalake", "pyspark", "numpy")
STARTING = ("fairlead.jars", "fairlead.local.sites", "fairlead.local.formatting", "paho", "filelock")
REPLICATOR = "replication.replicator, fairlead.local.registry, topologies.endpoints"


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
            "import fairlead.cli.commands.replicate, topologies.loader.load",
            (*TABLES, *STARTING, "kafka", "networkx", "searoute", "prometheus_client"),
            id="fairlead replicate",
        ),
        *(
            pytest.param(f"import fairlead.cli.commands.{each}", (*TABLES, *STARTING, "kafka", "searoute"), id=each)
            for each in ("link", "audit", "acl.app", "feed")
        ),
        pytest.param("import fairlead.cli.commands.shore.app", ("pyspark", "searoute", "kafka"), id="shore status"),
        pytest.param(
            "import shore.tables.catalogue, shore.feeds.entitlement, shore.feeds.ashore",
            ("duckdb", "deltalake"),
            id="what tables and feeds must have",
        ),
        pytest.param(
            "import fairlead.cli.commands.sites.local, fairlead.cli.commands.sites.status",
            (*TABLES, "cryptography"),
            id="status",
        ),
        pytest.param(
            "import board.pages.voyage, board.pages.container, board.pages.port, board.pages.fleet",
            ("authlib", "httpx2", "joserfc", "prometheus_client", "pyspark"),
            id="reports of the board's pages",
        ),
        pytest.param(
            "from fairlead.cli.commands.board import leave_out_pandas; leave_out_pandas(); import board.server",
            ("pandas", "pyspark", "prometheus_client"),
            id="fairlead board",
        ),
        pytest.param("import edge.bridge", (*TABLES, "fairlead.jars", "kafka", "networkx"), id="bridge"),
        pytest.param(
            "import fairlead.cli.app",
            (*TABLES, *STARTING, "kafka", "confluent_kafka", "asyncio", "pydantic", "networkx", "topologies"),
            id="fairlead --help",
        ),
    ],
)
def test_nothing_is_loaded_that_is_not_needed(program: str, unwanted: tuple[str, ...]) -> None:
    assert loaded(program).isdisjoint(unwanted)


def imported() -> set[str]:
    """First names of all modules that the product imports."""
    found: set[str] = set()
    for folder in SHIPPED:
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    found |= {each.name.partition(".")[0] for each in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    found.add(node.module.partition(".")[0])
    return found


def test_every_required_package_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {re.split(r"[<>=!~ \[]", each)[0].lower().replace("-", "_") for each in project["dependencies"]}
    modules: dict[str, set[str]] = {}
    for module, distributions in packages_distributions().items():
        for each in distributions:
            modules.setdefault(each.lower().replace("-", "_"), set()).add(module)
    used = imported()
    assert {name for name in required if not used & modules.get(name, set())} == BY_OTHERS


def locked(file: str) -> dict[tuple[str, str], set[str]]:
    """The hashes of each package and version in a lock file."""
    text = (ROOT / file).read_text(encoding="utf-8")
    pins = re.findall(r"^([a-z0-9-]+)==([^ ]+)[^\n]*\\\n((?: +--hash=[^\n]+\n)+)", text, re.MULTILINE)
    return {(name, version): set(re.findall(r"sha256:[0-9a-f]{64}", hashes)) for name, version, hashes in pins}


def test_the_run_time_lock_is_a_part_of_the_lock_with_the_same_hashes() -> None:
    run_time, everything = locked("requirements-run.lock"), locked("requirements.lock")
    assert len(run_time) > 40 and all(run_time.values())
    assert {pin: everything.get(pin) for pin in run_time} == run_time
