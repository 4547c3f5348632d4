"""What is told about streams, from what the sites have and what the topology says."""

from __future__ import annotations

import pytest

from fairlead.errors import UnknownNameError
from fairlead.streams.inventory import (
    Inventory,
    SiteStreams,
    StoredLog,
    StreamGroup,
    StreamPositions,
    UnreachedSite,
    check_stream,
    describe_stream,
    list_streams,
    measure_usage,
)
from topologies.loader.load import load, read

TOPOLOGY = read(
    """
name: pair
sites:
  west: {kind: datacentre, retention: {default: 3d}}
  east: {kind: datacentre, retention: {orders: 1y}}
  far: {kind: datacentre}
streams:
  orders:
    permissions: {produce: "u:producer", consume: "g:analysts"}
    keys: {"west*": {consume: "u:auditor"}}
  metrics: {priority: bulk}
links:
  - {from: west, to: east, both: true, streams: {orders: all}, priority: {orders: urgent}}
users:
  producer: {at: [west]}
  analyst: {at: [west, east], groups: [analysts]}
  auditor: {at: [east]}
""",
    "pair",
)


def log(name: str, records: int | None, size: int | None, *, start: int = 0) -> StoredLog:
    ends = {} if records is None else {0: start + records}
    return StoredLog(name, b"i" * 16, {0: start}, ends, size)


FOUND = Inventory(
    (
        SiteStreams("west", {"orders": (log("orders.west", 10, 1000, start=5), log("orders.west.a", 1, 50))}),
        SiteStreams("east", {"orders": (log("orders.west", 12, 1100),), "old": (log("old.x", 3, 7000),)}),
    ),
    (UnreachedSite("far", "far is away"),),
)


def test_the_list_counts_each_log_once_and_the_bytes_of_all_sites() -> None:
    orders, metrics, old = (each for each in list_streams(TOPOLOGY, FOUND) if each["stream"] != "ends")
    assert (orders["logs"], orders["records"], orders["bytes"]) == (2, 13, 2150)
    assert orders["sites"] == {
        "west": {"logs": 2, "records": 11, "bytes": 1050},
        "east": {"logs": 1, "records": 12, "bytes": 1100},
    }
    assert (orders["shortest_retention"], orders["longest_retention"]) == ("3d", "forever")
    assert (metrics["priority"], metrics["logs"], metrics["sites"]) == ("bulk", 0, {})
    assert (old["stream"], old["declared"], old["insert_point"], old["retention"]) == ("old", False, None, {})


def test_what_nobody_tells_is_not_zero() -> None:
    nobody = Inventory((), (UnreachedSite("west", "away"),))
    assert {(each["logs"], each["records"], each["bytes"]) for each in list_streams(TOPOLOGY, nobody)} == {
        (None, None, None)
    }
    part = Inventory((SiteStreams("west", {"orders": (log("orders.west", None, None), log("orders.east", 2, 20))}),))
    orders = list_streams(TOPOLOGY, part)[0]
    assert (orders["logs"], orders["records"], orders["bytes"]) == (2, None, None)


def test_one_stream_with_its_sites_links_access_and_groups() -> None:
    groups = StreamPositions((StreamGroup("west", "g1", 2, 4, active=True),), (UnreachedSite("east", "no right"),))
    found = describe_stream(TOPOLOGY, FOUND, groups, "orders")
    assert found["sites"] == {
        "west": {"logs": 2, "records": 11, "bytes": 1050, "retention": "3d"},
        "east": {"logs": 1, "records": 12, "bytes": 1100, "retention": "1y"},
        "far": {"logs": None, "records": None, "bytes": None, "retention": "forever"},
    }
    assert [(each["link"], each["takes"], each["priority"]) for each in found["links"]] == [
        ("west->east", "all", "urgent"),
        ("east->west", "all", "urgent"),
    ]
    expressions = {each["where"]: each["expression"] for each in found["permissions"]}
    assert expressions["streams.orders.permissions.consume"] == "g:analysts"
    assert expressions["streams.orders.permissions.admin"] == ""
    assert expressions["streams.orders.keys.west*.consume"] == "u:auditor"
    assert "streams.orders.keys.west*.admin" not in expressions
    may = {(each["user"], each["logs"]): (each["operations"], each["sites"]) for each in found["access"]}
    assert may[("analyst", "orders.*")] == (["READ"], ["west", "east"])
    assert may[("producer", "orders.west")] == (["WRITE"], ["west"])
    assert may[("auditor", "orders.west*")] == (["READ"], ["east"])
    assert "replicator" not in {user for user, _ in may}
    assert found["groups"] == [{"site": "west", "group": "g1", "logs": 2, "lag": 4, "active": True}]
    assert found["groups_unread"] == [{"site": "east", "why": "no right"}]


def test_a_stream_that_only_sites_have() -> None:
    found = describe_stream(TOPOLOGY, FOUND, StreamPositions(), "old")
    assert not found["declared"] and found["links"] == found["permissions"] == found["access"] == []
    assert found["sites"] == {"east": {"logs": 1, "records": 3, "bytes": 7000, "retention": None}}
    check_stream(TOPOLOGY, FOUND, "old")
    with pytest.raises(UnknownNameError, match="orders"):
        check_stream(TOPOLOGY, FOUND, "ordres")


def test_a_feed_is_access_as_well() -> None:
    fleet = load("big-blue", env={})
    access = describe_stream(fleet, Inventory(), StreamPositions(), "feeds")["access"]
    reads = {each["user"]: (each["logs"], each["operations"]) for each in access}
    assert reads["ducks"] == ("feeds.ducks", ["READ"])


def test_usage_names_the_largest_first() -> None:
    found = measure_usage(TOPOLOGY, FOUND, None, biggest=2)
    assert [(each["stream"], each["site"]) for each in found["usage"]] == [
        ("old", "east"),
        ("orders", "east"),
        ("orders", "west"),
    ]
    assert found["total"] == {"logs": 4, "records": 26, "bytes": 9150}
    assert [(each["log"], each["site"]) for each in found["biggest_logs"]] == [
        ("old.x", "east"),
        ("orders.west", "east"),
    ]
    one = measure_usage(TOPOLOGY, FOUND, "orders", biggest=0)
    assert (one["total"]["bytes"], one["biggest_logs"]) == (2150, [])
