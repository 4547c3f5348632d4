"""Which logs a site truncates by age, how old their newest record is, and who must have the records first."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from random import Random
from unittest.mock import AsyncMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.kafka.convention import FOREIGN_PRODUCER_ID, PRODUCER_ID
from fairlead.kafka.protocol.types import ProducerState, TopicPartition
from fairlead.names import LogName
from replication.changes import PlanChanges
from replication.custody.ledger import Ledger
from replication.plan.retention import (
    RetentionCut,
    RetentionKeeper,
    Swept,
    decide_cut,
    newest_timestamp,
    retention_limits,
)
from replication.sharing.rules import WorkShare
from replication.states import LogState, LogTrouble
from tests.support.examples import examples
from topologies.loader.load import load
from topologies.model import Link, Topology
from topologies.retention import KeeperGraph

DAY = 86_400_000


def test_a_ship_keeps_days_of_copies_and_of_what_it_holds() -> None:
    """The same retention counts for both; the ledger of custody stays."""
    names = ("containers.BIGU1000016", "containers.BIGU1000021", "alerts.tokyo", "custody.tokyo", "__consumer_offsets")
    topics = dict.fromkeys(names, 1)
    held = "containers.BIGU1000021"

    def holder(topic: str) -> str:
        return "duck-star" if topic == held else "tokyo"

    found = retention_limits(load("big-blue"), "duck-star", topics, holder)
    boxes = {TopicPartition(name): 14 * DAY for name in names[:2]}
    assert found == boxes | {TopicPartition("alerts.tokyo"): 90 * DAY}


def test_a_site_deletes_its_own_strays_only_if_it_is_told_to() -> None:
    """They wait for custody, however long that takes."""
    minimal, big_blue = load("minimal"), load("big-blue")
    strays = {"strays.duck-star": 1, "strays.tokyo": 1}
    own, copy = (TopicPartition(name) for name in strays)
    assert retention_limits(minimal, "duck-star", strays, lambda topic: topic[7:]) == {copy: 14 * DAY}
    assert retention_limits(big_blue, "duck-star", strays, lambda topic: topic[7:])[own] == 90 * DAY


def test_headquarters_keeps_everything_but_confirmations() -> None:
    topics = {"containers.BIGU1000016": 1, "ends.tokyo": 1}
    assert retention_limits(load("big-blue"), "los-angeles", topics, lambda _: "tokyo") == {
        TopicPartition("ends.tokyo"): DAY
    }


def test_every_partition_of_a_topic_is_cut() -> None:
    """Every partition of a topic is truncated."""
    found = retention_limits(load("fan-in"), "paris", {"metrics.new-york.cpu": 3}, lambda _: "new-york")
    assert [tp.partition for tp in found] == [0, 1, 2]


def test_feeds_are_cut_where_they_are_written() -> None:
    found = retention_limits(load("minimal"), "tokyo", {"feeds.ducks": 1}, lambda _: "tokyo")
    assert found == {TopicPartition("feeds.ducks"): 365 * DAY}


def test_the_newest_record_is_one_written_under_the_convention() -> None:
    """The age is that of the newest record written under the append convention."""
    ours, stranger = ProducerState(PRODUCER_ID, 1, 5, 1000), ProducerState(17, 0, 5, 9999)
    assert newest_timestamp([ours, stranger]) == 1000
    assert newest_timestamp([ProducerState(FOREIGN_PRODUCER_ID + 1, 0, 5, 2000), stranger]) == 2000  # after a reversal
    assert newest_timestamp([stranger]) is None
    assert newest_timestamp([]) is None


def test_a_log_is_cut_as_far_as_the_slowest_site_has_it() -> None:
    assert decide_cut(10, {}) == RetentionCut(10, ())
    assert decide_cut(10, {"london": 12, "oslo": 10}) == RetentionCut(10, ())
    assert decide_cut(10, {"london": 7, "oslo": 3, "rome": 11}) == RetentionCut(3, ("london", "oslo"))


async def test_what_an_unread_order_may_have_failed_over_is_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """This site's own records are not the old writer's; a log whose writer its name gives is confirmed."""
    topology = Topology.model_validate(
        {
            "name": "two",
            "sites": {"paris": {"kind": "hq", "retention": {"orders": "1d"}}, "oslo": {"kind": "hq"}},
            "streams": {"orders": {}, "ends": {}},
            "links": [
                {"from": "paris", "to": "oslo", "streams": {"orders": "all"}},
                {"from": "oslo", "to": "paris", "streams": {"ends": ["oslo"]}},
            ],
        }
    )
    ledger, movable, fixed = Ledger(topology, "oslo", PlanChanges()), "orders.any", "orders.paris"
    keeper = RetentionKeeper(
        topology, "oslo", ledger, lambda: {movable: 1, fixed: 1}, topology.fixed_holder, set, WorkShare(group=False)
    )
    monkeypatch.setattr("replication.plan.retention.EndsReader.read", AsyncMock())
    monkeypatch.setattr("replication.plan.retention.delete_expired", AsyncMock(return_value=Swept()))
    writer = AsyncMock()

    async def doubtful() -> Collection[TopicPartition]:
        await keeper.sweep(AsyncMock(), writer)
        assert [tp.topic for tp in writer.confirm.await_args.args[0]] == [movable, fixed]
        found: Collection[TopicPartition] = writer.confirm.await_args.kwargs["doubtful"]
        return found

    assert await doubtful() == set()
    ledger.overrides.unread = LogTrouble(LogState.UNAVAILABLE, "damaged", dt.datetime.now(dt.UTC))
    assert await doubtful() == {TopicPartition(movable)}


# --- a world of sites that copy, confirm and delete, in any order

SITES = ("a", "b", "c", "d")
KEPT = {"1d": 3, "2d": 6, None: 10**9}  # records that a site keeps, by its retention in the topology


@dataclass
class World:
    """One log at every site, and what each site has of the others' confirmations."""

    topology: Topology
    first: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SITES, 0))
    end: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SITES, 0))
    confirmed: dict[str, list[int]] = field(default_factory=lambda: {site: [] for site in SITES})  # each ends.<site>
    copied: dict[tuple[str, str], int] = field(default_factory=dict)  # at a site, how much it has of another's

    def has(self, site: str, other: str) -> int:
        return len(self.confirmed[site]) if site == other else self.copied.get((site, other), 0)

    def copy(self, link: Link, most: int) -> None:
        source, target = link.from_, link.to
        if "s" in link.streams and target != "a" and self.first[source] <= self.end[target]:
            self.end[target] = max(self.end[target], min(self.end[target] + most, self.end[source]))
        for other in SITES:
            if other != target and "ends" in link.streams:
                self.copied[target, other] = max(self.has(target, other), self.has(source, other) - most // 6)

    def confirm(self, site: str) -> None:
        self.confirmed[site].append(self.end[site])

    def known(self, site: str, other: str) -> int:
        """Return the end that a site knows of another, by the entries that it has."""
        entries = self.confirmed[other][: self.has(site, other)]
        return entries[-1] if entries else 0

    def sweep(self, site: str, kept: int, graph: KeeperGraph) -> None:
        expired = min(self.end[site] - kept, self.end[site] - 1)
        if expired <= self.first[site]:
            return
        wanted = graph.keepers(site, LogName("s", "a.x")).wanted("a")
        cut = decide_cut(expired, {other: self.known(site, other) for other in wanted})
        self.first[site] = max(self.first[site], cut.before)

    def onward(self, site: str) -> Iterator[str]:
        """Yield the sites that the log reaches from one, by following links until nothing new comes."""
        found, before = {site}, set[str]()
        while found != before:
            before = set(found)
            for link in self.topology.directed_links():
                if link.from_ in found and "s" in link.streams:
                    found.add(link.to)
        yield from found - {site}


def random_world(random: Random) -> tuple[World, dict[str, int]]:
    """Return a world with a few links, more than half of them both ways, and how many records each site keeps."""
    kept = {site: random.choice(list(KEPT)) for site in SITES}
    links = []
    for _ in range(random.randint(3, 8)):
        one, other = random.sample(SITES, 2)
        streams = random.choice([("s",), ("ends",), ("s", "ends"), ("s", "ends")])
        both = random.random() < 0.6
        links.append({"from": one, "to": other, "both": both, "streams": dict.fromkeys(streams, "all")})
    sites = {name: {"kind": "datacentre"} | ({"retention": {"default": of}} if of else {}) for name, of in kept.items()}
    spec = {"name": "world", "sites": sites, "streams": {"s": {}, "ends": {}}, "links": links}
    return World(Topology.model_validate(spec)), {site: KEPT[of] for site, of in kept.items()}


@settings(max_examples=examples(120))
@given(st.randoms(use_true_random=False))
def test_nothing_is_deleted_that_a_site_which_keeps_it_longer_lacks(random: Random) -> None:
    """In any graph of links, with copies, confirmations and sweeps in any order."""
    world, kept = random_world(random)
    arcs = world.topology.directed_links()
    graph = KeeperGraph(world.topology)
    for _ in range(250):
        site, link = random.choice(SITES), random.choice(arcs)
        match random.choice(["append", "copy", "copy", "copy", "confirm", "sweep"]):
            case "append":
                world.end["a"] += random.randint(1, 4)
            case "copy":
                world.copy(link, random.randint(1, 8))
            case "confirm":
                world.confirm(site)
            case "sweep":
                before = world.first[site]
                world.sweep(site, kept[site], graph)
                if world.first[site] > before:
                    longer = [other for other in world.onward(site) if kept[other] > kept[site]]
                    assert all(world.end[other] >= world.first[site] for other in longer)
    for each in graph.unheard():  # a site that never hears of another deletes nothing, and the check names both
        assert world.known(each.site, each.keeper) == 0
        if each.keeper in graph.keepers(each.site, LogName("s", "a.x")).always:
            assert world.first[each.site] == 0
