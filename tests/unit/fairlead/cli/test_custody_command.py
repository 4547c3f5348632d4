"""``fairlead custody``: tables for people, bodies for programs, and what each ending says to a shell."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from rich.console import Console

from edge.messages import MessageId
from edge.strays.report import Kept, WaitingLog
from fairlead.cli import app as cli
from fairlead.cli import console as terminal
from fairlead.cli.commands.custody import app as custody
from fairlead.cli.commands.custody import app as custodyask
from fairlead.custody.ledger import Damaged, Missing
from fairlead.errors import ExitCode
from fairlead.kafka.client.reader import OffsetRange
from tests.support.edge.ledgers_in_memory import FakeLedgers, carried_out
from tests.support.ledgers import came_back, claimed, entry, refused

BOX = "BIGU1000005"
LOG = f"containers.{BOX}"
SEIZED = entry(18, 30, "sydney", "SEIZURE", log=LOG, by="sydney", ordered_by="ann", reason="sank")
HISTORY = [
    entry(1, 0, "tokyo", "GTIN", log=LOG),
    entry(2, 10, "star", "LOAD", log=LOG),
    entry(3, 1050, "tokyo", "DISC", log=LOG),
]
TOPOLOGY = """
name: pair
sites:
  head: {kind: hq, unlocode: USLAX}
  tokyo: {kind: port, unlocode: JPTYO}
  sydney: {kind: port, unlocode: AUSYD}
  star: {kind: ship, imo: "9074729"}
  ducks: {kind: customer}
streams:
  containers: {insert_point: moves, owners: [BIGU]}
links:
  - {from: tokyo, to: sydney, both: true, streams: {containers: all, custody: all}}
shore: {at: tokyo}
"""


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLedgers:
    """Every site knows the whole history; commands are those of ``fairlead custody`` alone."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cli, "app", custody.app)
    made = tmp_path / "pair.yaml"
    made.write_text(TOPOLOGY, encoding="utf-8")
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", str(made))
    ground = FakeLedgers({site: list(HISTORY) for site in ("head", "tokyo", "sydney", "star")})

    @contextlib.asynccontextmanager
    async def open_ledgers(*_: Any) -> AsyncIterator[FakeLedgers]:
        yield ground

    monkeypatch.setattr(custodyask, "open_ledgers", open_ledgers)
    return ground


def say(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = ExitCode.OK) -> str:
    assert cli.run(list(arguments)) == code
    return capsys.readouterr().out


def body(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = ExitCode.OK) -> Any:
    return json.loads(say(capsys, *arguments, "--json", code=code))


def test_the_chain_of_a_container(ground: FakeLedgers, capsys: pytest.CaptureFixture[str]) -> None:
    ground.entries["tokyo"] += [SEIZED, came_back_here(), refused_here()]
    told = say(capsys, "show", BOX)
    assert f"{LOG} is held by sydney in term 18 (ledgers at tokyo)" in told
    for part in (
        "1,051",
        "lost: cut off by term 18",
        "ordered by ann",
        "sank",
        "now",
        "star came back with 42 offsets",
    ):
        assert part in told
    assert "refused by tokyo" in told and "order o1" in told
    answer = body(capsys, "show", LOG)
    assert (answer["at"], answer["holder"], answer["term"]) == ("tokyo", "sydney", 18)
    assert [(e["term"], e["from_offset"], e["to_offset"], e["lost"]) for e in answer["intervals"]] == [
        (1, 1, 10, False),
        (2, 11, 30, False),
        (3, 1051, 72, True),
        (18, 31, None, False),
    ]
    assert answer["intervals"][0]["event_date_time"] == "2026-03-01T13:00:00Z"
    assert (answer["returns"][0]["kept"], answer["refusals"][0]["order_id"]) == (42, "o1")
    assert answer["ledgers"] == {"read": ["custody.tokyo"], "damaged": [], "missing": [], "refused": []}
    assert body(capsys, "show", BOX, "--site", "head")["holder"] == "tokyo"


@pytest.mark.usefixtures("narrow")
def test_holders_are_whole_at_80_columns(ground: FakeLedgers, capsys: pytest.CaptureFixture[str]) -> None:
    why = "the ship has not answered for a week, and the owner has given it up"
    long = entry(18, 30, "port-of-los-angeles", "SEIZURE", log=LOG, by="los-angeles", ordered_by="ann", reason=why)
    ground.entries["tokyo"].append(long)
    for command, code in ((("show", BOX), ExitCode.OK), (("list",), ExitCode.FAILED)):
        _, *table = say(capsys, *command, code=code).splitlines()  # the first line names the holder in words
        assert "port-of-los-angeles" in "\n".join(table)
        assert "\N{HORIZONTAL ELLIPSIS}" not in "\n".join(table)


def test_a_box_that_came_in_elsewhere_is_claimed(ground: FakeLedgers, capsys: pytest.CaptureFixture[str]) -> None:
    claim = msgspec.structs.replace(claimed("sydney", 4, after=9), log=LOG)
    ground.entries["tokyo"] += [entry(4, 1070, None, "GTOT", log=LOG), claim]
    told = say(capsys, "show", BOX)
    assert f"{LOG} is held by nobody" in told
    assert "claimed by sydney: the box came in there, 2026-03-01 21:00:00 (event in-sydney); tokyo, which" in told
    assert [each["claimed_by"] for each in body(capsys, "show", BOX)["claims"]] == ["sydney"]


def came_back_here() -> Any:
    return msgspec.structs.replace(came_back(18, 30, 72, "star"), log=LOG)


def refused_here() -> Any:
    return msgspec.structs.replace(refused("o1"), log=LOG)


def test_what_is_wrong_with_the_ledger_is_told(ground: FakeLedgers, capsys: pytest.CaptureFixture[str]) -> None:
    ground.damaged = (Damaged("custody.tokyo", 7, "[no] JSON"),)
    ground.missing = (Missing("custody.star", 0, 12), *(Missing("custody.x", n, n + 1) for n in range(3, 30, 2)))
    ground.entries["tokyo"] = [HISTORY[2]]
    told = say(capsys, "show", BOX)
    assert "terms 1 to 2: the entries are in no ledger at tokyo" in told
    assert "custody.tokyo at offset 7 is no entry that can be read: [no] JSON" in told
    assert "custody.star: up to 12 entries are missing (offsets 0 to 11)" in told
    assert "and 5 more missing" in told
    assert body(capsys, "show", BOX)["missing_terms"] == [{"first": 1, "last": 2}]


def test_a_term_that_was_granted_twice_ends_with_1(ground: FakeLedgers, capsys: pytest.CaptureFixture[str]) -> None:
    ground.entries["tokyo"].append(entry(3, 1050, "sydney", "DISC", log=LOG, event_id="other"))
    told = say(capsys, "show", BOX, code=ExitCode.FAILED)
    assert f"term 3 of {LOG} was granted to" in told and "fairlead audit" in told
    listed = body(capsys, "list", code=ExitCode.FAILED)
    assert [split["term"] for split in listed["splits"]] == [3]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["show", "BIGU1000010"], ExitCode.CONFIG, LOG),
        (["show", "CSQU3054383"], ExitCode.CONFIG, "owners with a stream: BIGU"),
        (["show", BOX, "--site", "tokio"], ExitCode.CONFIG, "did you mean 'tokyo'"),
        (["list", "--held-by", "toyko"], ExitCode.CONFIG, "did you mean 'tokyo'"),
        (["strays", "--older-than", "long"], ExitCode.USAGE, "24h"),
        (["grant", BOX], ExitCode.USAGE, "--to"),
        (["seize", BOX, "--site", "sydney"], ExitCode.USAGE, "--reason"),
        (["seize", BOX, "--reason", "fire", "--yes"], ExitCode.USAGE, "--site SITE"),
        (["seize", "--reason", "fire", "--yes"], ExitCode.USAGE, "either one log or --holder"),
        (
            ["seize", BOX, "--holder", "star", "--reason", "fire", "--yes"],
            ExitCode.USAGE,
            "either one log or --holder",
        ),
        (
            ["seize", "--holder", "star", "--site", "ducks", "--reason", "x", "--yes"],
            ExitCode.REFUSED,
            "not a site ash",
        ),
        (["seize", "--holder", "stra", "--reason", "fire", "--yes"], ExitCode.CONFIG, "did you mean 'star'"),
        (["grant", BOX, "--to", "ducks", "--dry-run"], ExitCode.REFUSED, "sites that can hold a log"),
        (["grant", BOX, "--to", "tokyo", "--yes"], ExitCode.REFUSED, "tokyo holds it already"),
        (["seize", BOX, "--site", "sydney", "--reason", "fire", "--yes"], ExitCode.REFUSED, "no copy"),
    ],
)
def test_mistakes_and_refusals(
    arguments: list[str], code: int, said: str, ground: FakeLedgers, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == code
    assert said in capsys.readouterr().err
    assert ground.given == []


def test_any_site_that_answers_is_asked(ground: FakeLedgers, capsys: pytest.CaptureFixture[str]) -> None:
    ground.away = {"tokyo", "head"}
    assert body(capsys, "show", BOX)["at"] == "sydney"
    assert ground.asked == ["tokyo", "head", "sydney"]
    ground.away = {"tokyo", "head", "sydney", "star"}
    assert cli.run(["list"]) == ExitCode.UNAVAILABLE
    assert "none of these sites answered: tokyo, head, sydney, star (tokyo: tokyo is away)" in capsys.readouterr().err
    assert cli.run(["list", "--site", "tokyo"]) == ExitCode.UNAVAILABLE
    assert "tokyo is away" in capsys.readouterr().err


def test_the_list_and_logs_of_a_site_that_is_gone(ground: FakeLedgers, capsys: pytest.CaptureFixture[str]) -> None:
    answer = body(capsys, "list")
    (row,) = answer["logs"]
    assert (row["log"], row["holder"], row["term"], row["from_offset"]) == (LOG, "tokyo", 3, 1051)
    assert "ledgers at tokyo: 1 logs" in say(capsys, "list")
    other = f"{LOG[:-1]}9"
    ground.entries["tokyo"] += [
        entry(1, 0, "sydney", "GTIN", log=other),
        entry(2, 5, "old-star", "LOAD", log=other, by="sydney"),
        entry(1, 0, "lost-star", "HAND", log="containers.z"),
    ]
    told = say(capsys, "list", code=ExitCode.FAILED)
    assert "held by old-star, which the topology does not have: one log" in told
    assert f"fairlead custody seize {other} --site sydney --reason TEXT" in told
    answer = body(capsys, "list", "--held-by", "old-star", code=ExitCode.FAILED)
    assert [each["log"] for each in answer["logs"]] == [other] == [each["log"] for each in answer["stranded"]]
    assert body(capsys, "list", "--held-by", "tokyo")["stranded"] == []
    # Nobody that is still there has ever held this one: it is seized where it was found.
    assert "containers.z --site tokyo" in told
    assert [each["log"] for each in body(capsys, "list", "--held-by", "star")["logs"]] == []


def test_strays_by_log_with_their_age(ground: FakeLedgers, capsys: pytest.CaptureFixture[str]) -> None:
    now = dt.datetime.now(dt.UTC)
    young, old = now - dt.timedelta(minutes=5), now - dt.timedelta(days=2, hours=3)
    ground.strays = (
        WaitingLog(LOG, "tokyo", 3, (kept("star", old, 1), kept("star", young, 2)), ()),
        WaitingLog("containers.new", None, None, (), (Kept("head", young, "e9"),)),
    )
    told = say(capsys, "strays")
    assert "2 d 3 h" in told and "star 2" in told and "5 min" in told
    assert "event e9 for containers.new waits at head" in told
    answer = body(capsys, "strays", "--older-than", "24h")
    (row,) = answer["logs"]
    assert (row["log"], row["holder"], row["readings"], row["events"], row["kept_at"]) == (
        LOG,
        "tokyo",
        1,
        [],
        {"star": 1},
    )
    assert row["oldest_age_seconds"] >= 51 * 3600
    assert body(capsys, "strays", "--older-than", "forever")["logs"] == []
    ground.strays = ()
    assert "no strays wait" in say(capsys, "strays", "--site", "sydney")


def kept(site: str, at: dt.datetime, sequence: int) -> Kept:
    return Kept(site, at, MessageId("d", 1, sequence))


def test_a_grant_is_planned_then_done(ground: FakeLedgers, capsys: pytest.CaptureFixture[str]) -> None:
    ground.answer = carried_out
    told = say(capsys, "grant", BOX, "--to", "star", "--dry-run")
    assert f"1. append to fairlead.custody at tokyo: grant {LOG} to star" in told and "without --dry-run" in told
    planned = body(capsys, "grant", BOX, "--to", "star", "--dry-run", "--reason", "by crane")
    assert (planned["applied"], planned["entry"], planned["order"]["reason"]) == (False, None, "by crane")
    assert [step["step"] for step in planned["steps"]] == ["WriteOrder", "AwaitAnswer"]
    assert ground.given == []
    told = say(capsys, "grant", BOX, "--to", "star", "--yes")
    assert f"done: star holds {LOG} in term 3, from offset 32 (before: tokyo in term 3)" in told
    done = body(capsys, "grant", BOX, "--to", "star", "--yes")
    assert done["applied"] and done["entry"]["event_id"] == ground.given[-1][1].order_id
    assert "marker_batch" not in done["entry"]


def test_nobody_answers(ground: FakeLedgers, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["grant", BOX, "--to", "star", "--yes", "--wait", "0.1", "--json"]) == ExitCode.UNAVAILABLE
    error = json.loads(capsys.readouterr().err)
    assert error["error"] == "OrderStandsError" and "carries it out when it runs" in error["what"]
    assert len(ground.given) == 1


SEIZE = ["seize", BOX, "--site", "sydney", "--reason", "MV Star sank"]


def test_a_seizure_is_planned_and_carried_out(ground: FakeLedgers, capsys: pytest.CaptureFixture[str]) -> None:
    ground.copies_of["sydney", LOG] = OffsetRange(0, 20)
    ground.answer = carried_out
    assert "run the same command without --dry-run" in say(capsys, *SEIZE, "--dry-run")
    assert body(capsys, *SEIZE, "--dry-run")["applied"] is False
    assert ground.given == []
    told = say(capsys, *SEIZE, "--yes")
    assert "done: sydney holds" in told and "note: sydney continues at offset 20" in told
    assert ground.given[0][0] == "sydney"
    ground.away.add("tokyo")  # the holder
    assert "answers" not in say(capsys, *SEIZE, "--dry-run", "--yes")


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_at_the_terminal_is_asked(
    answer: bool, ground: FakeLedgers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ground.copies_of["sydney", LOG] = OffsetRange(0, 20)
    ground.answer = carried_out
    monkeypatch.setattr(terminal, "errors", Console(stderr=True, force_terminal=True, highlight=False))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: answer)
    assert cli.run(SEIZE) == ExitCode.OK
    assert bool(ground.given) is answer
    assert "1. append to fairlead.custody at sydney" in capsys.readouterr().err


LOADED = [entry(1, 0, "tokyo", "GTIN", log=LOG, marker_batch=b""), entry(2, 10, "star", log=LOG, marker_batch=b"")]


def test_all_logs_of_a_lost_ship(ground: FakeLedgers, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan is shown, carried out, and told; a second run says that all is done; a log that is left ends with 5."""
    ground.entries = {site: list(LOADED) for site in ("head", "tokyo", "sydney")}
    ground.copies_of["sydney", LOG] = OffsetRange(0, 20)
    ground.away = {"star"}
    ground.answer = lambda order: entry(
        18, 20, "sydney", "SEIZURE", log=LOG, by="sydney", from_site="star", event_id=order.order_id, marker_batch=b""
    )
    command = ("seize", "--holder", "star", "--reason", "sank")
    planned = say(capsys, *command, "--dry-run")
    assert "star holds 1 log: 1 to take over" in planned and "Nothing was changed" in planned and not ground.given
    done = body(capsys, *command, "--yes")
    assert (done["holder"], done["applied"], done["unanswered"]) == ("star", True, [])
    assert [(each["log"], each["holder"], each["from_offset"]) for each in done["seized"]] == [(LOG, "sydney", 21)]
    for site in ("head", "tokyo", "sydney"):
        ground.entries[site] += ground.written
    again = say(capsys, *command, "--yes")
    assert "star holds no log; taken over already: sydney 1" in again and len(ground.given) == 1
    ground.entries = {site: list(LOADED) for site in ("head", "tokyo", "sydney")}
    ground.copies_of.clear()
    ground.given.clear()
    left = body(capsys, *command, "--yes", code=ExitCode.REFUSED)
    assert left["left"][0]["log"] == LOG and not left["applied"]


def test_a_takeover_whose_bridge_does_not_answer_stands(
    ground: FakeLedgers, capsys: pytest.CaptureFixture[str]
) -> None:
    ground.entries = {site: list(LOADED) for site in ("head", "tokyo", "sydney")}
    ground.copies_of["sydney", LOG] = OffsetRange(0, 20)
    command = ["seize", "--holder", "star", "--reason", "sank", "--yes", "--wait", "0.1"]
    assert cli.run(command) == ExitCode.UNAVAILABLE
    said = capsys.readouterr().err
    assert "1 order stands without an answer" in said and "the same command continues" in said
