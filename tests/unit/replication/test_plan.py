"""Which logs are followed over which links."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from fairlead.wire.types import TopicPartition
from replication.plan import Catalog, Source, choose, to_survey
from topologies.load import load
from topologies.model import Link, Priority

BIG_BLUE = load("big-blue")
CATALOG = Catalog(BIG_BLUE)
BOX = "containers.BIGU1234567"


@dataclass
class Held:
    """Custody as the test says."""

    by: dict[str, tuple[str, int]] = field(default_factory=dict)

    def holder(self, log: str) -> str | None:
        return self.by[log][0] if log in self.by else None

    def marker(self, log: str) -> int | None:
        return self.by[log][1] if log in self.by else None


def link(source: str, target: str, when: str = "always") -> Link:
    return next(
        each for each in BIG_BLUE.directed_links() if (each.from_, each.to, each.when) == (source, target, when)
    )


def test_a_target_never_takes_what_it_writes_itself() -> None:
    to_tokyo = link("sydney", "tokyo")
    assert not CATALOG.carries(Held(), to_tokyo, "events.tokyo")
    assert CATALOG.carries(Held(), to_tokyo, "events.sydney")
    assert CATALOG.carries(Held(), to_tokyo, "events.duck-star")
    aboard = link("tokyo", "duck-star", "berthed")
    assert not CATALOG.carries(Held(), aboard, "ships.9074729.location")
    assert CATALOG.carries(Held(), aboard, "ships.9321483.location")


def test_a_new_holder_takes_everything_up_to_its_marker() -> None:
    held = Held({BOX: ("tokyo", 41)})
    assert CATALOG.limit(held, "tokyo", BOX) == 42
    assert CATALOG.limit(held, "sydney", BOX) is None
    assert CATALOG.carries(held, link("sydney", "tokyo"), BOX)
    assert CATALOG.limit(held, "tokyo", "events.tokyo") == 0


def test_aboard_is_what_custody_gives_to_the_target() -> None:
    berth = link("tokyo", "duck-star", "berthed")
    assert not CATALOG.carries(Held(), berth, BOX)
    assert not CATALOG.carries(Held({BOX: ("tokyo", 0)}), berth, BOX)
    assert CATALOG.carries(Held({BOX: ("duck-star", 7)}), berth, BOX)
    ashore = link("duck-star", "tokyo", "berthed")
    assert CATALOG.carries(Held({BOX: ("duck-star", 7)}), ashore, BOX)


def test_topics_that_are_no_logs_are_never_taken() -> None:
    for topic in ("__consumer_offsets", "nodots", "unknown-stream.key", "__transaction_state.x"):
        assert CATALOG.facts(topic) is None
        assert not any(CATALOG.takes(each, topic) for each in BIG_BLUE.directed_links())


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
                Source,
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
def test_the_choice(sources: tuple[Source, ...], every: bool, holder: str | None, end: int, current: set[str]) -> None:
    chosen = choose(sources, every=every, current=current, holder=holder, end=end)
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
        # Somebody has more: never stay with one of which it is known that it has not.
        assert best.end is None or best.end > end
    # And the choice is stable: nothing changes when nothing has changed.
    assert choose(sources, every=every, current=chosen, holder=holder, end=end) == chosen


def test_only_unfollowed_sources_are_asked_and_never_behind_the_holder() -> None:
    x, y = TopicPartition("x"), TopicPartition("y", 3)
    carried = {"a->t": {x: "a", y: "a"}, "b->t": {x: "b", y: "b"}}
    followed = {x: {"a->t"}, y: {"a->t"}}
    holders = {x: "a", y: "z"}
    assert to_survey(followed, carried, holders.get) == {"b->t": [y]}
    assert to_survey({}, carried, holders.get) == {"a->t": [x, y], "b->t": [x, y]}
