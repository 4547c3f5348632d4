"""The runbook has a word on everything that the code can show to an operator."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from handbook import inventory, runbook


def test_everything_has_an_entry() -> None:
    missing = [(entry.section, entry.name) for entry in runbook.entries(runbook.words()) if entry.missing]
    assert not missing, "write them into handbook/runbook.yaml, then: python -m handbook"


def test_no_entry_stands_for_nothing() -> None:
    assert not list(runbook.strangers(runbook.words())), "take them out of handbook/runbook.yaml"


def test_what_has_no_entry_is_noticed() -> None:
    written = copy.deepcopy(runbook.words())
    del written["states"]["log"]["diverged"]
    written["metrics"]["fairlead_target_up"] = ["something", {"a colon": "made a mapping of it"}]
    del written["errors"]["DataLossError"]
    missing = {(entry.section, entry.name) for entry in runbook.entries(written) if entry.missing}
    assert missing == {("log", "diverged"), ("metrics", "fairlead_target_up"), ("errors", "DataLossError")}


def test_what_stands_for_nothing_is_noticed() -> None:
    written = copy.deepcopy(runbook.words())
    written["states"]["log"]["lost-at-sea"] = ["is no state", "nothing"]
    written["errors"]["NoSuchError"] = "nothing"
    assert set(runbook.strangers(written)) == {("log", "lost-at-sea"), ("errors", "NoSuchError")}


def test_no_collector_of_metrics_is_forgotten() -> None:
    assert inventory.collectors() == frozenset(inventory.COLLECTORS)


def test_the_inventory_finds_what_is_known_to_be_there() -> None:
    errors = {error.name: error for error in inventory.errors()}
    assert errors["BarrierTooLong"].exit_code == 4 and errors["BarrierTooLong"].retriable
    assert errors["StalePlan"].module == "acl.stale" and not errors["StalePlan"].retriable
    assert {"mqtt-dropped", "mqtt-session-lost"} <= set(inventory.alarms())
    assert "OVERBOARD" in inventory.GROUPS["alert"] and "STRAYS_WAITING" in inventory.GROUPS["alert"]
    assert set(inventory.exit_codes()) == {0, 1, 2, 3, 4, 5, 130}


def test_alert_rules_are_found_in_prometheus_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deploy" / "rules").mkdir(parents=True)
    text = "groups:\n  - rules:\n      - alert: TargetDown\n        expr: fairlead_target_up == 0\n"
    (tmp_path / "deploy" / "rules" / "fairlead.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(inventory, "__file__", str(tmp_path / "handbook" / "inventory.py"))
    assert inventory.rules() == ("TargetDown",)
    assert runbook.Entry("rules", "TargetDown", missing=True) in set(runbook.entries(runbook.words()))
