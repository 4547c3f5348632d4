"""What fleets need, by the model, and its page."""

from __future__ import annotations

import datetime as dt
import json
from functools import cache

import pytest

from simulators.scale.costs import LOGS_PER_BROKER
from simulators.scale.sizing import told_by_reading
from simulators.voyage.voyage import Voyage
from tests.support.simulators.worlds import voyage
from tools.fleets import COPIES, FleetSize, brokers, fleet, predict, replicator_bytes
from tools.sizing_reference import FIGURES, FLEETS, HEADQUARTERS, PAGE, REPLICATION, SHIP, page, rows


@cache
def fleets() -> list[FleetSize]:
    return rows()


@pytest.mark.long
def test_the_page_is_what_the_command_makes() -> None:
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    replication = json.loads(REPLICATION.read_text(encoding="utf-8"))
    made = page(fleets(), figures, replication)
    assert PAGE.read_text(encoding="utf-8") == made, "run: python -m tools.sizing_reference"


@pytest.mark.long
def test_what_boxes_cause_grows_with_the_fleet() -> None:
    """From one row to the next, records, bytes and logs grow as the boxes do."""
    assert [each.boxes for each in fleets()] == list(FLEETS)
    for before, after in zip(fleets(), fleets()[1:], strict=False):
        more = after.boxes / before.boxes
        for name in ("records_per_day", "stored_per_day", "fetched_per_day", "logs", "disk"):
            assert getattr(after, name) == pytest.approx(getattr(before, name) * more, rel=0.03), name


@pytest.mark.long
def test_a_ship_sends_what_its_own_boxes_cause_and_gets_what_all_do() -> None:
    """With five times the boxes and ships, a ship sends as much as before and gets five times as much."""
    hundred, most = fleets()[-2:]
    assert most.aboard == pytest.approx(hundred.aboard, rel=0.01)
    assert most.from_ship.bytes_per_day == pytest.approx(hundred.from_ship.bytes_per_day, rel=0.01)
    assert most.to_ship.bytes_per_day == pytest.approx(5 * hundred.to_ship.bytes_per_day, rel=0.02)
    assert most.to_ship.share == pytest.approx(most.to_ship.minutes_per_day / 1440)


@pytest.mark.parametrize(("logs", "one", "three"), [(1, 1, 3), (18_400, 1, 3), (18_401, 2, 4), (500_000, 28, 82)])
def test_brokers_open_a_limited_number_of_logs(logs: int, one: int, three: int) -> None:
    assert LOGS_PER_BROKER.value == 18_400
    assert (brokers(logs), brokers(logs, COPIES)) == (one, three)


def test_memory_is_bounded_by_what_waits() -> None:
    """A replicator that is behind by little needs little; one that is far behind needs ``--memory`` and no more."""
    assert replicator_bytes(1_000, 5e6) == replicator_bytes(1_000, 0) + 5e6
    assert replicator_bytes(1_000, 1e12) == replicator_bytes(1_000)


@pytest.mark.long
def test_more_replicators_have_a_process_each() -> None:
    most = fleets()[-1]
    assert most.replicators > 1
    assert most.memory_of_all == most.replicator_bytes + (most.replicators - 1) * replicator_bytes(0)


def test_a_prediction_counts_every_record_and_every_log() -> None:
    found = predict(10, 240, 500)
    assert found.stored_bytes == 120_000
    assert found.wire_bytes > found.stored_bytes
    assert found.disk_bytes - found.stored_bytes == pytest.approx((predict(20, 240, 500).disk_bytes - 120_000) / 2)


@pytest.mark.parametrize(("minutes", "told"), [(5, 1 / 3), (15, 1.0), (60, 1.125), (360, 1 + 23 / 24)])
def test_a_box_is_told_in_the_digest_after_each_reading_and_in_every_whole_one(minutes: int, told: float) -> None:
    assert told_by_reading(dt.timedelta(minutes=minutes)) == pytest.approx(told)


def test_a_fleet_without_a_satellite_between_the_two_is_refused() -> None:
    from simulators.scale.sizing import size

    small: Voyage = voyage(7, 20, hours=24)
    with pytest.raises(LookupError, match="no link from ducks-hq to los-angeles"):
        fleet(size(small, 20), HEADQUARTERS, "ducks-hq")
    assert fleet(size(small, 20), HEADQUARTERS, SHIP).boxes == 20
