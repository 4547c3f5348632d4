"""The state that results from a history of operators' orders."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.overrides import Override, OverrideKind, Overrides, decode, encode

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
LINKS = ("a->b", "c->b", "a->b:berthed")
STREAMS = ("s", "t")
LOGS = ("s.x", "s.x/1", "s.x/2", "s.y", "t.x")
PAUSING = (OverrideKind.PAUSE, OverrideKind.RESUME)
RELEASING = (OverrideKind.PROMOTE, OverrideKind.FAILOVER, OverrideKind.RESTORE)


def order(kind: OverrideKind, minute: int = 0, **fields: Any) -> Override:
    return Override(kind, START + dt.timedelta(minutes=minute), "ann", **fields)


def after(history: Sequence[Override]) -> Overrides:
    orders = Overrides()
    for each in history:
        orders.apply(each)
    return orders


def about(kinds: Sequence[OverrideKind], links: Sequence[str | None]) -> st.SearchStrategy[Override]:
    """Draw orders of these kinds about any scope they may have; the minute says nothing about which is newer."""
    scopes = st.one_of(
        st.tuples(st.sampled_from(STREAMS), st.none()),
        st.tuples(st.none(), st.sampled_from(LOGS)),
        st.just((None, None)) if kinds is PAUSING else st.nothing(),
    )
    return st.builds(
        lambda kind, minute, link, scope: order(kind, minute, link=link, stream=scope[0], log=scope[1]),
        st.sampled_from(kinds),
        st.integers(0, 5),
        st.sampled_from(links),
        scopes,
    )


pauses = st.lists(about(PAUSING, (*LINKS, None)), max_size=12)
releases = st.lists(about(RELEASING, (None,)), max_size=12)
skips = st.lists(
    st.tuples(st.sampled_from(LOGS), st.integers(0, 30), st.integers(1, 10)).map(
        lambda it: order(OverrideKind.SKIP, log=it[0], start=it[1], stop=it[1] + it[2])
    ),
    max_size=8,
)


def covers(each: Override, log: str) -> bool:
    """Return whether an order's scope contains a log: by its own name, its topic's, its stream's, or all."""
    topic = log.partition("/")[0]
    return each.log in (log, topic) or each.stream == topic.partition(".")[0] or (each.log is each.stream is None)


@given(pauses)
def test_a_log_is_paused_while_the_newest_order_of_any_scope_it_is_in_pauses(history: list[Override]) -> None:
    """A log is paused if the newest order for any of its scopes is a pause."""
    orders = after(history)
    newest = {(each.link, each.stream, each.log): each for each in history}
    holding = [each for each in newest.values() if each.kind is OverrideKind.PAUSE]
    assert sorted(orders.pauses(), key=encode) == sorted(holding, key=encode)
    for link in LINKS:
        for log in LOGS:
            here = [each for each in holding if each.link in (None, link) and covers(each, log)]
            found = orders.paused(link, log.partition(".")[0], log)
            assert (found in here) if here else found is None
        whole = [each for each in holding if each.link in (None, link) and each.log is each.stream is None]
        found = orders.link_paused(link)
        assert (found in whole) if whole else found is None


@given(releases)
def test_a_log_is_released_while_the_newest_order_about_it_releases_it(history: list[Override]) -> None:
    """A log is released if the newest order about it releases it."""
    orders = after(history)
    for log in LOGS:
        about_it = [each for each in history if covers(each, log)]
        newest = about_it[-1] if about_it else None
        assert orders.released(log) == (newest if newest and newest.kind is not OverrideKind.RESTORE else None)
    newest_of = {(each.stream, each.log): each for each in history}
    in_force = [each for each in newest_of.values() if each.kind is not OverrideKind.RESTORE]
    assert sorted(orders.releases(), key=encode) == sorted(in_force, key=encode)


@given(skips)
def test_offsets_may_be_skipped_when_orders_together_cover_them(history: list[Override]) -> None:
    """Offsets may be skipped if the orders together cover them."""
    orders = after(history)
    for log in LOGS:
        allowed = {n for each in history if each.log == log for n in range(each.start or 0, each.stop or 0)}
        for start in range(0, 42, 3):
            for stop in range(start + 1, 42, 4):
                assert orders.skips(log).cover(start, stop) == (set(range(start, stop)) <= allowed)


def test_a_skip_ends_with_the_topic_for_which_it_was_ordered() -> None:
    """What the topic's successor cannot have is another question; an order of an earlier release does not say which
    topic it is for."""
    orders = after([order(OverrideKind.SKIP, log="s.x/1", start=0, stop=10, topic_id=b"first".hex())])
    orders.topic_id_of = {"s.x": b"first"}.get
    assert orders.skips("s.x/1").cover(2, 4)
    orders.apply(order(OverrideKind.SKIP, log="s.x/1", start=20, stop=30))
    orders.topic_id_of = {"s.x": b"second"}.get
    assert not orders.skips("s.x/1").cover(2, 4)
    assert orders.skips("s.x/1").cover(22, 24)
    orders.apply(order(OverrideKind.SKIP, log="s.x/1", start=10, stop=20, topic_id=b"second".hex()))
    assert orders.skips("s.x/1").cover(10, 30), "they touch"


@given(st.lists(st.one_of(about(PAUSING, LINKS), about(RELEASING, (None,))), max_size=12))
def test_applied_again_nothing_changes_and_what_changes_says_so(history: list[Override]) -> None:
    """Applying an order again changes nothing, and applying one reports whether it changed anything."""
    orders = Overrides()

    def held() -> list[Any]:
        return [
            [orders.paused(link, log.partition(".")[0], log) for link in LINKS for log in LOGS],
            [orders.link_paused(link) for link in LINKS],
            [(orders.released(log), orders.retries(log)) for log in LOGS],
        ]

    before = held()
    for each in history:
        changed = orders.apply(each)
        now = held()
        assert changed or now == before
        assert not orders.apply(each)
        assert held() == now
        before = now


@pytest.mark.parametrize(
    ("given_", "looked_at"),
    [
        (order(OverrideKind.RETRY, 1, log="s.x"), {"s.x", "s.x/1", "s.x/2"}),
        (order(OverrideKind.RETRY, 1, log="s.x/1"), {"s.x/1"}),
        (order(OverrideKind.RETRY, 1, stream="s"), {"s.x", "s.x/1", "s.x/2", "s.y"}),
        (order(OverrideKind.RETRY, 1), set(LOGS)),
        (order(OverrideKind.RESTORE, 1, log="s.y"), {"s.y"}),
        (order(OverrideKind.RESUME, 1, log="t.x", link="a->b"), {"t.x"}),
        (order(OverrideKind.RESUME, 1, stream="t", link="a->b"), set()),
        (order(OverrideKind.RESUME, 1, link="a->b"), set()),
        (order(OverrideKind.SKIP, 1, log="s.y", start=0, stop=1), {"s.y"}),
        (order(OverrideKind.PAUSE, 1, log="s.y"), set()),
        (order(OverrideKind.PROMOTE, 1, log="s.y"), set()),
    ],
)
def test_what_has_a_log_looked_at_anew(given_: Override, looked_at: set[str]) -> None:
    """Which logs an order makes the replicator check again."""
    orders = after([given_])
    assert {log for log in LOGS if orders.retries(log) == given_.at} == looked_at
    assert {log for log in LOGS if orders.retries(log) is None} == set(LOGS) - looked_at


def test_the_place_in_the_topic_tells_what_is_newer_not_the_clock() -> None:
    """The order's offset in its topic decides which is newer, not the clock."""
    late, early = order(OverrideKind.RETRY, 9, log="s.x"), order(OverrideKind.RETRY, 1, stream="s")
    assert after([late, early]).retries("s.x") == early.at
    assert after([early, late]).retries("s.x") == late.at
    assert after([late, early]).retries("s.y") == early.at


TEXT = st.text(max_size=12)
OFFSETS = st.none() | st.integers(0, 2**63 - 1)
WHEN = st.datetimes(min_value=dt.datetime(1970, 1, 1), max_value=dt.datetime(9000, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001 - Hypothesis adds the zone


@given(
    st.builds(
        Override,
        st.sampled_from([each for each in OverrideKind if each is not OverrideKind.SKIP]),
        WHEN,
        TEXT,
        TEXT,
        st.none() | TEXT,
        st.none(),
        TEXT,
        OFFSETS,
        OFFSETS,
    )
)
def test_an_order_survives_its_json(order_: Override) -> None:
    """An order survives encoding to JSON and back."""
    assert decode(encode(order_)) == order_


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "erase"},
        {"kind": "pause", "unknown": 1},
        {"kind": "pause", "at": "2026-03-01T00:00:00"},
        {"kind": "pause", "log": "s.x", "stream": "s"},
        {"kind": "promote"},
        {"kind": "failover", "link": "a->b"},
        {"kind": "restore"},
        {"kind": "skip", "stream": "s", "start": 0, "stop": 1},
        {"kind": "skip", "log": "s.x", "start": 0},
        {"kind": "skip", "log": "s.x", "start": 4, "stop": 4},
        {"kind": "skip", "log": "s.x", "start": -1, "stop": 4},
    ],
)
def test_what_is_no_order_is_not_read_as_one(fields: dict[str, Any]) -> None:
    """Invalid orders are not decoded."""
    whole = {"at": "2026-03-01T00:00:00Z", "by": "ann", **fields}
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.json.encode(whole))


def test_nothing_holds_without_orders() -> None:
    """Without orders, nothing is paused, released or skipped."""
    orders = Overrides()
    assert orders.paused("a->b", "s", "s.x") is None and orders.link_paused("a->b") is None
    assert orders.released("s.x") is None and orders.retries("s.x") is None
    assert not orders.skips("s.x").cover(0, 1)
    assert [*orders.pauses(), *orders.releases()] == []
