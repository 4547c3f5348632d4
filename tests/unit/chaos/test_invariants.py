"""The storm's checks find what they are there for: each planted fault, and nothing in a log that is right."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import pytest

from edge.logwriter import records
from fairlead.kafka.convention import marker_record
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.records.custody import CustodyEntry
from tests.support.edge.samples import BOX, BOX_LOG, NOW, NOW_MS, reading
from tests.support.invariants import Stored, in_ledgers, in_order, in_terms, once, same_copies

HOLDERS: Final = {1: "tokyo", 2: "star", 3: "sydney"}
TERMS: Final = {1: 0, 2: 4, 3: 7}  # and where their markers are


class Case(NamedTuple):
    """A log, what was published for it, and its ledgers' entries."""

    log: list[Stored]
    published: list[tuple[str, int, int]]
    entries: list[CustodyEntry]


def kept(offset: int, new: NewRecord) -> Record:
    return Record(offset, new.timestamp_ms, new.key, new.value, new.headers)


def said(sequence: int, *, late: bool = False) -> NewRecord:
    record = records.published(reading(sequence), key=BOX, at_ms=NOW_MS, received_ms=NOW_MS)
    return records.late(record) if late else record


def entry(term: int) -> CustodyEntry:
    return CustodyEntry(
        log=BOX_LOG,
        term=term,
        marker_offset=TERMS[term],
        from_site=HOLDERS.get(term - 1),
        to_site=HOLDERS[term],
        event="LOAD" if term > 1 else "GTIN",
        event_id=f"event-{term}",
        event_date_time=NOW + dt.timedelta(minutes=term),
        granted_date_time=NOW + dt.timedelta(minutes=term),
        granted_by=HOLDERS.get(term - 1, HOLDERS[term]),
        marker_batch=b"",
    )


def good() -> Case:
    """Three terms; the readings 0 to 5, of which 2 came late."""
    log: list[Stored] = []
    for term, sequences in ((1, (0, 1, 3)), (2, (4, 2)), (3, (5,))):
        log.append(Stored(term, len(log), kept(len(log), marker_record(b"m%d" % term, timestamp_ms=NOW_MS))))
        marker = log[-1].marker
        for sequence in sequences:
            log.append(Stored(term, marker, kept(len(log), said(sequence, late=sequence == 2))))
    return Case(log, [("d1", 1, n) for n in range(6)], [entry(term) for term in TERMS])


def problems(case: Case) -> list[str]:
    return [
        *once(BOX_LOG, case.log, case.published),
        *in_order(BOX_LOG, case.log),
        *in_terms(BOX_LOG, case.log),
        *in_ledgers(BOX_LOG, case.log, case.entries),
    ]


def renumbered(log: list[Stored], shift: int, since: int) -> list[Stored]:
    return [
        each._replace(record=each.record._replace(offset=each.record.offset + shift))
        if each.record.offset >= since
        else each
        for each in log
    ]


def loses(case: Case) -> Case:
    return case._replace(log=case.log[:-1])


def repeats(case: Case) -> Case:
    """A drain that repeats."""
    return case._replace(log=[*case.log, Stored(3, 7, kept(9, said(1, late=True)))])


def invents(case: Case) -> Case:
    return case._replace(log=[*case.log, Stored(3, 7, kept(9, said(77)))])


def turns_round(case: Case) -> Case:
    log = list(case.log)
    log[1], log[2] = (
        log[1]._replace(record=kept(1, said(1))),
        log[2]._replace(record=kept(2, said(0))),
    )
    return case._replace(log=log)


def marks_for_nothing(case: Case) -> Case:
    log = list(case.log)
    log[8] = log[8]._replace(record=kept(8, said(5, late=True)))
    return case._replace(log=log)


def falls_back(case: Case) -> Case:
    """A bridge that appends after granting."""
    log = list(case.log)
    log[6] = log[6]._replace(term=1, marker=0)
    return case._replace(log=log)


def has_no_marker(case: Case) -> Case:
    log = list(case.log)
    log[7] = log[7]._replace(record=kept(7, said(5)))
    return case._replace(log=log[:8])


def has_a_gap(case: Case) -> Case:
    return case._replace(log=renumbered(case.log, 1, since=9 - 1))


def is_granted_elsewhere(case: Case) -> Case:
    """A grant without the final offset."""
    wrong = msgspec.structs.replace(case.entries[1], marker_offset=3)
    return case._replace(entries=[case.entries[0], wrong, case.entries[2]])


def is_granted_twice(case: Case) -> Case:
    return case._replace(entries=[*case.entries, msgspec.structs.replace(case.entries[2], to_site="tokyo")])


def is_not_in_the_ledger(case: Case) -> Case:
    return case._replace(entries=[case.entries[0], case.entries[2]])


def is_given_by_a_stranger(case: Case) -> Case:
    wrong = msgspec.structs.replace(case.entries[2], from_site="tokyo")
    return case._replace(entries=[*case.entries[:2], wrong])


def test_a_correct_log_passes_every_check() -> None:
    assert problems(good()) == []


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (loses, "lost"),
        (repeats, "twice"),
        (invents, "never published"),
        (turns_round, "is not marked late"),
        (marks_for_nothing, "is marked late"),
        (falls_back, "term 1 after term 2"),
        (has_no_marker, "does not begin with its marker"),
        (has_a_gap, "has gaps"),
        (is_granted_elsewhere, "the ledgers"),
        (is_granted_twice, "Split"),
        (is_not_in_the_ledger, "no ledger has terms 2 to 2"),
        (is_given_by_a_stranger, "gave term 3 after term 2 of star"),
    ],
)
def test_every_planted_fault_is_found(plant: Callable[[Case], Case], words: str) -> None:
    assert words in "; ".join(problems(plant(good())))


@pytest.mark.parametrize(
    ("to_site", "granted_by", "from_site", "wrong"),
    [
        ("sydney", "tokyo", "tokyo", False),  # it came in elsewhere: the site that it left gave the log
        ("tokyo", "tokyo", None, False),  # it came in where it left
        ("sydney", "sydney", None, True),  # two sites could do that
        ("sydney", "sydney", "tokyo", True),
        ("tokyo", "tokyo", "tokyo", True),
    ],
)
def test_a_box_that_left_returns_through_the_same_site(
    to_site: str, granted_by: str, from_site: str | None, wrong: bool
) -> None:
    opened, gone, back = good().entries
    gone = msgspec.structs.replace(gone, to_site=None, event="GTOT")
    back = msgspec.structs.replace(back, event="GTIN", to_site=to_site, granted_by=granted_by, from_site=from_site)
    found = in_ledgers(BOX_LOG, good().log, [opened, gone, back])
    assert [f"{granted_by} gave term 3 after term 2 of None" in each for each in found] == [True] * wrong


def seized(case: Case, *, entered: tuple[int, ...]) -> Case:
    """The last term was opened by a seizure, on top of a giver that had crashed before it wrote an entry."""
    last = case.entries[2]
    seizure = msgspec.structs.replace(last, term=18, event="SEIZURE", from_site="tokyo", granted_by="sydney")
    log = [each._replace(term=18) if each.term == 3 else each for each in case.log]
    return case._replace(log=log, entries=[*(case.entries[term - 1] for term in entered), seizure])


def test_a_seizure_may_follow_a_marker_without_an_entry() -> None:
    assert problems(seized(good(), entered=(1, 2))) == []
    assert problems(seized(good(), entered=(1,))) == []
    assert "the ledgers" in "; ".join(problems(good()._replace(entries=good().entries[:2])))


def test_copies_may_be_shorter_but_not_different() -> None:
    log = good().log
    other = [*log[:5], log[5]._replace(record=kept(5, said(9))), *log[6:]]
    assert same_copies(BOX_LOG, {"tokyo": log, "star": log[:4], "sydney": []}) == []
    (problem,) = same_copies(BOX_LOG, {"star": log[:4], "tokyo": log, "sydney": other})
    assert f"{BOX_LOG} at offset 5" in problem
