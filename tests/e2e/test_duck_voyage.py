"""Run the duck voyage by command, from sensor to Delta table and customer feed, then the commands that inspect it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Cli, Ran
from tests.support.operators_day import by_hand, rows_of_the_book

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

MARK = "@@ command "
PORTS = {"los-angeles", "tokyo", "singapore", "sydney"}


@pytest.fixture(scope="module")
def voyage(cli: Cli) -> Ran:
    """Run a small voyage in which some messages are invalid."""
    return cli(
        "voyage", "run", "big-blue", "--containers", "24", "--seed", "7", "--with-bad",
        "--report", str(cli.home / "report"), "--json", timeout=1100,
    )  # fmt: skip


@pytest.fixture(scope="module")
def report(voyage: Ran) -> Any:
    assert voyage.code == 0, voyage.err + voyage.out
    return voyage.json


def test_every_line_of_the_report_is_true(report: Any) -> None:
    false = [line for line in report["lines"] if not line["ok"]]
    assert report["ok"] is True, false
    assert report["readings_lost"] == report["readings_repeated"] == report["logs_differing"] == 0
    assert report["readings_published"] > 1000
    assert report["repeats_sent"] > 0
    assert report["delta_rows"] == report["delta_rows_expected"]


def test_the_alert_reached_every_port(report: Any) -> None:
    assert report["alert_seconds"].keys() == PORTS
    assert len(report["overboard"]) == report["overboard_alerts"] > 0
    assert report["false_alerts"] == 0


def test_the_next_port_was_up_to_date_before_each_arrival(report: Any) -> None:
    arrivals = {(each["ship"], each["port"]): each for each in report["arrivals"]}
    assert arrivals.keys() == {("duck-star", "singapore"), ("duck-star", "sydney"), ("blue-marlin", "tokyo")}
    for each in arrivals.values():
        assert each["ashore_here"] == each["ashore"] > 0 and each["own_here"] == each["own"] > 0
        assert each["boxes_here"] < each["boxes"], "what was measured at sea waits for the berth"


def test_customers_read_their_own_and_nothing_else(report: Any) -> None:
    assert report["customers"].keys() == {"ducks", "yellow", "red", "toyshop", "singapore-mpa"}
    for name, figures in report["customers"].items():
        assert figures["read"] == figures["entitled"]
        assert (figures["entitled"] > 0) == (name != "toyshop")  # toyshop's feed is coarse: it has no single readings
        assert figures["foreign_read"] == figures["repeated"] == 0
        assert figures["refused"]
        assert not figures["wrongly_allowed"]


def test_customers_get_the_alerts_of_their_boxes(report: Any) -> None:
    alerts = {name: figures["alerts"] for name, figures in report["customers"].items()}
    assert alerts.pop("singapore-mpa") is None
    for name in ("ducks", "yellow", "red"):
        assert alerts[name]["read"] == alerts[name]["due"] >= alerts[name]["raised"] > 0, name
    assert all(each["foreign"] == each["repeated"] == 0 for each in alerts.values())


def test_the_files_of_the_report(report: Any, cli: Cli) -> None:
    assert json.loads((cli.home / "report/report.json").read_text()) == report
    page = (cli.home / "report/report.html").read_text()
    assert "Every line is true" in page
    assert "<script src" not in page  # the page needs no network


def test_workers_are_stopped_and_sites_stay(report: Any, cli: Cli) -> None:
    status = cli("status", "--json")
    assert status.code == 0
    sites = {site["site"]: site for site in status.json["sites"]}
    assert sites.keys() == PORTS | {"duck-star", "blue-marlin", "ducks-hq"}
    assert all(site["kafka"]["up"] and site["mqtt"]["up"] for site in sites.values())
    assert status.json["workers"] == []


def test_tables_and_sql_need_no_jvm(report: Any, cli: Cli) -> None:
    tables = {table["name"]: table for table in cli("tables", "--json").json}
    assert tables["readings"]["rows"] == report["delta_rows"]
    counted = cli("sql", "select count(*) as n, count(distinct equipment_reference) as boxes from readings", "--json")
    assert counted.json == [{"n": report["delta_rows"], "boxes": 24}]
    wrong = cli("sql", "select * from reading")
    assert wrong.code != 0
    assert "readings" in wrong.err


def test_the_feed_of_a_customer(report: Any, cli: Cli) -> None:
    feed = cli("feed", "ducks", "--once", "--json", "--max", "5")
    assert feed.code == 0
    assert len(feed.out.splitlines()) == 5
    unknown = cli("feed", "duck")
    assert unknown.code == 3
    assert "ducks" in unknown.err


def test_the_ports_copies_are_identical(report: Any, cli: Cli) -> None:
    audit = cli("audit", "tokyo", "singapore", "--json")
    assert audit.code == 0
    assert audit.json["logs_differing"] == 0
    assert audit.json["logs_compared"] > 24


def test_access_is_explained(report: Any, cli: Cli) -> None:
    assert cli("acl", "drift").code == 0
    explained = cli("acl", "explain", "ducks", "feeds.ducks", "READ")
    assert explained.code == 0
    assert "feeds.ducks" in explained.out


def test_a_second_voyage_on_the_same_data_is_refused(report: Any, cli: Cli) -> None:
    again = cli("voyage", "run", "big-blue", "--containers", "24", "--seed", "8", "--report", str(cli.home / "again"))
    assert again.code == 3
    assert "fairlead down --topology big-blue --purge" in again.err
    assert not Path(cli.home / "again").exists()


RUN = """
import json, sys
from fairlead.cli.app import run
for words in json.loads(sys.argv[1]):
    if code := run(words):
        sys.exit(f"{words} ended with {code}")
"""


def test_every_command_of_the_book_runs(report: Any, cli: Cli) -> None:
    """Voyages of their own are sailed by other tests; feeds end with what they have, orders are only planned, and two
    tables are compared anew: the report has compared all. The next test runs the README's commands."""
    (box, *_) = report["overboard"]
    alerts = cli("alert", "list", "--json").json["alerts"]
    alert = next(each for each in alerts if each["equipmentReference"] == box)
    named = {"NUMBER": box, "ALERT": alert["alertID"], "SITE": alert["raisedAt"]}
    next_ones = {line.partition("  ")[0].rstrip() for line in by_hand()}
    commands = []
    for line in sorted({line for shown in rows_of_the_book().values() for line in shown}):
        words = [named.get(word, word) for word in shlex.split(line)]
        if words[0] == "pytest" or words[1:3] == ["voyage", "run"] or "two-headquarters" in words or line in next_ones:
            continue
        more = ["--once"] if words[1] == "feed" and "--client" not in words else []
        more += ["--dry-run"] if words[1:3] == ["alert", "ack"] else []
        more += ["--table", "readings", "--table", "excursions"] if words[1:3] == ["shore", "verify"] else []
        commands.append([*words[1:], *more])
    assert len(commands) > 25
    done = subprocess.run(  # noqa: S603 - our own commands, in one process: each alone would import all modules
        [sys.executable, "-c", RUN, json.dumps(commands)],
        env=cli.environment,
        cwd=cli.home,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])


def test_the_readme_by_hand_runs_as_it_stands_on_what_the_demo_left(report: Any, cli: Cli, tmp_path: Path) -> None:
    commands = by_hand()
    assert len(commands) > 10
    assert cli("down").code == 0  # as make demo ends
    (tmp_path / "build" / "demo").mkdir(parents=True)
    (tmp_path / "build" / "demo" / "home").symlink_to(cli.home)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    script = "".join(f"echo '{MARK}{n}'\n{command}\n" for n, command in enumerate(commands))
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(  # noqa: S603 - the README's own commands
        [bash, "-e"],
        input=script,
        cwd=tmp_path,
        env={**{name: value for name, value in os.environ.items() if name != "FAIRLEAD_HOME"}, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    shown = {commands[int(n)]: text for n, _, text in (part.partition("\n") for part in done.stdout.split(MARK)[1:])}
    assert done.returncode == 0, f"{list(shown)[-1]}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    assert list(shown) == commands

    def answer(of: str) -> str:
        (text,) = [text for command, text in shown.items() if command.startswith(f"fairlead {of}")]
        return text

    (box,) = {number for command in commands for number in re.findall(r"[A-Z]{4}\d{7}", command)}
    assert box in report["overboard"]
    assert not re.match(r"0 readings", answer("report container"))
    assert "overboard" in next(Path(cli.home).rglob(f"reports/{box}/{box}.html")).read_text(encoding="utf-8").lower()
    assert "duck-star" in answer("custody show")
    assert box in answer("acl explain")
    assert len(answer("feed ducks").splitlines()) >= 5
    assert "stopped" in answer("down")
