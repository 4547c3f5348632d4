"""A plan of what has changed leaves the same as a plan of everything, whatever happens in whichever order."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest.mock import AsyncMock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlead.custody.ledger import Told
from fairlead.custody.view import Seizure
from fairlead.errors import RefusedError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.metadata import MetadataCache, TopicChanges
from fairlead.kafka.protocol.errors import LEADER_NOT_AVAILABLE, RequestTimeout
from fairlead.kafka.protocol.types import TopicInfo, TopicPartition
from replication.catalog import Catalog
from replication.changes import PlanChanges
from replication.custody.ledger import Ledger
from replication.link.cut_off import SourceRules
from replication.link.fetcher import Fetcher
from replication.link.source_link import SourceLink
from replication.overrides import ORDERS_TOPIC, Override, OverrideKind
from replication.plan import planner as planning
from replication.plan.planner import Planner
from replication.plan.topics import CreatedPart, TopicModel
from replication.sharing.rules import MemberInfo, Roster, WorkShare
from replication.states import LogState, LogTrouble
from replication.target.appender import TargetAppender
from replication.target.mirror import MirrorPartition
from tests.support.examples import examples
from tests.support.ledgers import entry
from tests.support.replication.scripted import FakeFetcher
from tests.support.waits import until
from topologies.model import Priority, Topology

TARGET = "hq"
SOURCES = ("tokyo", "singapore")
BOXES = ("containers.BIGU1000010", "containers.BIGU1000026", "containers.BIGU1000031")
TOPICS = (*BOXES, "orders.a", "orders.b", "alerts.tokyo")
NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def fleet() -> Topology:
    """Two ports, each with a link to headquarters for boxes, orders (of any site) and urgent alerts."""
    streams = {"containers": "all", "orders": "all", "alerts": "all", "custody": "all"}
    return Topology.model_validate(
        {
            "name": "fleet",
            "sites": {
                TARGET: {"kind": "hq"},
                "tokyo": {"kind": "port", "unlocode": "JPTYO"},
                "singapore": {"kind": "port", "unlocode": "SGSIN"},
            },
            "streams": {
                "containers": {"insert_point": "moves", "owners": ["BIGU"]},
                "orders": {},
                "alerts": {"priority": "urgent"},
            },
            "links": [{"from": site, "to": TARGET, "streams": streams} for site in SOURCES],
        }
    )


class Link(SourceLink):
    """A link without a connection. ``there``: the topics of its source, with their partitions."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.there: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.fetchers: list[FakeFetcher] = []
        self.cluster = cast(Cluster, SimpleNamespace(metadata=MetadataCache()))

    def _open_fetcher(self, priority: Priority) -> Fetcher | None:
        self.fetchers.append(FakeFetcher(priority))
        return cast(Fetcher, self.fetchers[-1]) if self.is_up else None

    def list_topics(self) -> None:
        """Connect if the link is down, and list the source's topics."""
        listed = {name: TopicInfo(name, name.encode(), dict.fromkeys(range(n), 1), 1) for name, n in self.there.items()}
        self._on_listing(TopicChanges(listed, set(), is_whole=True))

    def lose(self) -> None:
        """Lose the connection."""
        self._on_lost()
        self._status.set_unavailable("no route")

    @property
    def fetched(self) -> set[TopicPartition]:
        return {tp for fetcher in self.fetchers for tp in fetcher.logs} if self.is_up else set()


class World:
    """The planner of headquarters that ships, with links and a target without brokers."""

    def __init__(self) -> None:
        topology = fleet()
        self.changes = PlanChanges()
        self.ledger = Ledger(topology, TARGET, self.changes)
        self.ledger.ready.set()
        catalog = Catalog(topology)
        self.links = {
            link.from_: Link(
                link,
                SourceRules(link, catalog, self.ledger.custody, self.ledger.overrides),
                lambda: pytest.fail("nobody connects"),
                self.changes,
            )
            for link in topology.links_to(TARGET)
        }
        self.share = WorkShare(group=True)
        self.share.update(Roster("me", {"me": MemberInfo("host")}), "me", 0.0)
        self.planner = Planner(
            topology, TARGET, catalog, self.ledger, tuple(self.links.values()), self.changes, self.share
        )
        self.appender = TargetAppender(
            cast(Cluster, object()), memory=1 << 20, changes=self.changes, limit_of=AsyncMock()
        )
        self.ends: dict[TopicPartition, int] = {}
        self.appender.load_ends = self._load_ends  # type: ignore[method-assign]

    async def _load_ends(self, replicas: Collection[MirrorPartition], late: object = None) -> None:
        for each in replicas:
            each.set_end(self.ends.get(each.tp, 0), None, 0)

    async def plan(self, topics: set[str] | None) -> None:
        await self.planner._plan(cast(Cluster, object()), self.appender, topics)  # noqa: SLF001

    async def settle(self) -> None:
        """Plan what has changed until nothing changes any more, as ``Planner.run`` does."""
        for _ in range(10):
            if not self.changes._event.is_set():  # noqa: SLF001
                return
            await self.plan(self.changes.take())
        raise AssertionError("every plan asks for another one")

    def left(self) -> dict[str, Any]:
        """What the plans left behind."""
        return {
            "followed": dict(self.planner._followed),  # noqa: SLF001
            "fetched": {site: link.fetched for site, link in self.links.items()},
            "counts": dict(self.planner.counts),
            "waiting": set(self.planner.waiting),
            "paused": set(self.planner.overrides._paused),  # noqa: SLF001
            "released": set(self.planner.overrides._released),  # noqa: SLF001
            "asked": {
                name: sorted(logs)
                for name, logs in self.planner._survey._choose(  # noqa: SLF001
                    {link.name: link for link in self.links.values() if link.is_up}
                ).items()
            },
        }

    # ---- what happens

    def grant(self, topic: str, site: str, term: int, by: str = "tokyo") -> None:
        granted = entry(term, term, site, "LOAD", by=by, log=topic)
        self.changes.add(self.ledger._apply_entry(Told(f"custody.{by}", term, granted)))  # noqa: SLF001

    def order(self, kind: OverrideKind, link: str | None, topic: str) -> None:
        self.ledger.overrides.apply(Override(kind, NOW, "operator", link=link, log=topic))
        self.changes.add_all()


async def create(
    _cluster: Cluster, parts: Iterable[Mapping[str, TopicModel]], _here: Mapping[str, int]
) -> AsyncIterator[CreatedPart]:
    """Create every topic at once."""
    for part in parts:
        yield CreatedPart({topic: model.partitions for topic, model in part.items()}, part.keys(), {})


class Kind(Enum):
    """What may happen to a log, a link or a box."""

    LISTED = auto()
    UNLISTED = auto()
    LINK_LOST = auto()
    GRANTED = auto()
    REFUSED_AT_SOURCE = auto()
    RETRIED = auto()
    STOPPED_HERE = auto()
    PAUSED = auto()
    RESUMED = auto()
    DELETED_HERE = auto()
    END_SEEN = auto()
    CUT_OFF = auto()
    BEYOND = auto()
    PROMOTED = auto()
    RESTORED = auto()
    SHARED = auto()


@dataclass(frozen=True)
class Act:
    """One thing that happens. ``to`` is a box's new holder, ``number`` a term, an end, or a number of partitions."""

    kind: Kind
    site: str
    topic: str
    box: str
    to: str
    number: int

    def __call__(self, world: World) -> None:
        link, topic, tp = world.links[self.site], self.topic, TopicPartition(self.topic)
        match self.kind:
            case Kind.LISTED:
                link.there[topic] = max(self.number if topic.startswith("orders") else 1, link.most.get(topic, 1))
                link.most[topic] = link.there[topic]  # a topic with fewer partitions would be another one
                link.list_topics()
            case Kind.UNLISTED:
                link.there.pop(topic, None)
                link.list_topics()
            case Kind.LINK_LOST:
                link.lose()
            case Kind.GRANTED:
                world.grant(self.box, self.to, self.number)
            case Kind.REFUSED_AT_SOURCE:
                link.logs.stop_log(tp, LogState.UNAVAILABLE, "refused")
            case Kind.RETRIED:
                world.planner._survey.retry_unavailable(world.appender)  # noqa: SLF001
            case Kind.STOPPED_HERE:
                replica = world.appender.replica(tp, Priority.NORMAL)
                world.appender.stop_log(replica, LogState.QUARANTINED, "bad bytes")
            case Kind.PAUSED:
                world.order(OverrideKind.PAUSE, link.name, topic)
            case Kind.RESUMED:
                world.order(OverrideKind.RESUME, link.name, topic)
            case Kind.DELETED_HERE:
                world.appender.missing_topics.add(topic)
                world.changes.add([topic])
            case Kind.END_SEEN:
                link.logs.ends[tp] = self.number
                world.changes.add([topic])
            case Kind.CUT_OFF:
                link.logs.mark_cut_off(tp, Seizure(self.number, 3, self.to))
            case Kind.BEYOND:
                link.logs.refuse_log(tp, link.rules.reach(topic), "the next batch is of another's term")
            case Kind.PROMOTED if topic.startswith("orders"):
                world.order(OverrideKind.PROMOTE, None, topic)
            case Kind.RESTORED if topic.startswith("orders"):
                world.order(OverrideKind.RESTORE, None, topic)
            case Kind.SHARED:
                members = {name: MemberInfo(name) for name in ("me", "another", "a third")[: self.number]}
                world.share.update(Roster("me", members), "me", 0.0)
                world.changes.add_all()


sites = st.sampled_from(SOURCES)
GONE_AT_BOTH = [
    Act(Kind.UNLISTED, "singapore", "orders.a", BOXES[0], "tokyo", 1),
    Act(Kind.DELETED_HERE, "tokyo", "orders.a", BOXES[0], "tokyo", 1),
]
BEYOND_AND_GONE = [
    Act(Kind.BEYOND, "tokyo", BOXES[2], BOXES[0], "tokyo", 1),
    Act(Kind.UNLISTED, "tokyo", BOXES[2], BOXES[0], "tokyo", 1),
    Act(Kind.UNLISTED, "singapore", BOXES[2], BOXES[0], "tokyo", 1),
]
LOST = Act(Kind.LINK_LOST, "tokyo", BOXES[0], BOXES[0], "tokyo", 1)
ACTS = st.builds(
    Act,
    st.sampled_from(Kind),
    sites,
    st.sampled_from(TOPICS),
    st.sampled_from(BOXES),
    st.sampled_from((*SOURCES, TARGET)),
    st.integers(1, 4),
)


@pytest.fixture(autouse=True)
def no_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "create_topics", create)


@given(st.lists(st.lists(ACTS, min_size=1, max_size=3), max_size=12))
@example([[*GONE_AT_BOTH]])
@example([[*BEYOND_AND_GONE], [LOST]])
@settings(deadline=None, max_examples=examples(600))
def test_a_plan_of_what_has_changed_leaves_what_a_plan_of_everything_leaves(steps: list[list[Act]]) -> None:
    """After each change, planning everything once more changes nothing: which logs are followed over which link, what
    is fetched, counted, paused, waits, and is asked for elsewhere."""

    async def run() -> None:
        world = World()
        for link, most in zip(world.links.values(), (2, 3), strict=True):
            link.there = {topic: most if topic == "orders.a" else 1 for topic in TOPICS[1:]}
            link.most = dict(link.there)
            link.list_topics()
        await world.plan(None)
        for step in steps:
            for act in step:
                act(world)
            await world.settle()
            found = world.left()
            await world.plan(None)
            await world.settle()
            assert found == world.left()

    asyncio.run(run())


async def test_only_what_has_changed_is_planned() -> None:
    """A box that moves has its own log planned, and no other."""
    world = World()
    for link in world.links.values():
        link.there = dict.fromkeys(TOPICS, 1)
        link.list_topics()
    await world.settle()
    looked: list[str] = []
    catalog = world.planner._catalog  # noqa: SLF001
    carries = catalog.carries

    def looking(custody: Any, link: Any, topic: str) -> bool:
        looked.append(topic)
        return carries(custody, link, topic)

    catalog.carries = looking  # type: ignore[method-assign]
    world.grant(BOXES[0], "singapore", 2)
    await world.settle()
    assert set(looked) == {BOXES[0]}
    assert world.planner._followed[TopicPartition(BOXES[0])] == {world.links["singapore"].name}  # noqa: SLF001
    assert world.links["tokyo"].fetched.isdisjoint({TopicPartition(BOXES[0])})


async def test_what_an_unread_order_may_have_promoted_is_not_followed_until_it_is_read() -> None:
    """Following such a log could append the old writer's records to what clients write here. Every other log is
    followed, although an unread order may pause it."""
    world, trouble = World(), LogTrouble(LogState.UNAVAILABLE, "damaged", NOW, hint="mend it")
    world.ledger.overrides.unread = trouble
    world.links["tokyo"].there = dict.fromkeys(TOPICS, 1)
    world.links["tokyo"].list_topics()
    await world.settle()
    movable = {TopicPartition("orders.a"), TopicPartition("orders.b")}
    assert world.links["tokyo"].fetched == {TopicPartition(topic) for topic in TOPICS} - movable
    shown = dict(world.planner.overrides.pauses())
    assert shown.keys() == movable
    for each in shown.values():
        assert (each.state, each.since, each.hint) == (LogState.UNAVAILABLE, NOW, "mend it")
        assert "promoted" in each.cause and "damaged" in each.cause
    world.ledger.overrides.unread = None
    world.changes.add_all()
    await world.settle()
    assert world.links["tokyo"].fetched == {TopicPartition(topic) for topic in TOPICS}
    assert not dict(world.planner.overrides.pauses())


@pytest.mark.parametrize("at_source", [True, False], ids=["source", "target"])
async def test_an_unavailable_log_is_retried_once_the_plan_has_stopped_it(*, at_source: bool) -> None:
    """While a plan takes long, it is still followed: nothing would begin its fetching anew, and nothing more came."""
    world, tp = World(), TopicPartition("orders.a")
    link = world.links["tokyo"]
    link.there = dict.fromkeys(TOPICS, 1)
    link.list_topics()
    await world.settle()
    if at_source:
        link.logs.stop_log(tp, LogState.UNAVAILABLE, "refused")
    else:
        world.appender.stop_log(world.appender.replicas[tp], LogState.UNAVAILABLE, "refused")
    (fetcher,) = [each for each in link.fetchers if tp in each.logs]
    world.planner._survey.retry_unavailable(world.appender)  # noqa: SLF001
    await world.settle()
    assert tp not in fetcher.logs
    world.planner._survey.retry_unavailable(world.appender)  # noqa: SLF001
    await world.settle()
    assert tp in fetcher.logs and not link.logs.troubles and not [*world.appender.troubles()]


async def test_a_writer_that_lost_records_is_followed_until_its_link_says_so() -> None:
    """It has fewer records than another source. Unless it is asked for the copy's last batch, nobody is told."""
    world, tp = World(), TopicPartition("orders.tokyo")
    tokyo, singapore = world.links["tokyo"], world.links["singapore"]
    world.ends[tp] = singapore.logs.ends[tp] = 110
    singapore.there = {tp.topic: 1}
    singapore.list_topics()
    await world.settle()
    assert singapore.fetched == {tp}
    tokyo.there, tokyo.logs.ends[tp] = {tp.topic: 1}, 50
    tokyo.list_topics()
    await world.settle()
    assert (tokyo.fetched, singapore.fetched) == ({tp}, set())
    tokyo.logs.stop_log(tp, LogState.SOURCE_TRUNCATED, "it ends at 50")
    await world.settle()
    assert (tokyo.fetched, singapore.fetched) == (set(), {tp})


async def test_a_log_that_its_writer_does_not_serve_comes_from_another_source_until_it_does() -> None:
    """The writer's link is up, but nobody leads this log there. It may have lost records, which nobody can see now. It
    is asked on, so that it is known when it serves the log again.
    """
    world, tp = World(), TopicPartition("orders.tokyo")
    tokyo, singapore = world.links["tokyo"], world.links["singapore"]
    singapore.logs.ends[tp] = 200
    for link in (tokyo, singapore):
        link.there = {tp.topic: 1}
        link.list_topics()
    await world.settle()
    assert (tokyo.fetched, singapore.fetched) == ({tp}, set())
    assert world.planner.is_served(tp)
    tokyo.logs.show_unserved(tp, LEADER_NOT_AVAILABLE)
    assert not world.planner.is_served(tp)
    await world.settle()
    for _ in range(3):  # also as further plans see it
        assert (tokyo.fetched, singapore.fetched) == ({tp}, {tp})
        assert world.planner.is_served(tp)
        world.changes.add([tp.topic])
        await world.settle()
    singapore.logs.show_unserved(tp, LEADER_NOT_AVAILABLE)
    await world.settle()
    assert (tokyo.fetched, singapore.fetched) == ({tp}, {tp})
    assert not world.planner.is_served(tp)
    tokyo.logs.show_served(tp)
    singapore.logs.show_served(tp)
    await world.settle()
    assert (tokyo.fetched, singapore.fetched) == ({tp}, set())
    assert not tokyo.logs.unserved and not singapore.logs.unserved


async def test_a_topic_that_its_source_made_again_before_it_was_copied_is_followed() -> None:
    """There is no copy that could differ from it, as on a ship that was never given the box."""
    world, tp = World(), TopicPartition("orders.a")
    link = world.links["tokyo"]
    link.there = {"orders.b": 1}
    link.list_topics()
    await world.settle()
    for log in (tp, TopicPartition("orders.b")):
        link.logs.stop_log(log, LogState.SOURCE_RECREATED, "made again")
    await world.settle()
    assert link.logs.troubles.keys() == {TopicPartition("orders.b")}
    link.there = {"orders.a": 1}
    link.list_topics()
    await world.settle()
    assert tp in link.fetched


async def test_a_topic_that_its_source_made_again_with_more_partitions_is_not_followed() -> None:
    """The target has copies of the old one's partitions; the new one's would stand beside them."""
    world = World()
    link = world.links["tokyo"]
    link.there = {"orders.a": 2}
    link.list_topics()
    await world.settle()
    link.there = {"orders.a": 4}
    logs = {TopicPartition("orders.a", n) for n in range(4)}
    for log in logs:
        link.logs.stop_log(log, LogState.SOURCE_RECREATED, "made again")
    link.list_topics()
    await world.settle()
    assert link.logs.troubles.keys() == logs and not link.fetched & logs


async def test_a_promoted_topic_gets_no_partitions_that_its_old_writer_adds() -> None:
    """The plan that sees them first follows none of them, nor makes them here."""
    world = World()
    link = world.links["tokyo"]
    link.there = {"orders.a": 1}
    link.list_topics()
    await world.settle()
    world.order(OverrideKind.PROMOTE, None, "orders.a")
    await world.settle()
    link.there = {"orders.a": 3}
    link.list_topics()
    await world.plan(world.changes.take())
    assert not link.fetched and world.planner._here["orders.a"] == 1  # noqa: SLF001


async def test_a_log_that_was_granted_twice_stops_once() -> None:
    """Two sites with one term stop the log; the stop asks for one more plan, and that one for none."""
    world = World()
    for link in world.links.values():
        link.there = dict.fromkeys(TOPICS, 1)
        link.list_topics()
    world.grant(BOXES[0], "singapore", 2)
    world.grant(BOXES[0], TARGET, 2, by="singapore")
    assert BOXES[0] in world.ledger.splits
    await world.settle()
    trouble = world.appender.replicas[TopicPartition(BOXES[0])].trouble
    assert trouble is not None and trouble.state is LogState.DIVERGED
    assert TopicPartition(BOXES[0]) not in world.planner._followed  # noqa: SLF001


async def test_a_log_whose_topic_the_target_refuses_stops_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A log whose topic may not be created is unavailable until it may be; all others are followed, and orders are
    carried out."""
    refused = {BOXES[0]: RefusedError("not allowed", hint="allow it")}

    async def picky(
        _cluster: Cluster, parts: Iterable[Mapping[str, TopicModel]], _here: Mapping[str, int]
    ) -> AsyncIterator[CreatedPart]:
        for part in parts:
            created = {topic: model.partitions for topic, model in part.items() if topic not in refused}
            yield CreatedPart(created, created.keys(), {topic: refused[topic] for topic in refused if topic in part})

    monkeypatch.setattr(planning, "create_topics", picky)
    world, log = World(), TopicPartition(BOXES[0])
    world.ledger._positions[TopicPartition(ORDERS_TOPIC)] = 7  # noqa: SLF001
    world.links["tokyo"].there = dict.fromkeys(TOPICS, 1)
    world.links["tokyo"].list_topics()
    await world.settle()
    trouble = world.appender.replicas[log].trouble
    assert trouble is not None and (trouble.state, trouble.cause) == (LogState.UNAVAILABLE, "not allowed")
    assert trouble.as_json()["what_to_do"].startswith("allow it; ")
    assert world.links["tokyo"].fetched == {TopicPartition(topic) for topic in TOPICS} - {log}
    assert world.planner.orders_done == 7
    world.planner._survey.retry_unavailable(world.appender)  # noqa: SLF001
    await world.settle()
    assert world.appender.replicas[log].trouble is not None
    assert [record.message for record in caplog.records] == [f"{log} unavailable: not allowed"]
    refused.clear()
    world.planner._survey.retry_unavailable(world.appender)  # noqa: SLF001
    await world.settle()
    assert world.appender.replicas[log].trouble is None
    assert log in world.links["tokyo"].fetched


async def test_what_happens_while_topics_are_created_waits_for_one_part_of_them_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All topics of a new port may take a quarter of an hour. A link that is paused meanwhile is closed at once, and
    the other topics are created after that."""
    world = World()
    tokyo, singapore = world.links.values()
    parts: list[list[str]] = []

    async def paused_meanwhile(
        _cluster: Cluster, wanted: Iterable[Mapping[str, TopicModel]], _here: Mapping[str, int]
    ) -> AsyncIterator[CreatedPart]:
        for part in wanted:
            parts.append([*part])
            if len(parts) == 1:
                world.ledger.overrides.apply(Override(OverrideKind.PAUSE, NOW, "operator", link=tokyo.name))
                world.changes.add_all()
            yield CreatedPart({topic: model.partitions for topic, model in part.items()}, part.keys(), {})

    monkeypatch.setattr(planning, "create_topics", paused_meanwhile)
    monkeypatch.setattr(planning, "CREATE_AT_ONCE", 1)
    monkeypatch.setattr(planning, "WORTH", 0.0)
    for link in (tokyo, singapore):
        link.there = dict.fromkeys(TOPICS, 1)
        link.list_topics()
    await world.plan(world.changes.take())
    assert (len(parts), world.changes.are_pending) == (1, True)
    await world.plan(world.changes.take())
    assert not tokyo._gate.is_open  # noqa: SLF001
    await world.settle()
    assert sorted(topic for part in parts for topic in part) == sorted(TOPICS)
    assert singapore.fetched == {TopicPartition(topic) for topic in TOPICS}


async def test_a_topic_that_others_create_again_is_followed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that was deleted here and that others have created again meanwhile is followed, and not taken as gone
    because no listing shows a difference."""

    async def others(
        _cluster: Cluster, parts: Iterable[Mapping[str, TopicModel]], _here: Mapping[str, int]
    ) -> AsyncIterator[CreatedPart]:
        for part in parts:
            yield CreatedPart({topic: model.partitions for topic, model in part.items()}, (), {})

    world = World()
    world.links["tokyo"].there = {BOXES[0]: 1}
    world.links["tokyo"].list_topics()
    await world.settle()
    monkeypatch.setattr(planning, "create_topics", others)
    world.planner._here.apply_listing(TopicChanges({BOXES[0]: TopicInfo(BOXES[0], b"", {0: 1})}, set(), True))  # noqa: SLF001
    world.appender.missing_topics.add(BOXES[0])
    world.changes.add(BOXES[:1])
    await world.settle()
    assert world.links["tokyo"].fetched == {TopicPartition(BOXES[0])}
    for _ in range(3):
        assert world.planner._here.apply_listing(None) == (set(), set())  # noqa: SLF001


async def test_everything_is_planned_again_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that nobody has noticed has its effect after ``PLAN_ALL`` seconds."""
    monkeypatch.setattr(planning, "PLAN_ALL", 0.2)
    world = World()
    running = asyncio.create_task(world.planner.run(cast(Cluster, object()), world.appender))
    try:
        link = world.links["tokyo"]
        link.there = {BOXES[0]: 1}
        link.list_topics()
        await asyncio.to_thread(until, lambda: world.planner.mirroring == 1, "the first plan")
        world.changes.take()
        link.logs.topics = {BOXES[1]: 1}  # nobody adds it to the changes
        wanted = {TopicPartition(BOXES[1])}
        await asyncio.to_thread(until, lambda: set(world.planner._followed) == wanted, "the other plan")  # noqa: SLF001
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_log_that_is_retried_before_the_plan_has_seen_its_trouble_is_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log that a link has stopped is begun anew when an operator orders a retry before the next plan: its fetcher has
    given it up, and would not begin it."""
    monkeypatch.setattr(planning, "create_topics", create)
    world, log = World(), TopicPartition(BOXES[0])
    link = world.links["tokyo"]
    link.there = dict.fromkeys(TOPICS, 1)
    link.list_topics()
    await world.settle()
    given_up: list[TopicPartition] = []
    (fetcher,) = (each for each in link.fetchers if log in each.logs)

    def give_up(tp: TopicPartition) -> None:
        given_up.append(tp)
        fetcher.logs.discard(tp)

    monkeypatch.setattr(fetcher, "unfollow", give_up)
    link.logs.stop_log(log, LogState.QUARANTINED, "bad bytes")
    world.ledger.overrides.apply(Override(OverrideKind.RETRY, NOW, "operator", log=str(log)))
    world.changes.add_all()
    await world.settle()
    assert given_up == [log]
    assert log in link.fetched


async def test_a_target_that_lists_its_topics_late_is_given_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to a target whose listings come too late wait twice as long after each."""
    monkeypatch.setattr(planning, "refresh_pause", lambda *_, took: 0.0)
    listed = asyncio.Event()

    class Late:
        request_timeout, whole_bytes = 10.0, 0
        waits: ClassVar[list[float]] = []

        def wait_for_answers(self, seconds: float) -> None:
            self.waits.append(seconds)

        async def topic_changes(self) -> None:
            if self.waits[-1] < 30.0:
                raise RequestTimeout("too late")
            listed.set()

    said: list[str | None] = []
    watching = asyncio.create_task(World().planner.watch_target(cast(Cluster, Late()), said.append))
    await listed.wait()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert Late.waits[:3] == [10.0, 20.0, 40.0]
    assert said[:2] == ["too late", "too late"]
