"""Which logs are followed over which links."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.custody.view import CustodyView
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.records.custody import CustodyEntry
from replication.catalog import EVERYTHING, NOTHING, Catalog, SourceReach
from replication.plan.assignment import LinkSource, choose_links, to_survey
from topologies.loader.load import load
from topologies.model import Link, Priority, Topology

WHEN = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
BIG_BLUE = load("big-blue")
CATALOG = Catalog(BIG_BLUE)
BOX = "containers.BIGU1234560"


def held(by: str | None, marker: int, *, term: int = 2, before: str = "tokyo") -> CustodyView:
    """Return custody of the box as one ledger entry gives it."""
    view = CustodyView()
    view.apply(
        CustodyEntry(
            log=BOX,
            term=term,
            marker_offset=marker,
            from_site=before,
            to_site=by,
            event="LOAD",
            event_id="1",
            event_date_time=WHEN,
            granted_date_time=WHEN,
            granted_by=before,
            marker_batch=b"",
        )
    )
    return view


def link(source: str, target: str, when: str = "always") -> Link:
    return next(
        each for each in BIG_BLUE.directed_links() if (each.from_, each.to, each.when) == (source, target, when)
    )


def test_a_target_never_takes_what_it_writes_itself() -> None:
    """A target never copies a log that it writes itself."""
    to_tokyo = link("sydney", "tokyo")
    assert not CATALOG.carries(CustodyView(), to_tokyo, "events.tokyo")
    assert CATALOG.carries(CustodyView(), to_tokyo, "events.sydney")
    assert CATALOG.carries(CustodyView(), to_tokyo, "events.duck-star")
    aboard = link("tokyo", "duck-star", "berthed")
    assert not CATALOG.carries(CustodyView(), aboard, "ships.9074729.location")
    assert CATALOG.carries(CustodyView(), aboard, "ships.9321483.location")


def test_a_new_holder_takes_everything_up_to_its_marker() -> None:
    """A new holder copies records up to the marker that gave it the log, and none after it."""
    here = held("tokyo", 41)
    assert CATALOG.limit(here, "tokyo", BOX) == 42
    assert CATALOG.limit(here, "sydney", BOX) is None
    assert CATALOG.carries(here, link("sydney", "tokyo"), BOX)
    assert CATALOG.limit(here, "tokyo", "events.tokyo") == 0


def test_aboard_is_what_custody_gives_to_the_target() -> None:
    """A link to a ship with the setting ``aboard`` carries the logs of boxes in the ship's custody."""
    berth = link("tokyo", "duck-star", "berthed")
    assert not CATALOG.carries(CustodyView(), berth, BOX)
    assert not CATALOG.carries(held("tokyo", 0), berth, BOX)
    assert CATALOG.carries(held("duck-star", 7), berth, BOX)
    ashore = link("duck-star", "tokyo", "berthed")
    assert CATALOG.carries(held("duck-star", 7), ashore, BOX)


NO_BOXES = ("containers.NOTABOX", "containers.BIGU1234561", "containers.YELU1234567", "yellow.BIGU1234560")


@pytest.mark.parametrize(
    "topic", ["__consumer_offsets", "nodots", "unknown-stream.key", "__transaction_state.x", *NO_BOXES]
)
def test_topics_that_are_no_logs_are_never_taken(topic: str) -> None:
    """Topics that are no logs are never copied.

    The same holds for names in a moving stream that are no valid container number of its owners: whoever can create
    topics at one site would create them everywhere.
    """
    assert CATALOG.facts(topic) is None
    assert not any(CATALOG.may_carry(each, topic) for each in BIG_BLUE.directed_links())


EVERY_STREAM = {each: "all" for each in BIG_BLUE.streams}


def everything(source: str, target: str) -> Link:
    """Return a link that carries everything of every stream, so that only the source's rights limit it."""
    return Link.model_validate({"from": source, "to": target, "streams": EVERY_STREAM})


OF_THE_SHIP = [
    *(f"{stream}.duck-star" for stream in ("events", "alerts", "custody", "strays", "deadletters")),
    "ships.9074729.location",
    "ships.9074729.environment",
    "ships.9074729.digest",
]
OF_OTHERS = [
    "custody.singapore",
    "strays.tokyo",
    "alerts.blue-marlin",
    "events.tokyo",
    "bookings.sydney",
    "bookings.duck-star",  # bookings are copied to shore
    "feeds.ducks",
    "ships.9321483.location",
    "ships.9321483.digest",
    "ships.9074729.anything",
    "events.duck-star.1",
    "custody.nobody",
]


def test_a_ship_speaks_for_itself_alone() -> None:
    """A ship may only write logs about itself."""
    from_ship, from_port = everything("duck-star", "sydney"), everything("singapore", "los-angeles")
    assert [topic for topic in OF_THE_SHIP if not CATALOG.may_carry(from_ship, topic)] == []
    assert [topic for topic in OF_OTHERS if CATALOG.may_carry(from_ship, topic)] == []
    assert [topic for topic in OF_THE_SHIP + OF_OTHERS if not CATALOG.may_carry(from_port, topic)] == []
    assert CATALOG.selects(from_ship, "events.tokyo")


def test_a_ship_extends_the_log_of_a_box_in_its_own_terms_only() -> None:
    """A ship may extend the log of a box in its own terms only."""
    link_ = everything("duck-star", "sydney")
    cases: list[tuple[CustodyView, SourceReach]] = [
        (CustodyView(), NOTHING),
        (held("tokyo", 5, before="singapore"), NOTHING),
        (held("blue-marlin", 5), NOTHING),
        (held("duck-star", 5, term=4), SourceReach(4)),
        (held("singapore", 50, term=5, before="duck-star"), SourceReach(5, 51)),
        (held(None, 50, term=5, before="duck-star"), SourceReach(5, 51)),
    ]
    for view, reach in cases:
        assert CATALOG.reach(view, link_, BOX) == reach
        assert CATALOG.carries(view, link_, BOX) == (reach != NOTHING)
        assert CATALOG.reach(view, everything("tokyo", "sydney"), BOX) == EVERYTHING
        assert CATALOG.reach(view, link_, "events.duck-star") == EVERYTHING


def test_the_end_of_a_source_counts_as_far_as_it_reaches() -> None:
    """A source's end counts only as far as it may write."""
    assert (SourceReach(4).capped(99), SourceReach(5, 51).capped(99), SourceReach(5, 51).capped(40)) == (99, 51, 40)


CHAIN = Catalog(load("chain"))


def test_settings_follow_from_the_holder_and_never_for_what_services_write() -> None:
    """Topic settings follow the holder's, and never for logs that services write."""
    for each in BIG_BLUE.directed_links():
        for topic in (BOX, *OF_THE_SHIP, *OF_OTHERS):
            assert not CATALOG.copies_settings(each, topic), (each.name, topic)
    mesh = Topology.model_validate(
        {
            "name": "mesh",
            "sites": {site: {"kind": "datacentre"} for site in ("a", "b", "c")}
            | {"s": {"kind": "ship", "imo": "9074729"}},
            "streams": {"metrics": {}},
            "links": [
                {"from": one, "to": other, "both": True, "streams": {"metrics": "all"}}
                for one, other in ("ab", "bc", "ac", "as")
            ],
        }
    )
    catalog = Catalog(mesh)
    shaping = {
        topic: {each.name for each in mesh.directed_links() if catalog.copies_settings(each, f"metrics.{topic}")}
        for topic in ("a.cpu", "s.cpu", "orders")
    }
    assert shaping["a.cpu"] == {"a->b", "a->c", "a->s"}  # not b->c: c has a link from the holder
    assert shaping["s.cpu"] == {"s->a", "a->b", "a->c", "b->c", "c->b"}  # b and c have no link from the holder
    assert shaping["orders"] == {each.name for each in mesh.directed_links() if each.from_ != "s"}


def test_along_a_chain_settings_follow_from_the_site_between() -> None:
    """Along a chain, topic settings follow those of the site in between."""
    ways = [
        each.name for each in load("chain").directed_links() if CHAIN.copies_settings(each, "metrics.san-francisco.cpu")
    ]
    assert sorted(ways) == ["san-francisco->singapore", "singapore->sydney"]


def test_new_logs_are_announced_unless_ordinary_clients_write_a_stream_of_the_link() -> None:
    assert all(CATALOG.are_announced(each) for each in BIG_BLUE.directed_links())
    assert not any(CHAIN.are_announced(each) for each in load("chain").directed_links())


def test_urgent_logs_come_first() -> None:
    logs = [BOX, "strays.tokyo", "alerts.tokyo", "custody.tokyo", "events.tokyo"]
    ordered = [tp.topic for tp in CATALOG.in_order(map(TopicPartition, logs))]
    assert ordered[:2] == ["custody.tokyo", "alerts.tokyo"]
    assert ordered[-1] == "strays.tokyo"
    assert CATALOG.priority("alerts.tokyo") is Priority.URGENT


SITES = ("a", "b", "c", "d")
SOURCES = st.lists(st.sampled_from(SITES), unique=True, min_size=1).flatmap(
    lambda sites: st.tuples(
        *(
            st.builds(
                LinkSource,
                link=st.just(f"{site}->t"),
                site=st.just(site),
                end=st.none() | st.integers(0, 20),
                slow=st.booleans(),
            )
            for site in sites
        )
    )
)


@given(
    sources=SOURCES,
    every=st.booleans(),
    holder=st.none() | st.sampled_from(SITES),
    end=st.integers(0, 20),
    current=st.sets(st.sampled_from([f"{site}->t" for site in SITES]), max_size=1),
)
def test_the_choice(
    sources: tuple[LinkSource, ...], every: bool, holder: str | None, end: int, current: set[str]
) -> None:
    """The chosen link is at the holder, or at a source with more records, and the choice is stable."""
    chosen = choose_links(sources, every=every, current=current, holder=holder, end=end)
    by_link = {source.link: source for source in sources}
    assert chosen and chosen <= by_link.keys()
    if every:
        left_out = [by_link[name] for name in by_link.keys() - chosen]
        assert all(source.slow and source.site != holder and (source.end or 0) <= end for source in left_out)
        assert (
            not left_out
            or any(not by_link[name].slow or by_link[name].site == holder for name in chosen)
            or any((by_link[name].end or 0) > end for name in chosen)
        )
        return
    assert len(chosen) == 1
    best = by_link[next(iter(chosen))]
    direct = [source for source in sources if source.site == holder]
    if direct and (direct[0].end is None or direct[0].end >= end):
        assert best.site == holder
    elif any((source.end or 0) > end for source in sources):
        # A source has more records: do not stay with one that is known to have none.
        assert best.end is None or best.end > end
    # The choice is stable: without a change in the inputs it stays the same.
    assert choose_links(sources, every=every, current=chosen, holder=holder, end=end) == chosen


def test_only_unfollowed_sources_are_asked_and_never_behind_the_holder() -> None:
    """Only sources that are not followed are asked for their ends, and none if the log is followed at its holder."""
    x, y = TopicPartition("x"), TopicPartition("y", 3)
    carried = {"a->t": {x: "a", y: "a"}, "b->t": {x: "b", y: "b"}}
    followed = {x: {"a->t"}, y: {"a->t"}}
    holders = {x: "a", y: "z"}
    assert to_survey(followed, carried, holders.get) == {"b->t": [y]}
    assert to_survey({}, carried, holders.get) == {"a->t": [x, y], "b->t": [x, y]}
