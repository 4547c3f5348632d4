"""The statements by which docs/tables.md answers questions, one each, return rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shore.read import rows, sql
from shore.tables import TABLES
from tests.support.delta_rs import create
from tests.support.ledgers import entry
from tests.support.shore.fleet import (
    BOX,
    SINGAPORE,
    STAR,
    YELLOW,
    Fleet,
    alert,
    at,
    change,
    docked,
    event,
    ledger,
    merged,
    position,
    reading,
    scheduled,
)
from tests.support.shore.raw_records import make_custody

DOCUMENT = (Path(__file__).parents[3] / "docs" / "tables.md").read_text(encoding="utf-8")
SECTION = DOCUMENT.partition("## Docks, ships and boxes")[2].partition("\n## ")[0]
QUESTIONS = re.findall(r"```sql\n(.*?)```", SECTION, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a port call with boxes of two lines, and a passage."""
    fleet = Fleet(tmp_path_factory.mktemp("questions"))
    create(TABLES["custody"], fleet.paths.table("custody"))
    aboard = {"vessel_imo_number": STAR, "voyage_reference": "V1"}
    entries = (entry(1, 0, "tokyo", "GTIN"), entry(2, 1, "star", "LOAD"))
    told = [
        *(("events", docked(i, hours, code)) for i, hours, code in ((1, 0, "ARRI"), (2, 14, "DEPA"))),
        ("events", event(3, -2, "GTIN")),
        ("events", event(4, 3, "DISC", YELLOW, **aboard)),
        ("events", event(5, 5, "LOAD", **aboard)),
        ("events", event(6, 9, "GTOT", YELLOW)),
        *(("positions", position(i, 13.5 + i / 2, (35.0 - i, 139.0 - i))) for i in range(1, 30)),
        ("positions", position(40, 40, SINGAPORE, 0.0)),
        *(("readings", reading(i, 14 + i)) for i in range(5)),
        ("readings", reading(9, 40)),
        ("booking_changes", change(1, 0, transport_document_reference="BL2786031463")),
        ("alerts", alert(1, 15)),
        *(("events", scheduled(20 + i, i, expected)) for i, expected in enumerate((40, 80))),
        *(("custody_entries", ledger(i, each)) for i, each in enumerate(entries)),
    ]
    fleet.add(**merged(told))
    make_custody(fleet.paths)
    return fleet.folder


@pytest.mark.parametrize("question", QUESTIONS, ids=[q.split("\nfrom ")[1].split()[0] for q in QUESTIONS])
def test_every_question_has_an_answer(question: str, folder: Path) -> None:
    found = rows(sql(folder, question.replace("BIGU3375567", BOX)))  # a container of the demo
    assert found
    assert len({tuple(row.items()) for row in found}) == len(found)


def test_what_a_port_authority_asks(folder: Path) -> None:
    docked_and_left, movements, by_line, *_ = ([tuple(r.values()) for r in rows(sql(folder, q))] for q in QUESTIONS)
    assert docked_and_left == [("MV Duck Star", STAR, at(0), at(14), "V1")]
    assert [(code, box, line) for _, code, box, line, *_ in movements] == [
        ("GTIN", BOX, "Our own"),
        ("DISC", YELLOW, "Yellow Box Leasing"),
        ("LOAD", BOX, "Our own"),
        ("GTOT", YELLOW, "Yellow Box Leasing"),
    ]
    assert by_line == [
        ("MV Duck Star", at(0), "Our own", "LOAD", 1),
        ("MV Duck Star", at(0), "Yellow Box Leasing", "DISC", 1),
    ]


def test_what_went_otherwise_is_one_list(folder: Path) -> None:
    (listed,) = (question for question in QUESTIONS if "OMITTED" in question)
    assert [tuple(row.values()) for row in rows(sql(folder, listed))] == [("ETA", "SGSIN", STAR, None, at(40), at(80))]
