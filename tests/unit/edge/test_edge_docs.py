"""docs/edge.md: its worked examples work, are as short as it says, and its tables have what the code has."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edge.detection.sustained import Sustained
from edge.detection.thresholds import WEIGHTS, default_thresholds, load_thresholds
from edge.detection.watch import Watch, default_rules
from edge.strayage import KIND as STRAYS_WAITING
from tests.unit.edge.detecting import MINUTE, message
from tests.unit.edge.samples import BOX_LOG

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "edge.md").read_text()
LONGEST = 40

TRY_SENSOR = """
from edge.classifier import Classifier
from edge.detection.watch import Watch
from tests.unit.edge.detecting import message

watch = Watch("star")
alerts = []
for n in range(13):
    seen = message(n, n * 600, measurements={"ethylene": 4.0})
    alerts += watch.see(seen, seen.log, seen.device_ms)
print([(alert.kind, alert.evidence[0].detail) for alert in alerts])
"""


def block(fence: str) -> str:
    found = re.search(rf"^```{fence}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def row(of: str) -> str:
    return next(line for line in PAGE.splitlines() if line.startswith("| ") and of in line.split("|")[1])


def test_the_rule_of_the_page_is_short_and_works() -> None:
    code = block("python rule")
    assert len(code.splitlines()) < LONGEST
    names: dict[str, Any] = {"__name__": "cargo"}
    exec(compile(code, "docs/edge.md", "exec"), names)  # noqa: S102 - the page's own example
    rule = names["CargoWarm"]()
    assert isinstance(rule, Sustained)
    watch = Watch("star", [*default_rules(), rule])
    said = []
    for n in range(60):
        probe = 12.0 if n < 40 else 4.0
        seen = message(
            n,
            n * 20 * MINUTE,
            setpoints={"temperature": 4.0},
            measurements={"cargoProbe1Temperature": probe, "supplyTemperature": 4.0},
        )
        said += watch.see(seen, BOX_LOG, seen.device_ms)
    assert [(alert.kind, alert.state, alert.severity) for alert in said] == [
        ("CARGO_WARM", "OPENED", "CRITICAL"),
        ("CARGO_WARM", "CLEARED", "CRITICAL"),
    ]
    assert said[0].evidence[0].detail == "cargo at 12.0 C, for 360 min"


def test_the_sensor_of_the_page_is_short_and_works(tmp_path: Path) -> None:
    patch = block("diff sensor")
    added = [line for line in patch.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert len(added) < LONGEST
    for package in ("edge", "fairlead/records", "tests/unit/edge"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "test_*.py"))
    for package in ("fairlead", "topologies"):
        for file in (ROOT / package).glob("*"):
            if file.suffix in (".py", ".yaml"):
                target = tmp_path / package / file.name
                target.parent.mkdir(exist_ok=True)
                shutil.copy(file, target)
    shutil.copytree(ROOT / "fairlead/wire", tmp_path / "fairlead/wire")
    (tmp_path / "tests/__init__.py").touch()
    (tmp_path / "tests/unit/__init__.py").touch()
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is needed to apply the page's patch")
    subprocess.run([git, "apply", "--unidiff-zero", "-"], input=patch.encode(), cwd=tmp_path, check=True)  # noqa: S603
    tried = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", TRY_SENSOR], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert tried.stderr == ""
    assert tried.stdout.strip() == "[('ETHYLENE', 'ethylene 4.0 ppm, for 120 min')]"


def test_the_thresholds_of_the_page_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "thresholds.yaml"
    path.write_text(block("yaml"))
    mine = load_thresholds(path)
    assert mine.of("tulips").humidity.minimum == 80
    assert mine.of("frozen-fish").temperature.dwell == 30 * 60_000


def test_every_kind_of_alert_is_in_the_table() -> None:
    for kind in (*(rule.kind for rule in default_rules()), STRAYS_WAITING):
        assert row(f"`{kind}`")


def test_every_commodity_with_limits_of_its_own_is_in_the_table() -> None:
    for name in default_thresholds().commodities:
        assert row(name)


def test_the_weights_of_the_page_are_the_defaults() -> None:
    weights = default_thresholds().default.overboard.weights
    assert {name: float(row(name).split("|")[2]) for name in WEIGHTS} == weights


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("POWER_LOST", "for 30 min"),
        ("SETPOINT", "0.3 degrees or more beside the booking's for 30 min"),
        ("TEMPERATURE", "2 degrees from the set point for 60 min"),
        ("HUMIDITY", "15 % from the unit's set point"),
        ("O2", "2 % from the unit's set point"),
        ("SILENCE", "4 of the device's usual intervals, at least 1 h"),
        ("OVERBOARD", "1.0 at sea, 1.6 in port, within 15 min"),
    ],
)
def test_the_numbers_of_the_page_are_the_defaults(kind: str, said: str) -> None:
    limits = default_thresholds().default
    overboard, silence = limits.overboard, limits.silence
    now = {
        "POWER_LOST": f"for {limits.power.dwell // 60_000} min",
        "SETPOINT": f"{limits.setpoint.tolerance:g} degrees or more beside the booking's for "
        f"{limits.setpoint.dwell // 60_000} min",
        "TEMPERATURE": f"{limits.temperature.tolerance:g} degrees from the set point for "
        f"{limits.temperature.dwell // 60_000} min",
        "HUMIDITY": f"{limits.humidity.tolerance:g} % from the unit's set point",
        "O2": f"{limits.o2.tolerance:g} % from the unit's set point",
        "SILENCE": f"{silence.intervals:g} of the device's usual intervals, at least {silence.at_least // 3_600_000} h",
        "OVERBOARD": f"{overboard.score_at_sea:.1f} at sea, {overboard.score_in_port:.1f} in port, within "
        f"{overboard.window // 60_000} min",
    }
    assert now[kind] == said
    assert said in row(f"`{kind}`")
