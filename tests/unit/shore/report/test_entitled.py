"""Which customers' feeds have a container's records, with bookings and without."""

from __future__ import annotations

from pathlib import Path

from shore.report.entitled import ContainerFeeds, FeedEntitlement, feeds_of_container
from tests.support.port_story import number
from tests.support.shore.fleet import BOX, at, change
from tests.support.tables import fill
from topologies.loader.load import load
from topologies.model import Customer


def test_a_port_authority_needs_no_booking(tmp_path: Path) -> None:
    harbour = Customer(feed_at="los-angeles", feed="movements", port="SGSIN")
    nowhere = harbour.model_copy(update={"feed_at": None})
    big_blue = load("big-blue")
    customers = {"ducks": big_blue.customers["ducks"], "harbour": harbour, "nowhere": nowhere}
    topology = big_blue.model_copy(update={"customers": customers})
    found = feeds_of_container(topology, tmp_path, BOX)
    assert found.entitled == (FeedEntitlement("harbour", "movements", "los-angeles", None, None),)
    assert found.bookings == () and "nobody here knows the bookings" in found.unknown


def test_an_owner_with_a_feed_of_alerts_has_those_of_its_boxes_only(tmp_path: Path) -> None:
    big_blue = load("big-blue")
    customers = {
        name: Customer(feed_at="los-angeles", feed="alerts", owners=(owner,))
        for name, owner in (("owner", BOX[:4]), ("rival", "REDU"))
    }
    topology = big_blue.model_copy(update={"customers": {"ducks": big_blue.customers["ducks"], **customers}})
    found = feeds_of_container(topology, tmp_path, BOX)
    assert found.entitled == (FeedEntitlement("owner", "alerts", "los-angeles", None, None),)


def test_a_cancelled_booking_entitles_at_the_times_that_are_left(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {
            "booking_changes": [
                change(1, 0, consignee="toyshop"),
                change(2, 2, status="CANCELLED", valid_from=at(2), valid_to=at(4)),
            ]
        },
    )
    found = feeds_of_container(load("big-blue"), tmp_path, BOX)
    assert [each for each in found.entitled if each.valid_from] == [
        FeedEntitlement(customer, kind, "los-angeles", *times)
        for times in ((at(0), at(2)), (at(4), None))
        for customer, kind in (("ducks", "detailed"), ("toyshop", "coarse"))
    ]
    assert [(each.customer, each.status, each.until is None) for each in found.bookings] == [
        ("ducks", "CONFIRMED", False),
        ("toyshop", "CONFIRMED", False),
        ("ducks", "CANCELLED", True),
    ]
    assert found.unknown == ""


def test_a_topology_without_shore_has_no_feeds(tmp_path: Path) -> None:
    topology = load("big-blue").model_copy(update={"shore": None, "customers": {}})
    found = feeds_of_container(topology, tmp_path, BOX)
    assert found == ContainerFeeds((), (), found.unknown)
    assert "does not say where shore runs" in found.unknown


def test_what_is_not_known_says_whether_the_table_or_all_of_shore_is_missing(tmp_path: Path) -> None:
    topology = load("big-blue")
    assert "there are no tables in" in feeds_of_container(topology, tmp_path, BOX).unknown
    fill(tmp_path, {"readings": ()})
    assert "table booking_changes is not there yet" in feeds_of_container(topology, tmp_path, BOX).unknown


def test_only_the_container_s_own_changes_count(tmp_path: Path) -> None:
    other = number(7)
    changes = [change(1, 0), change(2, 1) | {"equipment_reference": other, "customer": "toyshop"}]
    fill(tmp_path, {"booking_changes": changes})
    found = feeds_of_container(load("big-blue"), tmp_path, BOX)
    assert {each.customer for each in found.entitled if each.valid_from} == {"ducks"}
    assert [each.until for each in found.bookings] == [None]
    assert {each.customer for each in feeds_of_container(load("big-blue"), tmp_path, other).bookings} == {"toyshop"}
