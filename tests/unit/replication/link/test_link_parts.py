"""The parts of a link that need no broker: gate, status, fetchers, waking up a poll, topic refresh."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.custody.view import CustodyView
from fairlead.errors import UnavailableError
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import LEADER_NOT_AVAILABLE, NETWORK_EXCEPTION, RequestTimeout
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.records.custody import CustodyEntry
from replication.catalog import Catalog, SourceReach
from replication.changes import PlanChanges
from replication.link import fetcher as under_test
from replication.link.byte_budget import QUIET, REFRESH, refresh_pause
from replication.link.cut_off import LONGEST_GAP, SourceRules
from replication.link.fetcher import FETCHER_LOGS, THIN_FETCHERS, Fetcher, FetcherManager, PollWakeup
from replication.link.source_link import LinkGate, LinkStatus, SourceLink
from replication.overrides import Overrides
from replication.states import TELL_MOST, LinkState, LogState, TroubleTeller
from replication.target.mirror import MirrorPartition
from tests.support.ledgers import entry
from tests.support.replication.scripted import FakeFetcher, Sink, Source
from topologies.loader.load import load
from topologies.model import Priority, SiteKind

# ---- gate


async def test_work_ends_when_the_gate_closes() -> None:
    """Work stops when the link's gate closes."""
    gate = LinkGate()
    gate.open()
    began = asyncio.Event()
    ended: list[str] = []

    async def work() -> None:
        try:
            began.set()
            await asyncio.Future()
        finally:
            ended.append("cleaned up")

    task = asyncio.create_task(gate.run_while_open(work()))
    await began.wait()
    gate.close(LinkState.PAUSED, "by ann")
    await task
    assert ended == ["cleaned up"]
    assert not gate.is_open
    assert gate.closed_as == (LinkState.PAUSED, "by ann")


async def test_work_that_fails_raises_and_work_that_is_done_returns() -> None:
    """Work that fails raises its error; finished work returns its result."""
    gate = LinkGate()
    gate.open()

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await gate.run_while_open(fail())
    await gate.run_while_open(asyncio.sleep(0))
    assert gate.is_open


async def test_waiting_ends_when_the_gate_opens() -> None:
    """Waiting ends when the link's gate opens."""
    gate = LinkGate()
    waiting = asyncio.create_task(gate.wait_open())
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.open()
    await waiting


# ---- status


def test_a_state_is_dated_from_when_it_was_entered() -> None:
    """A state carries the time at which the link entered it."""
    status = LinkStatus("a->b")
    status.set_state(LinkState.MIRRORING)
    since = status.since
    status.set_state(LinkState.MIRRORING, "still")
    assert (status.since, status.cause) == (since, "still")


def test_the_last_error_stays_when_the_link_is_up_again() -> None:
    """The last error is still shown when the link is up again."""
    status = LinkStatus("a->b")
    status.set_unavailable("no route")
    assert status.as_json()["state"] == "unavailable"
    status.set_state(LinkState.MIRRORING)
    assert status.last_error == "no route"
    assert (status.as_json()["state"], status.as_json()["cause"]) == ("mirroring", "")


# ---- fetchers


class Link:
    """The owner of fetchers; ``up`` tells whether it can open any."""

    def __init__(self, *, thin: bool, brokers: int = 1) -> None:
        self.up = True
        self.opened: list[FakeFetcher] = []
        self.fetchers = FetcherManager(
            self._open, thin=thin, leader=lambda tp: int(tp.topic.rpartition(".")[2]) % brokers
        )

    def _open(self, priority: Priority) -> Fetcher | None:
        if not self.up:
            return None
        self.opened.append(FakeFetcher(priority))
        return cast(Fetcher, self.opened[-1])

    def follow(self, count: int, priority: Priority = Priority.NORMAL, name: str = "log") -> list[TopicPartition]:
        logs = [TopicPartition(f"{name}.{number}") for number in range(count)]
        self.fetchers.follow({tp: MirrorPartition(tp, priority) for tp in logs}, lambda _: priority)
        return logs


def test_a_fetcher_has_a_limited_number_of_logs() -> None:
    link = Link(thin=False)
    link.follow(FETCHER_LOGS + 1)
    assert [len(each) for each in link.opened] == [FETCHER_LOGS, 1]
    link.follow(FETCHER_LOGS + 1)  # known already, so not counted again
    assert len(link.fetchers) == FETCHER_LOGS + 1
    assert link.fetchers.lag() == FETCHER_LOGS + 1


def test_a_fetcher_has_logs_of_one_broker_so_that_it_needs_one_connection() -> None:
    """The logs of each leader go to fetchers of their own; a fetcher with logs of all brokers would need a connection
    and a fetch session at each of them."""
    link = Link(thin=False, brokers=3)
    link.follow(3 * FETCHER_LOGS + 3)
    leaders = [{int(tp.topic.rpartition(".")[2]) % 3 for tp in each.logs} for each in link.opened]
    assert sorted(map(len, leaders)) == [1] * 6
    assert sorted(len(each) for each in link.opened) == [1] * 3 + [FETCHER_LOGS] * 3
    assert link.fetchers.lag() == 3 * FETCHER_LOGS + 3


def test_over_a_thin_link_brokers_share_a_fetcher() -> None:
    """A link with a rate has few fetchers, however many brokers its source has."""
    link = Link(thin=True, brokers=3)
    link.follow(30)
    assert len(link.opened) == THIN_FETCHERS


def test_each_class_has_its_own_fetcher() -> None:
    """Each priority class has its own fetcher."""
    link = Link(thin=False)
    link.follow(3, Priority.NORMAL, "a")
    link.follow(2, Priority.CONTROL, "b")
    assert {each.priority: len(each) for each in link.opened} == {Priority.NORMAL: 3, Priority.CONTROL: 2}


def test_a_thin_link_shares_its_logs_between_two_fetchers() -> None:
    """A slow link divides its logs between two fetchers."""
    link = Link(thin=True)
    link.follow(10)
    assert [len(each) for each in link.opened] == [10 // THIN_FETCHERS] * THIN_FETCHERS
    link.follow(2, Priority.CONTROL, "control")
    assert [len(each) for each in link.opened[THIN_FETCHERS:]] == [2]  # one fetcher for the logs that every source has


def test_nothing_is_followed_while_the_link_is_down() -> None:
    """While the link is down, no log is followed."""
    link = Link(thin=False)
    link.up = False
    link.follow(2)
    assert len(link.fetchers) == 0
    link.up = True
    link.follow(2)
    assert len(link.fetchers) == 2
    link.fetchers.clear()
    assert (len(link.fetchers), link.fetchers.lag()) == (0, 0)


def test_logs_that_are_not_wanted_any_more_leave_their_fetcher() -> None:
    """Logs that are no longer wanted leave their fetcher."""
    link = Link(thin=False)
    first, second, third = link.follow(3)
    assert link.fetchers.unfollow(first)
    assert not link.fetchers.unfollow(first)
    assert link.fetchers.unfollow(second)
    assert link.opened[0].logs == {third}
    assert second not in link.opened[0].logs
    assert len(link.fetchers) == 1


def link_from_a_ship(
    endpoint: Callable[[], KafkaEndpoint] = lambda: pytest.fail("nobody connects"),
    *,
    custody: CustodyView | None = None,
    changes: PlanChanges | None = None,
) -> SourceLink:
    """Return the link over which Tokyo copies from a ship at the berth."""
    topology = load("minimal", env={})
    link = next(link for link in topology.directed_links() if link.name == "duck-star->tokyo:berthed")
    rules = SourceRules(link, Catalog(topology), custody or CustodyView(), Overrides())
    return SourceLink(link, rules, endpoint, changes or PlanChanges())


def test_only_of_a_ship_a_very_long_gap_is_not_believed() -> None:
    """Logs of ordinary clients elsewhere are as long as they are, and compaction may leave little of them."""
    ship = link_from_a_ship().rules
    assert ship.may_leave_out("events.duck-star", 5, 5 + LONGEST_GAP)
    assert not ship.may_leave_out("events.duck-star", 5, 6 + LONGEST_GAP)
    topology = load("minimal", env={})
    link = next(link for link in topology.directed_links() if topology.sites[link.from_].kind is not SiteKind.SHIP)
    assert SourceRules(link, Catalog(topology), CustodyView(), Overrides()).may_leave_out("metrics.a", 0, 1 << 50)


class Lost:
    """A source that is lost while ``lost`` is set; its connection is closing until ``closed`` is set."""

    logs_per_request, whole_bytes = 100, 0

    def __init__(self) -> None:
        self.lost, self.is_closing, self.closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def open(self, *_: Any, **__: Any) -> Lost:
        return self

    async def __aenter__(self) -> Lost:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_closing.set()
        await self.closed.wait()

    async def ask_metadata(self, _topics: Any) -> None: ...

    async def topic_changes(self) -> None:
        await self.lost.wait()
        raise UnavailableError("away")

    def fetch_session(self, **_: Any) -> Source:
        return Source(end=0)

    metadata = SimpleNamespace(leader=lambda _: 1)


def test_a_log_that_the_source_does_not_serve_is_unavailable_until_the_link_is_lost() -> None:
    """Then the link itself says why nothing comes."""
    source_link, tp = link_from_a_ship(), TopicPartition("alerts.x")
    source_link.logs.show_unserved(tp, LEADER_NOT_AVAILABLE)
    first = source_link.logs.unserved[tp]
    assert (first.state, first.link) == (LogState.UNAVAILABLE, source_link.name)
    assert "LEADER_NOT_AVAILABLE" in first.cause
    source_link.logs.show_unserved(tp, NETWORK_EXCEPTION)
    assert source_link.logs.unserved[tp].since == first.since
    assert "NETWORK_EXCEPTION" in source_link.logs.unserved[tp].cause
    source_link._on_lost()  # noqa: SLF001
    assert not source_link.logs.unserved


async def test_nothing_is_followed_while_the_connection_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a lost connection closes, no log is followed, and following one is no error."""
    source, tp = Lost(), TopicPartition("alerts.x")
    monkeypatch.setattr("replication.link.source_link.Cluster", source)
    source_link = link_from_a_ship(lambda: cast(Any, None))
    source_link.allow()
    run = asyncio.create_task(source_link.run(cast(Any, Sink()), cast(Any, None)))
    source.lost.set()
    await source.is_closing.wait()
    source_link.follow({tp: MirrorPartition(tp, Priority.NORMAL)})
    assert source_link.followed == 0
    source.closed.set()
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


class Slow(Lost):
    """A source that lists its topics only for a client that waits longer than ``needs`` seconds."""

    def __init__(self, needs: float) -> None:
        super().__init__()
        self.needs = needs
        self.waited: list[float] = []
        self.listed: asyncio.Queue[float] = asyncio.Queue()
        self.is_new = True
        self.closed.set()

    async def open(self, *_: Any, request_timeout: float, **__: Any) -> Slow:
        self.waited.append(request_timeout)
        self.is_new = True
        return self

    async def topic_changes(self) -> None:
        if self.waited[-1] <= self.needs:
            raise RequestTimeout("too late")
        if self.is_new:
            self.is_new = False
            self.listed.put_nowait(self.waited[-1])
            return
        await self.lost.wait()
        raise UnavailableError("away")


async def test_a_link_whose_source_answers_too_late_waits_twice_as_long_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link to a source that needs 30 seconds for its listing waits 10, 20, then 40 seconds."""
    source = Slow(needs=30)
    monkeypatch.setattr("replication.link.source_link.Cluster", source)
    source_link = link_from_a_ship(lambda: cast(Any, None))
    source_link.allow()
    run = asyncio.create_task(source_link.run(cast(Any, Sink()), cast(Any, None)))
    assert await source.listed.get() == 40.0
    assert source.waited == [10.0, 20.0, 40.0]
    source.lost.set()
    assert await source.listed.get() == 40.0  # it was away, not late
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


# ---- waking up a poll


async def test_several_changes_cut_a_poll_short_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several changes interrupt a poll only once."""
    monkeypatch.setattr(under_test, "WAKEUP", (0.0, 0.0))
    cut = asyncio.Event()
    times = itertools.count()

    def cut_short() -> None:
        next(times)
        cut.set()

    wakeup = PollWakeup(cut_short, allowed=True)
    for _ in range(3):
        wakeup.request()
    await cut.wait()
    cut.clear()
    wakeup.request()  # a later change interrupts again
    await cut.wait()
    assert next(times) == 2


async def test_no_poll_is_cut_short_where_that_is_not_allowed_or_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No poll is interrupted where this is not allowed, or after it was cancelled."""
    monkeypatch.setattr(under_test, "WAKEUP", (0.0, 0.0))
    cut: list[Any] = []
    PollWakeup(lambda: cut.append("thin"), allowed=False).request()
    cancelled = PollWakeup(lambda: cut.append("cancelled"), allowed=True)
    cancelled.request()
    cancelled.cancel()
    done = asyncio.Event()
    PollWakeup(done.set, allowed=True).request()
    await done.wait()
    assert cut == []


# ---- how often the list of topics is refreshed


@given(
    size=st.integers(0, 1 << 30),
    quiet=st.floats(0, 1e6),
    rate=st.none() | st.integers(1_000, 1 << 30),
    soon=st.booleans(),
)
def test_looking_is_never_more_frequent_than_that(size: int, quiet: float, rate: int | None, soon: bool) -> None:
    """The refresh interval has a lower limit, and grows with the size of the list."""
    pause = refresh_pause(size, quiet, rate, soon=soon)
    assert pause >= (QUIET[1] if quiet > QUIET[0] else REFRESH[0])
    assert refresh_pause(2 * size, quiet, rate, soon=soon) >= pause
    assert rate is not None or pause <= REFRESH[1]


@pytest.mark.parametrize(
    ("size", "quiet", "rate", "usual", "soon"),
    [
        (1_000, 0, None, 1.0, 1.0),
        (1_000, 60, None, 3.0, 3.0),
        (600_000, 0, None, 10.0, 4.0),
        (600_000, 60, None, 100.0, 4.0),
        (7_200_000, 60, None, 300.0, 4.0),  # 100,000 topics
        (36_000_000, 60, None, 300.0, 20.0),
        (600_000, 0, 8_000, 300.0, 300.0),  # at a quarter of the link's rate
        (600_000, 60, 8_000, 1500.0, 1500.0),
    ],
)
def test_looking_costs_only_so_much(size: int, quiet: float, rate: int | None, usual: float, soon: float) -> None:
    """Refreshing takes few bytes, more where a new topic must be noticed soon, and a fixed share of a link's rate."""
    assert refresh_pause(size, quiet, rate) == pytest.approx(usual)
    assert refresh_pause(size, quiet, rate, soon=True) == pytest.approx(soon)


# ---- records that a source may not write


def granted(term: int, to_site: str) -> CustodyEntry:
    return entry(term, term * 10, to_site, "LOAD", log="containers.BIGU1000010")


def test_a_source_that_goes_beyond_its_right_is_left_alone_until_the_right_is_another() -> None:
    """After a source sent records that it may not write, its log is ignored until its right to write changes."""
    box, other = TopicPartition("containers.BIGU1000010"), TopicPartition("alerts.x")
    custody, changes, reach = CustodyView(), PlanChanges(), SourceReach(4)
    custody.apply(granted(4, "duck-star"))
    logs = link_from_a_ship(custody=custody, changes=changes).logs
    assert logs.may_give(box)
    for _ in range(2):
        logs.refuse_log(box, reach, "the batch at offset 9 is of term 7")
    assert (logs.may_give(box), logs.may_give(other), changes.take()) == (False, True, {box.topic})
    (shown,) = (trouble for _, trouble in logs.beyond.values())
    assert (shown.state, shown.link) == (LogState.UNAVAILABLE, "duck-star->tokyo:berthed")
    assert "offset 9 is of term 7" in shown.cause and "nothing more is copied from duck-star" in shown.cause
    logs.refuse_log(box, reach, "the same again")
    assert changes.take() == set()
    custody.apply(granted(7, "duck-star"))
    assert logs.may_give(box)
    assert logs.beyond == {}


def test_a_log_that_is_tried_again_and_again_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A log that its source refuses is planned again each time it is tried, and named in the replicator's log once."""
    tp, changes = TopicPartition("alerts.x"), PlanChanges()
    source_link = link_from_a_ship(changes=changes)
    for _ in range(3):
        source_link.logs.stop_log(tp, LogState.UNAVAILABLE, "refused")
        assert (changes.take(), source_link.logs.may_give(tp)) == ({tp.topic}, False)
        source_link.retry_unavailable()
        assert (changes.take(), source_link.logs.may_give(tp)) == ({tp.topic}, True)
    assert [record.message for record in caplog.records] == ["alerts.x unavailable: refused"]
    source_link.logs.stop_log(tp, LogState.DIVERGED, "two batches at 3")
    assert len(caplog.records) == 2


def test_of_very_many_logs_in_one_state_only_some_are_written(caplog: pytest.LogCaptureFixture) -> None:
    """Of thousands of logs that are stopped at once, the log names fifty, and says that there are more."""
    teller = TroubleTeller(logging.getLogger("replication"))
    for number in range(TELL_MOST + 30):
        teller.tell(TopicPartition(f"containers.{number}"), LogState.UNAVAILABLE, "no leader")
    teller.tell(TopicPartition("containers.0"), LogState.DIVERGED, "two batches at 3")
    told = [record.message for record in caplog.records]
    assert len(told) == TELL_MOST + 2
    assert told[TELL_MOST - 1 :] == [
        f"containers.{TELL_MOST - 1} unavailable: no leader",
        "more logs are unavailable: fairlead status shows all",
        "containers.0 diverged: two batches at 3",
    ]
