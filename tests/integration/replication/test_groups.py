"""A link copies consumer groups: consumers continue at the other site with exactly the next record."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import NewTopic
from pydantic import SecretStr

from acl.compile import compile_site
from acl.rules import Resource
from fairlead.custody.view import CustodyView
from fairlead.kafka.admin import admin_client, ask_coordinator
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.names import parse_log
from replication.catalog import Catalog
from replication.changes import PlanChanges
from replication.groups.client import GroupClient, Groups
from replication.groups.rules import REASON, Commit, GroupLogState, copied_position
from replication.groups.sync import GroupSync
from replication.link.cut_off import SourceRules
from replication.link.source_link import SourceLink
from replication.overrides import Overrides
from replication.target.appender import TargetAppender
from tests.support.access_rules import permitted
from tests.support.replication.lab import Lab, until
from tests.support.waits import PATIENCE
from topologies.model import Link

pytestmark = [pytest.mark.long, pytest.mark.integration]

OTHER = {"alpha": "beta", "beta": "alpha"}


class Harbour:
    """A lab with links both ways, consumer groups and their committed offsets."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.group = f"{lab.stream}.reader"
        self.topic = lab.log("alpha.numbers")
        self.syncs: list[GroupSync] = []
        self.admins = {site: admin_client(lab.kafka(site)) for site in OTHER}

    def link(self, source: str, **changes: Any) -> Link:
        streams = {self.lab.stream: "all"}
        data = {"from": source, "to": OTHER[source], "streams": streams, "groups": [f"{self.lab.stream}.*"]}
        return Link.model_validate(data | changes)

    def sync(self, source: str, *, restricted: bool = False, interval: float = 15.0, **changes: Any) -> GroupSync:
        link = self.link(source, **changes)
        users = (f"replicator.{link.to}", "replicator") if restricted else ("admin", "admin")

        def carries(topic: str) -> bool:
            name = parse_log(topic)
            return name is not None and link.takes(name)

        sync = GroupSync(
            link,
            lambda: self.lab.kafka(source, users[0]),
            self.lab.kafka(link.to, users[1]),
            carries=carries,
            origins={source},
            interval=interval,
        )
        self.syncs.append(sync)
        return sync

    def produce(self, site: str, count: int, *, partitions: int = 1, topic: str = "") -> None:
        """Send ``count`` records to each partition, one at a time, so that both sites get the same batches."""
        producer = Producer({**self.lab.kafka(site).librdkafka(), "linger.ms": 5, "log_level": 0})
        for n in range(count):
            for partition in range(partitions):
                producer.produce(topic or self.topic, value=f"value {n}", partition=partition)
        assert producer.flush(PATIENCE) == 0

    async def replicated(self, count: int) -> None:
        """Let the replicator copy the log to beta."""
        beta = self.lab.replicator(self.lab.one_way(), "beta")
        async with self.lab.running(beta):
            await self.lab.reaches("beta", self.topic, count)

    async def filled(self, count: int) -> None:
        await self.lab.make("alpha", self.topic)
        await asyncio.to_thread(self.produce, "alpha", count)
        await self.replicated(count)

    async def consume(self, site: str, count: int, **settings: Any) -> list[int]:
        return await asyncio.to_thread(self._consume, site, count, settings)

    def _consume(self, site: str, count: int, settings: Mapping[str, Any]) -> list[int]:
        with self.member(site, **settings) as consumer:
            read = [self._next(consumer) for _ in range(count)]
            consumer.commit(asynchronous=False)  # with the leader epochs of this site
        return read

    @staticmethod
    def _next(consumer: Consumer) -> int:
        message = consumer.poll(PATIENCE)
        assert message is not None and message.error() is None, message and message.error()
        offset = message.offset()
        assert offset is not None
        return offset

    @contextlib.contextmanager
    def member(self, site: str, **settings: Any) -> Iterator[Consumer]:
        """Run a consumer of the group that fails if the offset is missing or out of range."""
        usual = {"group.id": self.group, "auto.offset.reset": "error", "enable.auto.commit": False, "log_level": 0}
        consumer = Consumer({**self.lab.kafka(site).librdkafka(), **usual, **settings})
        consumer.subscribe([self.topic])
        try:
            yield consumer
        finally:
            consumer.close()

    @contextlib.asynccontextmanager
    async def present(self, site: str) -> AsyncIterator[Consumer]:
        """Run a member that has read one record and stays until the end of the block."""
        with contextlib.ExitStack() as stack:
            consumer = await asyncio.to_thread(stack.enter_context, self.member(site))
            await asyncio.to_thread(self._next, consumer)
            yield consumer
            await asyncio.to_thread(stack.pop_all().close)

    async def stored(self, site: str, topic: str = "") -> dict[int, Partition]:
        """Return the group's committed offsets by partition, as its coordinator has them."""
        admin = self.admins[site]
        await asyncio.wrap_future(ask_coordinator(admin, self.group, PATIENCE))
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group)])
        found = (await asyncio.wrap_future(asked[self.group])).topic_partitions or ()
        return {each.partition: each for each in found if each.topic == (topic or self.topic)}

    async def committed(self, site: str, topic: str = "") -> dict[int, Commit]:
        stored = await self.stored(site, topic)
        return {partition: Commit(each.offset, each.metadata or "") for partition, each in stored.items()}

    async def offset(self, site: str) -> int:
        return (await self.committed(site))[0].offset

    async def set_offsets(self, site: str, offsets: Mapping[int, int], topic: str = "") -> None:
        """Set offsets as ``kafka-consumer-groups --reset-offsets`` does."""

        def ask() -> None:
            client = self.admins[site]
            wanted = [Partition(topic or self.topic, partition, offset) for partition, offset in offsets.items()]
            future = client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group, wanted)])[self.group]
            assert all(each.error is None for each in future.result(PATIENCE).topic_partitions or ())

        await asyncio.to_thread(ask)

    def shown(self, sync: GroupSync) -> dict[str, Any]:
        groups: dict[str, Any] = sync.snapshot()["groups"]
        return dict(groups[self.group])


@pytest.fixture
async def harbour(lab: Lab) -> AsyncIterator[Harbour]:
    made = Harbour(lab)
    yield made
    for sync in made.syncs:
        await sync.close()


@contextlib.asynccontextmanager
async def looking(*syncs: GroupSync) -> AsyncIterator[None]:
    """Run these syncs in the background."""
    tasks = [asyncio.ensure_future(sync.run()) for sync in syncs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_moves_to_the_target_and_home_again(harbour: Harbour, protocol: str) -> None:
    """A group moves to the target and back again, and loses no position."""
    await harbour.filled(60)
    out, home = harbour.sync("alpha"), harbour.sync("beta")
    kind = {"group.protocol": protocol}
    assert await harbour.consume("alpha", 10, **kind, **{"auto.offset.reset": "earliest"}) == list(range(10))

    await out.sync_once()
    copy = (await harbour.committed("beta"))[0]
    position = copied_position(copy)
    assert copy.offset == 10 and position is not None and position[:2] == ("alpha", 10)
    epochs = [(await harbour.stored(site))[0].leader_epoch for site in ("alpha", "beta")]
    assert epochs[0] is not None and epochs[1] is None  # alpha's leader epoch means nothing at beta
    assert harbour.shown(out) | {"copied_at": ""} == {
        "state": "copied",
        "reason": "",
        "copied_at": "",
        "behind": 0,
        "logs": 1,
        "not_plain": {},
    }
    await home.sync_once()
    assert harbour.shown(home)["reason"] == REASON[GroupLogState.HOME]

    await harbour.set_offsets("alpha", {0: 4})  # no member used it at beta: a reset at the source is copied
    await out.sync_once()
    assert await harbour.offset("beta") == 4

    assert await harbour.consume("beta", 20, **kind) == list(range(4, 24))  # failover
    await out.sync_once()
    assert await harbour.offset("beta") == 24
    assert harbour.shown(out)["reason"] == REASON[GroupLogState.USED]
    await harbour.set_offsets("alpha", {0: 7})  # a late commit at the source does not win
    await out.sync_once()
    assert await harbour.offset("beta") == 24

    await harbour.sync("beta").sync_once()  # failback, by a replicator that has just started
    assert await harbour.offset("alpha") == 24
    assert await harbour.consume("alpha", 6, **kind) == list(range(24, 30))
    await out.sync_once()
    assert await harbour.offset("beta") == 30
    assert await harbour.consume("beta", 1, **kind) == [30]


async def test_members_at_the_target_are_left_alone(harbour: Harbour) -> None:
    """While a group has members at the target, its offsets there are left alone."""
    await harbour.filled(30)
    sync = harbour.sync("alpha")
    await harbour.set_offsets("alpha", {0: 5})
    await sync.sync_once()
    async with harbour.present("beta") as member:
        await harbour.set_offsets("alpha", {0: 20})
        await sync.sync_once()
        assert await harbour.offset("beta") == 5
        shown = harbour.shown(sync)
        assert (shown["state"], shown["reason"], shown["behind"]) == ("skipped", REASON[GroupLogState.ACTIVE], 15)
        await asyncio.to_thread(member.commit, asynchronous=False)
    await sync.sync_once()
    assert await harbour.offset("beta") == 6  # the members' commits are newer
    await harbour.set_offsets("alpha", {0: 21})
    await sync.sync_once()
    assert await harbour.offset("beta") == 21


async def test_a_member_that_comes_while_looking_is_left_alone_by_the_broker(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a group gets a member after a sync has listed the groups, the broker itself refuses to change its offsets."""
    await harbour.filled(30)
    sync = harbour.sync("alpha")
    await harbour.set_offsets("alpha", {0: 5})
    await sync.sync_once()
    await harbour.set_offsets("alpha", {0: 20})
    async with harbour.present("beta"):
        real = GroupClient.groups

        async def before_it_came(client: GroupClient) -> Groups:
            listed = await real(client)
            return listed._replace(active=dict.fromkeys(listed.active, False))

        monkeypatch.setattr(GroupClient, "groups", before_it_came)
        await sync.sync_once()
        assert await harbour.offset("beta") == 5
        assert harbour.shown(sync)["reason"] == REASON[GroupLogState.ACTIVE]


async def test_a_replica_that_lags_is_not_overtaken(harbour: Harbour) -> None:
    """A group's copied offset never passes the end of a replica that lags."""
    await harbour.filled(20)
    await asyncio.to_thread(harbour.produce, "alpha", 10)
    await harbour.set_offsets("alpha", {0: 30})  # exactly at the source's end
    sync = harbour.sync("alpha", interval=0.1)
    await sync.sync_once()
    assert await harbour.offset("beta") == 20
    shown = harbour.shown(sync)
    assert (shown["state"], shown["behind"]) == ("copied", 10)
    assert (shown["reason"], shown["not_plain"]) == (REASON[GroupLogState.CLAMPED], {harbour.topic: "clamped"})
    async with looking(sync):
        await harbour.replicated(30)

        async def caught_up() -> bool:
            return bool(harbour.shown(sync)["behind"] == 0)

        await until(caught_up, "the group does not follow when its log has caught up")
    assert await harbour.offset("beta") == 30


async def test_where_the_replica_begins_later_nobody_falls_off_its_start(harbour: Harbour) -> None:
    """A committed offset below the replica's start is raised to the start, so that no consumer is out of range.

    The source's log begins at 20, so the replica begins with fillers, which are deleted.
    """
    lab, tp = harbour.lab, TopicPartition(harbour.topic)
    await lab.make("alpha", harbour.topic)
    for _ in range(2):  # two batches, because the replicator copies a partly deleted batch whole
        await asyncio.to_thread(harbour.produce, "alpha", 20)
    await (await lab.cluster("alpha")).delete_records({tp: 20})

    async def positioned() -> bool:
        starts = await (await lab.cluster("beta")).start_offsets([tp])
        return bool(starts[tp] == 20)

    async with lab.running(lab.replicator(lab.one_way(), "beta")):
        await lab.reaches("beta", harbour.topic, 40)
        await until(positioned, "the replica's fillers are not deleted")
    sync = harbour.sync("alpha")
    await harbour.set_offsets("alpha", {0: 12})
    await sync.sync_once()
    assert harbour.shown(sync)["reason"] == REASON[GroupLogState.RAISED]
    assert await harbour.consume("beta", 1, **{"auto.offset.reset": "latest"}) == [20]
    await harbour.set_offsets("alpha", {0: 25})
    await sync.sync_once()
    assert await harbour.consume("beta", 2) == [25, 26]


async def test_many_partitions_many_groups_and_what_the_link_does_not_carry(harbour: Harbour) -> None:
    lab, stranger = harbour.lab, f"other{harbour.lab.stream}.alpha.numbers"
    for site in OTHER:
        made = harbour.admins[site].create_topics(
            [NewTopic(harbour.topic, 6), NewTopic(stranger, 1), NewTopic(f"{lab.stream}.x", 1)]
        )
        await asyncio.gather(*map(asyncio.wrap_future, made.values()))
        await (await lab.cluster(site)).wait_writable(made)
        await asyncio.to_thread(harbour.produce, site, 20, partitions=6)
        await asyncio.to_thread(harbour.produce, site, 20, topic=stranger)
    await harbour.set_offsets("alpha", {partition: partition * 3 for partition in range(6)})
    await harbour.set_offsets("alpha", {0: 9}, topic=stranger)
    first = harbour.group
    for n in range(12):
        harbour.group = f"{lab.stream}.more-{n}"
        await harbour.set_offsets("alpha", {0: n})
    harbour.group = f"not.{lab.stream}"
    await harbour.set_offsets("alpha", {0: 5})
    sync = harbour.sync("alpha", groups=[f"{lab.stream}.*", "nobody"])
    await sync.sync_once()
    assert await harbour.committed("beta") == {}
    for n in range(12):
        harbour.group = f"{lab.stream}.more-{n}"
        assert await harbour.offset("beta") == n
    harbour.group = first
    offsets = {partition: commit.offset for partition, commit in (await harbour.committed("beta")).items()}
    assert offsets == {partition: partition * 3 for partition in range(6)}
    assert await harbour.committed("beta", stranger) == {}
    snapshot = sync.snapshot()
    assert (snapshot["state"], snapshot["cause"], snapshot["unmatched"]) == ("up", "", ["nobody"])
    assert len(snapshot["groups"]) == 13 and harbour.shown(sync)["logs"] == 6


async def test_with_the_rights_that_the_topology_gives_and_with_each_one_missing(harbour: Harbour) -> None:
    """Offsets are copied with exactly the access that the topology grants; each missing right is reported."""
    await harbour.filled(30)
    lab = harbour.lab
    link = {"from": "alpha", "to": "beta", "streams": {lab.stream: "all"}, "groups": [f"{lab.stream}.*"]}
    topology = lab.topology(links=[link])
    users = {"alpha": "replicator.beta", "beta": "replicator"}
    rules = {site: {each for each in compile_site(topology, site) if each.user == user} for site, user in users.items()}
    offset = 0

    async def sync_once(site: str, missing: Resource | None) -> GroupSync:
        nonlocal offset
        offset += 1
        await harbour.set_offsets("alpha", {0: offset})
        given = rules | {site: {each for each in rules[site] if each.resource is not missing}}
        sync = harbour.sync("alpha", restricted=True)
        with permitted(lab.kafka, given):
            await sync.sync_once()
        return sync

    sync = await sync_once("beta", None)
    assert harbour.shown(sync)["state"] == "copied" and await harbour.offset("beta") == 1
    sync = await sync_once("alpha", Resource.GROUP)
    assert sync.snapshot()["groups"] == {}
    assert "GROUP_AUTHORIZATION_FAILED" in sync.snapshot()["cause"]
    sync = await sync_once("alpha", Resource.TOPIC)  # offsets on topics that the user may not describe look missing
    assert sync.snapshot()["groups"] == {}
    sync = await sync_once("beta", Resource.GROUP)
    assert "GROUP_AUTHORIZATION_FAILED" in harbour.shown(sync)["reason"]
    sync = await sync_once("beta", Resource.TOPIC)
    assert harbour.shown(sync)["reason"] == REASON[GroupLogState.ABSENT]
    assert await harbour.offset("beta") == 1
    sync = await sync_once("beta", None)
    assert await harbour.offset("beta") == offset


async def test_a_source_that_refuses_or_is_away_is_shown_and_tried_again(harbour: Harbour, lab: Lab) -> None:
    await harbour.filled(10)
    await harbour.set_offsets("alpha", {0: 5})
    good = lab.kafka("alpha")
    wrong = dataclasses.replace(good, password=SecretStr("wrong"))
    away = dataclasses.replace(good, bootstrap=(("127.0.0.1", 1),))
    now = wrong
    way, kafka = harbour.link("alpha"), lab.kafka("beta")
    sync = GroupSync(way, lambda: now, kafka, carries=lambda _: True, origins={"alpha"}, interval=0.05)

    async def shows(state: str, text: str) -> None:
        async def there() -> bool:
            snapshot = sync.snapshot()
            return snapshot["state"] == state and text in snapshot["cause"]

        await until(there, f"{state} {text} is not shown but {sync.snapshot()}")

    async with looking(sync):
        await shows("unavailable", "_AUTHENTICATION")
        now = away
        await shows("unavailable", "_ALL_BROKERS_DOWN")
        now = good
        await shows("up", "")
    assert await harbour.offset("beta") == 5


async def test_a_look_is_charged_to_the_rate_of_the_link(harbour: Harbour) -> None:
    """The traffic of a sync counts towards the link's rate."""
    lab = harbour.lab
    await lab.make("alpha", harbour.topic)
    await asyncio.to_thread(harbour.produce, "alpha", 5)
    client = GroupClient(lab.kafka("alpha"))
    for n in range(100):
        await client.commit(f"{harbour.group}.{n}", {TopicPartition(harbour.topic): Commit(3, "x" * 1000)})
    link = harbour.link("alpha", rate="64 kbit/s")
    charged: list[int] = []

    class Counted(GroupSync):
        async def run(self, on_bytes: Callable[[int], None] | None = None) -> None:
            assert on_bytes == source_link.charge
            await super().run(charged.append)

    async def nowhere(_logs: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        return ()

    here = lab.kafka("beta")
    sync = Counted(link, lambda: lab.kafka("alpha"), here, carries=lambda _: True, origins={"alpha"}, interval=0.1)
    rules = SourceRules(link, Catalog(lab.one_way()), CustodyView(), Overrides())
    source_link = SourceLink(link, rules, lambda: lab.kafka("alpha"), PlanChanges(), sync)
    source_link.allow()
    looking = asyncio.ensure_future(source_link.run(cast(TargetAppender, None), nowhere))

    async def counted() -> bool:
        return sum(charged) > 100_000  # 100 commits of more than 1000 bytes each

    await until(counted, f"{sync.snapshot()}, {charged}")
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
