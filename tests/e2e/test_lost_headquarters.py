"""Sail the scenario in which the headquarters end for good: shore and a customer's program go on at another site."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import Cli

pytestmark = [pytest.mark.chaos, pytest.mark.e2e, pytest.mark.timeout(1200)]


def test_shore_and_a_customer_go_on_when_the_headquarters_are_lost(cli: Cli) -> None:
    """Nothing is lost and nothing is there twice: the report counts it, in logs, tables, feeds, and what the program
    read at both sites. Afterwards commands find shore at its new site, and the old one is refused."""
    ran = cli(
        "voyage", "run", "--scenario", "lost-headquarters", "--containers", "8",
        "--report", str(cli.home / "report"), "--json", timeout=1100,
    )  # fmt: skip
    assert ran.code == 0, ran.err + ran.out
    report = ran.json
    assert report["ok"], [line for line in report["lines"] if not line["ok"]]
    assert report["readings_lost"] == report["readings_repeated"] == report["logs_differing"] == 0
    figures = report["headquarters"]
    assert (figures["site"], figures["heir"], figures["customer"]) == ("los-angeles", "tokyo", "ducks")
    assert figures["lost"] == figures["repeated"] == 0
    assert figures["read_before"] > 0 and figures["read_after"] > 0
    assert report["customers"]["ducks"]["read"] == report["customers"]["ducks"]["entitled"] > 0

    status = cli("shore", "status", "--json", "--topology", "two-headquarters")
    assert (status.json["site"]["site"], status.json["site"]["moved_from"]) == ("tokyo", "los-angeles")
    assert status.json["ok"], status.json["wrong"]
    again = cli("up", "los-angeles", "--topology", "two-headquarters")
    assert again.code == 0, again.err
    refused = cli("shore", "run", "--once", "--topology", "two-headquarters")
    assert refused.code != 0
    assert "shore is at tokyo since" in refused.err
    assert json.loads((cli.home / "two-headquarters" / "site.json").read_text())["site"] == "tokyo"
