"""Prometheus' own view of its files: promtool checks them, and tries the alert rules (``rules_test.yaml``)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import yaml

import compose
from compose.fleet import plan
from compose.render import render
from topologies.loader.load import load, locate

RULES = Path(compose.__file__).parent / "monitoring" / "rules.yaml"
TRIED = Path(__file__).with_name("rules_test.yaml")


def promtool(folder: Path, *what: str) -> None:
    command = ["promtool", *what]  # tools/bootstrap.sh tests
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_accepts_the_rendered_configuration(tmp_path: Path) -> None:
    render(plan(load("minimal", env={})), locate("minimal"), tmp_path)
    promtool(tmp_path / "monitoring" / "prometheus", "check", "config", "prometheus.yaml")
    promtool(tmp_path / "monitoring" / "prometheus", "check", "rules", "rules.yaml")


def test_the_alert_rules_fire_in_time(tmp_path: Path) -> None:
    for file in (RULES, TRIED):
        shutil.copy(file, tmp_path)
    promtool(tmp_path, "test", "rules", TRIED.name)


def test_every_alert_rule_has_a_test() -> None:
    rules = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    fired = {
        case["alertname"]
        for test in yaml.safe_load(TRIED.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert fired == rules
