"""Start a log's copy with the custody marker that a ledger entry contains, only if marker and entry agree."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from fairlead.errors import FairleadError, RefusedError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import PRODUCER_ID, marker_record, term_batch
from fairlead.kafka.protocol.errors import LEADER_NOT_AVAILABLE, BrokerError, broker_error
from fairlead.kafka.protocol.fetch_codec import failed
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import FetchedPartition, ProduceResult, TopicPartition
from fairlead.records.custody import CustodyEntry
from replication.batch.prepared import POSITION_KEY, Gap
from replication.batch.rebuild import fillers
from replication.catalog import Catalog
from replication.changes import PlanChanges
from replication.custody.bootstrap import LedgerBootstrap, marker_of
from replication.sharing.rules import WorkShare
from replication.states import LogState
from replication.target.topics import TargetTopics
from tests.support.replication.broker import Broker, running
from topologies.model import Topology

NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
MARKER = bytes(term_batch([marker_record(b"{}", timestamp_ms=5)], term=3, offset=70, marker=70))
STORED = (70).to_bytes(8, "big") + MARKER[8:]
ENTRY = CustodyEntry(
    log="boxes.BIGU1000010",
    term=3,
    marker_offset=70,
    from_site="tokyo",
    to_site="duck-star",
    event="LOAD",
    event_id="1",
    event_date_time=NOW,
    granted_date_time=NOW,
    granted_by="tokyo",
    marker_batch=STORED,
)
DATA = bytes(term_batch([NewRecord(b"x", timestamp_ms=5)], term=3, offset=71, marker=70))
TWO = bytes(term_batch([NewRecord(b"x", timestamp_ms=5)] * 2, term=3, offset=70, marker=70))


def test_a_marker_goes_to_its_own_offset_as_it_was_stored() -> None:
    """The marker is appended at its own offset, as it was stored."""
    prepared = marker_of(ENTRY)
    assert prepared is not None
    assert (prepared.base, prepared.stop, prepared.term, prepared.marker, prepared.opens_term) == (70, 71, 3, 70, True)
    assert bytes(prepared.data) == bytes(8) + STORED[8:]


@pytest.mark.parametrize(
    "batch",
    [b"", STORED[:40], STORED[:-1], STORED + b"\0", STORED[:-2] + b"??", DATA, TWO],
    ids=["nothing", "half a header", "cut", "too long", "damaged", "no marker", "more than a marker"],
)
def test_anything_else_is_refused(batch: bytes) -> None:
    """A marker that differs from its entry is refused."""
    assert marker_of(replace(ENTRY, marker_batch=batch)) is None


def test_a_marker_of_another_term_is_refused() -> None:
    """A marker of another term is refused."""
    assert marker_of(replace(ENTRY, term=4)) is None


class Ledger(SimpleNamespace):
    """Stand in for the ledgers: one grant to the ship."""

    def __init__(self) -> None:
        super().__init__(given={ENTRY.log: ENTRY}, custody=SimpleNamespace(grant=lambda _: ENTRY))


SHIP = Topology.model_validate(
    {
        "name": "ship",
        "sites": {"tokyo": {"kind": "port"}, "duck-star": {"kind": "ship"}},
        "streams": {"boxes": {"insert_point": "moves", "owners": ["BIGU"]}},
        "links": [{"from": "tokyo", "to": "duck-star", "start": "end", "streams": {"boxes": "aboard"}}],
    }
)


def topics_here(*topics: str) -> TargetTopics:
    here = TargetTopics()
    here.update(dict.fromkeys(topics, 1))
    return here


@pytest.mark.parametrize("stored", [0, 20], ids=["an empty log", "a log that an interrupted one has positioned"])
async def test_a_log_is_begun_with_its_marker_alone(stored: int) -> None:
    """A log is started with its marker alone."""
    broker = Broker(random.Random(1))  # noqa: S311 - no secrets here
    for filler in fillers(Gap(0, stored, PRODUCER_ID, 3, 70, 1, POSITION_KEY)):
        broker.log(ENTRY.log).append(bytes(filler.data))
    async with running(broker) as appender:
        bootstrap = LedgerBootstrap(SHIP, "duck-star", cast(Any, Ledger()), Catalog(SHIP), PlanChanges())
        await bootstrap.begin_logs(
            cast(Cluster, broker), appender, (), topics_here(ENTRY.log), WorkShare(group=False), None
        )
        for _ in range(300):
            await asyncio.sleep(0)
        assert bootstrap.under_way == set()
    assert (broker.log(ENTRY.log).start, broker.log(ENTRY.log).batches) == (70, [STORED])


async def test_what_another_link_has_begun_meanwhile_is_left_to_it() -> None:
    """A copy that another link has started meanwhile is left alone.

    Its records are not deleted with the fillers, and the target is not asked about them again and again.
    """
    broker, log = Broker(random.Random(1)), TopicPartition(ENTRY.log)  # noqa: S311
    past = bytes(term_batch([NewRecord(b"x", timestamp_ms=5)] * 5, term=2, offset=0, marker=0))
    async with running(broker) as appender:
        bootstrap = LedgerBootstrap(SHIP, "duck-star", cast(Any, Ledger()), Catalog(SHIP), PlanChanges())
        end_offsets, asked = broker.end_offsets, 0

        async def begun_after_the_first(logs: Collection[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
            nonlocal asked
            asked += 1
            found = await end_offsets(logs)
            if asked == 1:
                broker.log(ENTRY.log).append(past)
            return found

        broker.end_offsets = begun_after_the_first  # type: ignore[method-assign]
        await bootstrap.begin_logs(
            cast(Cluster, broker), appender, (), topics_here(ENTRY.log), WorkShare(group=False), None
        )
        for _ in range(300):
            await asyncio.sleep(0)
        assert bootstrap.under_way == set()
        assert asked < 10
        assert not appender.is_busy(log)
    assert (broker.log(ENTRY.log).start, broker.log(ENTRY.log).end) == (0, 5)


async def test_a_log_whose_custody_moves_on_meanwhile_is_not_begun() -> None:
    """A log is not started if a newer term gives it to another site while the target's ends are being read."""
    broker, ledger = Broker(random.Random(1)), Ledger()  # noqa: S311
    async with running(broker) as appender:
        bootstrap = LedgerBootstrap(SHIP, "duck-star", cast(Any, ledger), Catalog(SHIP), PlanChanges())
        end_offsets = broker.end_offsets

        async def moves_on(logs: Collection[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
            ledger.given.pop(ENTRY.log, None)
            return await end_offsets(logs)

        broker.end_offsets = moves_on  # type: ignore[method-assign]
        await bootstrap.begin_logs(
            cast(Cluster, broker), appender, (), topics_here(ENTRY.log), WorkShare(group=False), None
        )
        assert bootstrap.under_way == set()
        assert not appender.is_busy(TopicPartition(ENTRY.log))
    assert broker.log(ENTRY.log).end == 0


@pytest.mark.parametrize("newer", [None, replace(ENTRY, term=5, marker_offset=90)], ids=["elsewhere", "here again"])
async def test_a_log_whose_custody_moves_on_while_it_is_begun_is_planned_again(newer: CustodyEntry | None) -> None:
    """If a newer term comes before the marker is stored, the log is planned again after that."""
    broker, ledger, changes = Broker(random.Random(1)), Ledger(), PlanChanges()  # noqa: S311
    async with running(broker) as appender:
        bootstrap = LedgerBootstrap(SHIP, "duck-star", cast(Any, ledger), Catalog(SHIP), changes)
        await bootstrap.begin_logs(
            cast(Cluster, broker), appender, (), topics_here(ENTRY.log), WorkShare(group=False), None
        )
        assert bootstrap.under_way == {TopicPartition(ENTRY.log)}
        ledger.given = {ENTRY.log: newer} if newer is not None else {}
        for _ in range(300):
            await asyncio.sleep(0)
        assert broker.log(ENTRY.log).end == 71
        assert bootstrap.under_way == set()
        assert changes.take() == {ENTRY.log}


async def test_a_log_that_the_target_refuses_for_a_while_is_begun_after_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that stops while it is begun is begun again once its trouble is forgiven."""
    broker, produce = Broker(random.Random(1)), Broker.produce  # noqa: S311
    topic_authorization_failed = 29

    async def forbid(_broker: Broker, batches: Mapping[TopicPartition, Any], **_: Any) -> Any:
        return dict.fromkeys(batches, ProduceResult(topic_authorization_failed))

    async with running(broker) as appender:
        bootstrap = LedgerBootstrap(SHIP, "duck-star", cast(Any, Ledger()), Catalog(SHIP), PlanChanges())
        for answer in (forbid, produce):
            monkeypatch.setattr(Broker, "produce", answer)
            await bootstrap.begin_logs(
                cast(Cluster, broker), appender, (), topics_here(ENTRY.log), WorkShare(group=False), None
            )
            for _ in range(300):
                await asyncio.sleep(0)
            appender.replicas[TopicPartition(ENTRY.log)].trouble = None
    assert broker.log(ENTRY.log).batches == [STORED]


async def test_a_log_whose_topic_the_target_refuses_stops_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log whose topic may not be created is unavailable, and is started once that is allowed."""
    broker, log = Broker(random.Random(1)), TopicPartition(ENTRY.log)  # noqa: S311
    refused = {ENTRY.log: RefusedError("not allowed", hint="allow it")}

    def create(_endpoint: Any, _topics: Any, *, failures: dict[str, FairleadError]) -> set[str]:
        failures |= refused
        return {ENTRY.log} - refused.keys()

    async def unserved(_topics: Collection[str], *_: float) -> dict[TopicPartition, BrokerError]:
        return {}

    monkeypatch.setattr("replication.custody.bootstrap.create_logs", create)
    cluster = cast(Cluster, SimpleNamespace(endpoint=None, unserved=unserved))
    async with running(broker) as appender:
        bootstrap = LedgerBootstrap(SHIP, "duck-star", cast(Any, Ledger()), Catalog(SHIP), PlanChanges())
        here = topics_here()
        await bootstrap.begin_logs(cluster, appender, (), here, WorkShare(group=False), None)
        assert here == {}
        trouble = appender.replicas[log].trouble
        assert trouble is not None and (trouble.state, trouble.cause) == (LogState.UNAVAILABLE, "not allowed")
        assert trouble.hint == "allow it"
        refused.clear()
        appender.replicas[log].trouble = None
        await bootstrap.begin_logs(cluster, appender, (), here, WorkShare(group=False), None)
        assert here == {ENTRY.log: 1}
        for _ in range(300):
            await asyncio.sleep(0)
    assert broker.log(ENTRY.log).batches == [STORED]


async def test_a_log_without_a_leader_stops_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log whose new topic no broker serves is unavailable, and holds up no other."""
    other = "boxes.BIGU1000026"

    async def unserved(_topics: Collection[str], *_: float) -> dict[TopicPartition, BrokerError]:
        return {TopicPartition(other): broker_error(LEADER_NOT_AVAILABLE)}

    monkeypatch.setattr("replication.custody.bootstrap.create_logs", lambda _endpoint, topics, **_: {*topics})
    cluster = cast(Cluster, SimpleNamespace(endpoint=None, unserved=unserved))
    ledger, broker, here = Ledger(), Broker(random.Random(1)), topics_here()  # noqa: S311
    ledger.given[other] = replace(ENTRY, log=other)
    async with running(broker) as appender:
        bootstrap = LedgerBootstrap(SHIP, "duck-star", cast(Any, ledger), Catalog(SHIP), PlanChanges())
        await bootstrap.begin_logs(cluster, appender, (), here, WorkShare(group=False), None)
        for _ in range(300):
            await asyncio.sleep(0)
        trouble = appender.replicas[TopicPartition(other)].trouble
    assert trouble is not None and trouble.state is LogState.UNAVAILABLE
    assert here == {ENTRY.log: 1}
    assert broker.log(ENTRY.log).batches == [STORED]


async def test_a_log_whose_leader_is_waited_for_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be begun is begun while others have no leader yet; these are begun when they have one."""
    new = [f"boxes.BIGU{number}" for number in (1000026, 1000031, 1000047)]
    begun: list[list[str]] = []
    answers = [{new[1], new[2]}, {new[2]}, {new[2]}]

    async def unserved(_topics: Collection[str], *_: float) -> dict[TopicPartition, BrokerError]:
        for _turn in range(300):
            await asyncio.sleep(0)
        begun.append([topic for topic in new if broker.log(topic).end])
        return {TopicPartition(topic): broker_error(LEADER_NOT_AVAILABLE) for topic in answers.pop(0)}

    monkeypatch.setattr("replication.custody.bootstrap.create_logs", lambda _endpoint, topics, **_: {*topics})
    cluster = cast(Cluster, SimpleNamespace(endpoint=None, unserved=unserved))
    ledger, broker, here = Ledger(), Broker(random.Random(1)), topics_here(ENTRY.log)  # noqa: S311
    ledger.given = {topic: replace(ENTRY, log=topic) for topic in [*new, ENTRY.log]}
    async with running(broker) as appender:
        bootstrap = LedgerBootstrap(SHIP, "duck-star", cast(Any, ledger), Catalog(SHIP), PlanChanges())
        await bootstrap.begin_logs(cluster, appender, (), here, WorkShare(group=False), None)
        stopped = {tp.topic for tp, trouble in appender.troubles() if trouble.state is LogState.UNAVAILABLE}
    assert begun == [[], new[:1], new[:2]]
    assert stopped == {new[2]}
    assert here.keys() == {ENTRY.log, *new[:2]}


async def test_a_log_that_cannot_be_looked_at_now_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an interrupted replicator left in a log cannot be read, so this log is unavailable; the next is begun."""
    broker, bad = Broker(random.Random(1)), TopicPartition("boxes.BIGU1000026")  # noqa: S311
    ledger = Ledger()
    ledger.given = {bad.topic: replace(ENTRY, log=bad.topic), **ledger.given}
    for topic in ledger.given:
        for filler in fillers(Gap(0, 20, PRODUCER_ID, 3, 70, 1, POSITION_KEY)):
            broker.log(topic).append(bytes(filler.data))
    fetch = broker.fetch

    async def fetched(positions: Mapping[TopicPartition, int], **more: Any) -> dict[TopicPartition, FetchedPartition]:
        found = await fetch(positions, **more)
        return {tp: failed(LEADER_NOT_AVAILABLE) if [*positions] == [bad] else part for tp, part in found.items()}

    monkeypatch.setattr(broker, "fetch", fetched)
    async with running(broker) as appender:
        bootstrap = LedgerBootstrap(SHIP, "duck-star", cast(Any, ledger), Catalog(SHIP), PlanChanges())
        await bootstrap.begin_logs(
            cast(Cluster, broker), appender, (), topics_here(*ledger.given), WorkShare(group=False), None
        )
        for _ in range(300):
            await asyncio.sleep(0)
        trouble = appender.replicas[bad].trouble
    assert trouble is not None and trouble.state is LogState.UNAVAILABLE
    assert broker.log(ENTRY.log).batches == [STORED]


@pytest.mark.parametrize("is_new", [True, False], ids=["created", "created by others before"])
async def test_a_topic_that_is_created_and_deleted_again_is_missed(
    monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    """A topic that was created for a log is gone if no listing shows it; one that existed need not be shown again."""

    async def unserved(_topics: Collection[str], *_: float) -> dict[TopicPartition, BrokerError]:
        return {}

    monkeypatch.setattr("replication.custody.bootstrap.create_logs", lambda *_, **__: {ENTRY.log} if is_new else set())
    cluster = cast(Cluster, SimpleNamespace(endpoint=None, unserved=unserved))
    here = topics_here()
    async with running(Broker(random.Random(1))) as appender:  # noqa: S311
        bootstrap = LedgerBootstrap(SHIP, "duck-star", cast(Any, Ledger()), Catalog(SHIP), PlanChanges())
        await bootstrap.begin_logs(cluster, appender, (), here, WorkShare(group=False), None)
    assert here.apply_listing(None) == (set(), set())
    assert here.apply_listing(None) == (set(), {ENTRY.log} if is_new else set())
