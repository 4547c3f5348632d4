"""What ``fairlead audit`` shows of a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fairlead.cli.app import app
from replication.audit import Audit


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the command with a result."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    sites = ""
    for site in ("east", "west"):
        monkeypatch.setenv(f"FAIRLEAD_SECRET_{site.upper()}_ADMIN", "x")
        sites += f"  {site}: {{kind: datacentre, kafka: {{bootstrap: '{site}:9092', security: SASL_PLAINTEXT}}}}\n"
    file = tmp_path / "two.yaml"
    file.write_text(f"name: two\nsites:\n{sites}streams: {{orders: {{}}}}\nlinks: []\n", encoding="utf-8")

    def run(result: Audit, *options: str) -> Result:
        async def compared(*_: Any, **__: Any) -> Audit:
            return result

        monkeypatch.setattr("fairlead.cli.commands.audit.compare_records", compared)
        return CliRunner().invoke(app, ["audit", "east", "west", "--topology", str(file), *options])

    return run


def test_logs_that_links_carry_and_one_site_lacks_are_named(shown: Any) -> None:
    lacking = [f"orders.{n}" for n in range(7)]
    result = Audit("east", "west", "full", only_a=[*lacking, "private.x"], missing_b=lacking)
    done = shown(result)
    assert done.exit_code == 0, done.output
    assert (
        "west lacks 7 logs that links from east carry: orders.0, orders.1, orders.2, orders.3, orders.4" in done.output
    )
    assert "and 2 more" in done.output and "east lacks" not in done.output
    found = json.loads(shown(result, "--json").stdout)
    assert (found["missing_a"], found["missing_b"]) == ([], lacking)
