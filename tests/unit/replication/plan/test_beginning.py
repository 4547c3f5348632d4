"""Which link starts a new copy when several carry the log: the one with the earliest records."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.custody.view import CustodyView
from fairlead.errors import UnavailableError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol import fetch_codec
from fairlead.kafka.protocol.errors import LEADER_NOT_AVAILABLE
from fairlead.kafka.protocol.types import TopicPartition
from replication.catalog import Catalog
from replication.changes import PlanChanges
from replication.custody.ledger import Ledger
from replication.link.cut_off import SourceRules
from replication.link.source_link import SourceLink
from replication.link.start import beginnings, brought_first
from replication.overrides import Overrides
from replication.plan.planner import Planner
from replication.states import LinkState
from replication.target.appender import TargetAppender
from replication.target.mirror import MirrorPartition
from topologies.model import Priority, Topology

LOG = TopicPartition("alerts.orders")
LEDGER = TopicPartition("custody.tokyo")


class Source:
    """A cluster with the log from ``start`` to ``end``."""

    def __init__(self, start: int, end: int, *, away: bool = False) -> None:
        self.start, self.end, self.away = start, end, away
        self.asked = 0

    async def start_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked += 1
        if self.away:
            raise UnavailableError("away", hint="wait")
        return dict.fromkeys(logs, self.start)

    async def end_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(logs, self.end)

    async def fetch(self, positions: Collection[TopicPartition], **_: Any) -> dict[TopicPartition, Any]:
        return {}


@pytest.mark.parametrize(
    ("source", "is_first"),
    [
        ((0, 500), True),
        ((999, 2000), True),
        ((1000, 2000), False),  # both begin there, so either may
        ((0, 0), False),  # it is empty: it may be waiting for records from this link
        ((700, 700), False),
    ],
)
async def test_an_empty_log_is_begun_by_who_has_earlier_records(source: tuple[int, int], is_first: bool) -> None:
    """The source with earlier records starts a log that is empty here."""
    found = await brought_first(cast(Cluster, Source(*source)), {LOG: 1000}, {}, "earliest")
    assert found == ({LOG} if is_first else set())


@pytest.mark.parametrize(
    ("source", "is_first"), [((0, 900), True), ((500, 900), True), ((501, 900), False), ((0, 500), False)]
)
async def test_a_log_with_records_is_brought_by_who_has_the_next_one(source: tuple[int, int], is_first: bool) -> None:
    """The source with the next record continues a log that has records here."""
    found = await brought_first(cast(Cluster, Source(*source)), {LOG: 1000}, {LOG: 500}, "earliest")
    assert found == ({LOG} if is_first else set())


@pytest.mark.parametrize(("start", "first"), [("earliest", {LOG, LEDGER}), ("latest", {LEDGER}), ("end", {LEDGER})])
async def test_a_link_that_takes_the_newest_only_brings_nothing_before(start: str, first: set[TopicPartition]) -> None:
    """A link that copies only new records brings no earlier ones.

    Ledgers are copied from their beginning whatever the link's setting.
    """
    source = cast(Cluster, Source(0, 2000))
    assert await brought_first(source, {LOG: 1000, LEDGER: 1000}, {}, start) == first


async def test_a_log_whose_last_batch_the_source_does_not_return_holds_up_no_other() -> None:
    """Its filler would have the wrong producer, so it waits; the others begin at their ends."""

    class Refusing(Source):
        async def fetch(self, positions: Collection[TopicPartition], **_: Any) -> dict[TopicPartition, Any]:
            return {LOG: fetch_codec.failed(LEADER_NOT_AVAILABLE)} if LOG in positions else {}

    other = TopicPartition("alerts.other")
    found = await beginnings(cast(Cluster, Refusing(0, 2000)), [LOG, other], "end")
    assert {tp: begin.position for tp, begin in found.items()} == {other: 2000}


# ---- the planner's conditions


class Link:
    """A link as the planner sees it."""

    def __init__(
        self,
        topology: Topology,
        name: str,
        source: Source | None,
        *,
        has: bool = True,
        may_give: bool = True,
        **what: Any,
    ) -> None:
        (self.link,) = [each for each in topology.directed_links() if each.name == name]
        self.name = name
        self.cluster = source
        self.is_up = source is not None
        self.is_coming = False
        self.logs = SimpleNamespace(topics={LOG.topic: 1} if has else {}, may_give=lambda _: may_give)
        vars(self).update(what)


def world(priority: str = "urgent", rate: str | None = None) -> Topology:
    links = [{"from": site, "to": "target", "streams": {"alerts": "all"}} for site in ("late", "whole")]
    if rate is not None:
        links[1]["rate"] = rate
    return Topology.model_validate(
        {
            "name": "world",
            "sites": {site: {"kind": "datacentre"} for site in ("late", "whole", "target")},
            "streams": {"alerts": {"priority": priority}},
            "links": links,
        }
    )


async def ask(topology: Topology, other: Source | None, **what: Any) -> set[TopicPartition]:
    """Return whether the link from ``late``, whose source begins at 1000, must let the other link begin."""
    names = {each.from_: each.name for each in topology.directed_links()}
    source_links = [Link(topology, names["late"], Source(1000, 2000)), Link(topology, names["whole"], other, **what)]
    ledger = Ledger(topology, "target", PlanChanges())
    links = cast(list[SourceLink], source_links)
    planner = Planner(topology, "target", Catalog(topology), ledger, links, PlanChanges())
    replica = MirrorPartition(LOG, topology.streams["alerts"].priority)
    replica.set_end(0, None, 0)
    appender = cast(TargetAppender, SimpleNamespace(replicas={LOG: replica}))
    return await planner.brought_first(appender, names["late"], {LOG: 1000})


async def test_another_link_that_begins_earlier_is_waited_for() -> None:
    """The planner waits for another link that begins earlier."""
    assert await ask(world(), Source(0, 1500)) == {LOG}
    assert await ask(world(), Source(1000, 1500)) == set()


async def test_a_link_that_is_being_connected_is_waited_for() -> None:
    """The planner waits for a link that is still connecting: the start of a log cannot be changed afterwards."""
    assert await ask(world(), None, is_coming=True) == {LOG}
    assert await ask(world(), None) == set()  # its source does not answer, or its gate is closed


async def test_a_source_that_does_not_answer_is_waited_for_until_that_is_noticed() -> None:
    """A source that does not answer is waited for until the link notices that it is away."""
    assert await ask(world(), Source(0, 1500, away=True)) == {LOG}


@pytest.mark.parametrize(
    "what",
    [
        {"has": False},
        {"may_give": False},
    ],
    ids=["has it not", "may not give it"],
)
async def test_a_source_that_cannot_give_the_log_is_not_waited_for(what: dict[str, Any]) -> None:
    """A source that cannot give the log is not waited for."""
    source = Source(0, 1500)
    assert await ask(world(), source, **what) == set()
    assert source.asked == 0


async def test_a_thin_link_that_would_not_be_followed_is_not_waited_for() -> None:
    """A slow link that would not be used anyway is not waited for.

    The past would come over a satellite, though another link has what the site needs.
    """
    assert await ask(world(rate="64 kbit/s"), Source(0, 1500)) == set()


async def test_a_log_that_is_followed_over_one_link_at_a_time_is_begun_from_that_one() -> None:
    """A log that is followed over one link at a time is started from that link."""
    assert await ask(world(priority=Priority.NORMAL), Source(0, 1500)) == set()


def test_a_link_is_being_connected_from_the_opening_of_its_gate_until_it_is_up_or_its_source_is_found_away() -> None:
    """A link counts as connecting from the opening of its gate until it is up or its source is found to be away."""
    topology = world()
    link = topology.directed_links()[0]
    rules = SourceRules(link, Catalog(topology), CustodyView(), Overrides())
    source_link = SourceLink(link, rules, lambda: pytest.fail("not asked for here"), PlanChanges())
    source_link.forbid(LinkState.CLOSED, "the ship is not at this berth")
    assert not source_link.is_coming
    source_link.allow()
    assert source_link.is_coming
    source_link._status.set_state(LinkState.MIRRORING)  # noqa: SLF001 - otherwise only a real connection does
    assert source_link.is_up and not source_link.is_coming
    source_link._status.set_unavailable("no route")  # noqa: SLF001
    assert not source_link.is_coming
