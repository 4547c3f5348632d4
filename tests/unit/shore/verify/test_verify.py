"""What can be verified, how far logs are compared, and how values are shown."""

from __future__ import annotations

from fairlead.kafka.client.reader import OffsetRange
from shore.jobs.runner import JOBS
from shore.tables import TABLES
from shore.tables.catalogue import KEPT_BY
from shore.verify.catalogue import BY_STATE, DERIVED, FROM_LOGS, OWN_WAY, REFERENCE, sources_of
from shore.verify.compare import LONGEST_SHOWN, shown
from shore.verify.logs import Limits, scope_of
from topologies.loader.load import load


def test_the_catalogue_names_the_tables_that_each_job_keeps() -> None:
    assert {job: set(tables) for job, tables in KEPT_BY.items()} == {
        name: set(job.tables) for name, job in JOBS.items()
    }


def test_every_table_can_be_verified_in_one_way() -> None:
    ways = [
        *(name for entry in FROM_LOGS for name in entry.tables),
        *(derived.table.name for derived in DERIVED),
        *OWN_WAY,
        *REFERENCE,
    ]
    assert len(ways) == len(set(ways))
    kept = {table for job in JOBS.values() for table in job.tables}
    assert kept <= set(ways) == set(TABLES)


def test_each_derived_table_comes_after_its_inputs() -> None:
    seen = {name for entry in FROM_LOGS for name in entry.tables} | set(REFERENCE)
    for derived in DERIVED:
        assert seen.issuperset(derived.inputs), derived.table.name
        seen.add(derived.table.name)
    assert BY_STATE.keys() <= seen
    assert sources_of(["containers_now"])[-1] == "containers_now"
    assert {"booking_changes", "bookings"} <= set(sources_of(["containers_now"]))


def test_each_log_fills_one_line_of_the_catalogue() -> None:
    topology = load("big-blue")
    topics = {
        "containers.BIGU0000016": "readings + readings_rejected",
        "alerts.tokyo": "alerts",
        "ships.9074729.location": "positions",
        "ships.9074729.environment": "environment",
        "ships.9074729.digest": "digests",
        "custody.tokyo": "custody_entries",
        "feeds.ducks": None,
    }
    for topic, wanted in topics.items():
        assert [entry.name for entry in FROM_LOGS if entry.takes(topology)(topic)] == ([wanted] if wanted else [])
    still = topology.model_copy(update={"streams": {}})
    assert not FROM_LOGS[0].takes(still)("containers.BIGU0000016")


def test_of_long_texts_the_part_is_shown_where_they_differ() -> None:
    one, other = "x" * 500 + "one" + "y" * 500, "x" * 500 + "two" + "y" * 500
    found, expected = shown(one.encode(), other)
    assert found.startswith("…xx") and found.endswith("yy…") and "one" in found and "two" in expected
    assert len(found) == len(expected) == LONGEST_SHOWN + 2
    assert shown(None, 1.5) == (None, 1.5)
    assert shown("short", "shore") == ("short", "shore")


def test_where_a_job_stands() -> None:
    takes = {
        "a.full": OffsetRange(0, 9),
        "a.cut": OffsetRange(4, 9),
        "a.short": OffsetRange(0, 3),
        "a.new": OffsetRange(2, 5),
    }
    positions = {"a.full": 9, "a.cut": 6, "a.short": 7, "a.gone": 5, "a.deaf": 5}
    scope = scope_of(positions, {**positions, "a.cut": 8, "a.first": 2}, takes, {"a.deaf": "NOT_LEADER"})
    assert scope.limits == {
        "a.full": Limits(0, 9, 9),
        "a.cut": Limits(4, 6, 8),
        "a.short": Limits(0, 7, 7),
        "a.gone": Limits(5, 5, 5),
        "a.deaf": Limits(5, 5, 5),
        "a.first": Limits(0, 0, 2),
    }
    assert scope.behind == 3 + 3  # of a.cut and a.new
    gone, deaf, short = scope.notes
    assert gone == "logs that are no more there: a.gone"
    assert deaf == "logs that cannot be read: a.deaf (NOT_LEADER)"
    assert short == "logs that were truncated or made anew: a.short ends at 3 and was read up to 7"


def test_records_that_shores_new_site_does_not_have_are_named_and_not_compared() -> None:
    takes = {"a.held": OffsetRange(1, 3), "a.short": OffsetRange(0, 3)}
    scope = scope_of({"a.held": 7, "a.short": 7}, {"a.held": 9}, takes, {}, ["a.held"])
    assert scope.limits == {"a.held": Limits(1, 3, 9), "a.short": Limits(0, 7, 7)}
    short, waiting = scope.notes
    assert "a.short ends at 3" in short
    assert waiting == "records that this site does not have yet, and that are not compared: a.held from 3 to 6"
