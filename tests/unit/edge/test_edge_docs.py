"""The examples in docs/alerts*.md work, and the table of alerts has every kind."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from edge.alerts.engine import AlertEngine, default_rules
from edge.alerts.rules.base import DwellRule
from edge.alerts.site_alerts import KINDS
from edge.alerts.thresholds import load_thresholds
from tests.support.edge.detecting import MINUTE, message
from tests.support.edge.samples import BOX_LOG

ROOT = Path(__file__).parents[3]
PAGE = "".join((ROOT / "docs" / name).read_text() for name in ("alerts.md", "alerts-overboard.md", "alerts-extend.md"))

TRY_SENSOR = """
from edge.ingest.classifier import Classifier
from edge.alerts.engine import AlertEngine
from tests.support.edge.detecting import message

engine = AlertEngine("star")
alerts = []
for n in range(13):
    seen = message(n, n * 600, measurements={"ethylene": 4.0})
    alerts += engine.judge_reading(seen, seen.log, seen.device_ms)
print([(alert.kind, alert.evidence[0].detail) for alert in alerts])
"""


def block(fence: str) -> str:
    found = re.search(rf"^```{fence}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_rule_of_the_page_is_short_and_works() -> None:
    """The example rule in docs/alerts-extend.md is short and works."""
    code = block("python rule")
    names: dict[str, Any] = {"__name__": "cargo"}
    exec(compile(code, "docs/alerts-extend.md", "exec"), names)  # noqa: S102 - the page's own example
    rule = names["CargoWarm"]()
    assert isinstance(rule, DwellRule)
    engine = AlertEngine("star", [*default_rules(), rule])
    said = []
    for n in range(60):
        probe = 12.0 if n < 40 else 4.0
        seen = message(
            n,
            n * 20 * MINUTE,
            setpoints={"temperature": 4.0},
            measurements={"cargoProbe1Temperature": probe, "supplyTemperature": 4.0},
        )
        said += engine.judge_reading(seen, BOX_LOG, seen.device_ms)
    assert [(alert.kind, alert.state, alert.severity) for alert in said] == [
        ("CARGO_WARM", "OPENED", "CRITICAL"),
        ("CARGO_WARM", "CLEARED", "CRITICAL"),
    ]
    assert said[0].evidence[0].detail == "cargo at 12.0 C, for 360 min"


def test_the_sensor_of_the_page_is_short_and_works(tmp_path: Path) -> None:
    """The example sensor in docs/alerts-extend.md is short and works."""
    patch = block("diff sensor")
    for package in ("edge", "fairlead", "topologies", "tests/support/edge"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "test_*.py"))
    (tmp_path / "tests/__init__.py").touch()
    (tmp_path / "tests/support/__init__.py").touch()
    command = ["git", "apply", "--unidiff-zero", "-"]
    subprocess.run(command, input=patch.encode(), cwd=tmp_path, check=True)  # noqa: S603 - the page's own patch
    tried = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", TRY_SENSOR], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert tried.stderr == ""
    assert tried.stdout.strip() == "[('ETHYLENE', 'ethylene 4.0 ppm, for 120 min')]"


def test_the_thresholds_of_the_page_are_taken(tmp_path: Path) -> None:
    """The example thresholds in the docs are accepted."""
    path = tmp_path / "thresholds.yaml"
    path.write_text(block("yaml"))
    mine = load_thresholds(path)
    assert mine.of("tulips").humidity.minimum == 80
    assert mine.of("frozen-fish").temperature.dwell == 30 * 60_000


def test_every_kind_of_alert_is_in_the_table() -> None:
    """The table of alerts in the docs has every kind."""
    for kind in (*(rule.kind for rule in default_rules()), *KINDS):
        assert re.search(rf"^\|[^|]*`{kind}`", PAGE, re.MULTILINE), kind
