"""Copies that a seizure has cut off: when the replicator deletes them, and why it waits, against two fake brokers."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.custody.superseded import Stale, copies, stale_copies
from fairlead.custody.view import CustodyView
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import filler_batch, marker_record, term_batch
from fairlead.kafka.protocol.batch import MAGIC_AT
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from fairlead.records.custody import CustodyEntry, ReturnEntry
from replication.catalog import Catalog
from replication.custody import rebuild as remake
from replication.custody.ledger import Ledger
from replication.custody.rebuild import Rebuilder
from replication.link.source_link import SourceLink
from replication.states import LogState, LogTrouble
from replication.target.appender import TargetAppender
from replication.target.mirror import MirrorPartition
from tests.support.kafka.fake_broker import FakeCluster, running
from tests.support.kafka.fake_log import FakeLog, damage
from topologies.model import Priority

LOG = "boxes.BIGU1000005"
NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
LINK = "ship from port"


class Site:
    """The ship's side: a copy here, a source at the port, and the ledgers as the ship knows them."""

    def __init__(self, here: FakeCluster, there: FakeCluster, cluster: Cluster, source: Cluster) -> None:
        self.here, self.there, self.cluster = here, there, cluster
        self.view = CustodyView()
        self.returned: dict[str, ReturnEntry] = {}
        ledger = SimpleNamespace(custody=self.view, returned=self.returned, splits={})
        self.troubles: dict[TP, LogTrouble] = {}  # of the link
        source_link = SimpleNamespace(
            name=LINK,
            cluster=source,
            is_up=True,
            logs=SimpleNamespace(cut_off={}, beyond={}, troubles=self.troubles),
        )
        catalog = SimpleNamespace(priority=lambda _topic: Priority.NORMAL)
        self.rebuilder = Rebuilder(
            "ship", cast(Ledger, ledger), [cast(SourceLink, source_link)], cast(Catalog, catalog)
        )
        self.appender = FakeWriter()

    def seized(self, term: int, marker: int, by: str = "port") -> None:
        """Deliver the ledger entry of a seizure."""
        self.view.apply(
            CustodyEntry(
                log=LOG,
                term=term,
                marker_offset=marker,
                from_site="ship",
                to_site=by,
                event="SEIZURE",
                event_id=f"seizure-{term}",
                event_date_time=NOW,
                granted_date_time=NOW,
                granted_by=by,
                marker_batch=b"",
            )
        )

    def reported(self, term: int, cut: int, end: int) -> None:
        """Let the bridge report that it has kept the records beyond the seizure."""
        self.returned[LOG] = ReturnEntry(
            log=LOG,
            term=term,
            marker_offset=cut,
            end_offset=end,
            kept=end - cut,
            strays_log="strays.ship",
            strays_end=9,
            returned_date_time=NOW,
            returned_by="ship",
        )

    async def plan(self) -> set[TP]:
        """Return the logs whose copies must be checked."""
        return await self.rebuilder.stop_stale_copies(
            self.cluster, cast(TargetAppender, self.appender), {TP(LOG): frozenset({LINK})}, None
        )

    async def step(self) -> list[str]:
        """Plan, ask the sources once, and plan again; return the copies that were deleted."""
        await self.plan()
        await self.rebuilder.find_rebuild_sources(self.cluster)
        await self.plan()
        return await self.rebuilder.delete_stale_copies(self.cluster, cast(TargetAppender, self.appender))

    @property
    def deleted(self) -> list[str]:
        """Return the log's name if its topic was deleted here."""
        return [LOG] if LOG not in self.here.logs else []

    @property
    def trouble(self) -> LogTrouble:
        found = self.appender.replicas[TP(LOG)].trouble
        assert found is not None
        return found

    async def stale(self) -> Stale | None:
        found = (await stale_copies(self.cluster, self.view, [LOG])).get(LOG)
        assert not isinstance(found, CorruptBatch)
        return found


class FakeWriter:
    """Stand in for the appender: replicas and their troubles; no append is under way."""

    def __init__(self) -> None:
        self.replicas: dict[TP, MirrorPartition] = {}

    def replica(self, tp: TP, priority: Priority) -> MirrorPartition:
        return self.replicas.setdefault(tp, MirrorPartition(tp, priority))

    def is_busy(self, _tp: TP) -> bool:
        return False

    def stop_log(self, replica: MirrorPartition, state: LogState, cause: str, hint: str = "") -> None:
        replica.trouble = LogTrouble(state, cause, NOW)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(running()) for _ in range(2)]
        clusters = [
            await stack.enter_async_context(await Cluster.open(each.endpoint(), client_id="t", request_timeout=2.0))
            for each in (here, there)
        ]
        made = Site(here, there, *clusters)
        yield made


def fill(log: FakeLog, *terms: tuple[int, str]) -> None:
    """Append a marker and then one record per letter, for each (term, letters)."""
    for term, letters in terms:
        marker = log.end
        assert (
            log.append(term_batch([marker_record(b"%d" % term, timestamp_ms=1)], term=term, offset=0, marker=0))[0] == 0
        )
        for letter in letters:
            add(log, term, letter, marker=marker)


def add(log: FakeLog, term: int, letters: str, *, marker: int) -> None:
    records = [NewRecord(letter.encode(), timestamp_ms=1) for letter in letters]
    assert log.append(term_batch(records, term=term, offset=log.end, marker=marker))[0] == 0


async def test_a_copy_is_made_anew_when_the_source_has_the_same_before_the_cut(site: Site) -> None:
    """A copy is rebuilt if the source agrees with it up to the seizure."""
    fill(site.here.log(LOG), (1, "abcd"))
    fill(site.there.log(LOG), (1, "ab"), (17, "x"))
    site.seized(17, 3)
    assert await site.step() == []
    assert site.trouble.state is LogState.DIVERGED
    site.reported(17, 3, 5)
    assert await site.step() == [LOG] == site.deleted


async def test_what_another_replicator_has_made_anew_is_not_deleted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that another replicator has rebuilt is not deleted.

    Two replicators of one target check the same copy: the second one is about to delete when the first has rebuilt it.
    """
    fill(site.here.log(LOG), (1, "abcd"))
    fill(site.there.log(LOG), (1, "ab"), (17, "x"))
    site.seized(17, 3)
    site.reported(17, 3, 5)

    async def slow(cluster: Cluster, view: CustodyView, logs: list[str]) -> Any:
        found = await copies(cluster, view, logs)
        fill(site.here.log(LOG), (1, "ab"), (17, ""))
        return found

    await site.plan()
    await site.rebuilder.find_rebuild_sources(site.cluster)
    await site.plan()
    monkeypatch.setattr(remake, "copies", slow)
    assert await site.rebuilder.delete_stale_copies(site.cluster, cast(TargetAppender, site.appender)) == []
    assert site.deleted == []
    assert site.here.logs[LOG].end == 4


async def test_nothing_is_deleted_while_an_earlier_seizure_is_not_known_here(site: Site) -> None:
    """No copy is deleted while an earlier seizure is not known here.

    Term 17 began at 1 and term 33 at 2, and only the later one is known: the record at 1 exists only here.
    """
    fill(site.here.log(LOG), (1, "abc"))
    fill(site.there.log(LOG), (1, ""), (17, ""), (33, "x"))
    site.seized(33, 2)
    site.reported(33, 2, 4)
    assert await site.step() == []
    assert site.trouble.state is LogState.DIVERGED
    assert "offset 1 differs from the one" in site.trouble.cause
    assert "ledger" in site.trouble.cause
    site.seized(17, 1)
    assert await site.step() == []  # more must be kept than was reported
    assert "has not kept them" in site.trouble.cause
    site.reported(33, 1, 4)
    assert await site.step() == [LOG]


async def test_a_source_whose_record_before_the_cut_is_damaged_gives_nothing_back(site: Site) -> None:
    """The copy's cause says so; other logs of the source are looked at all the same."""
    fill(site.here.log(LOG), (1, "abcd"))
    fill(site.there.log(LOG), (1, "ab"), (17, "x"))
    site.seized(17, 3)
    site.reported(17, 3, 5)
    damage(site.there.logs[LOG], 2, at=MAGIC_AT)
    assert await site.step() == []
    assert f"because {LOG}: a record batch has format" in site.trouble.cause
    damage(site.there.logs[LOG], 2, at=MAGIC_AT)
    assert await site.step() == [LOG]


async def test_a_report_of_another_cut_is_no_report(site: Site) -> None:
    """A report about another seizure does not count: it was about an earlier copy with the same end."""
    fill(site.here.log(LOG), (1, "abc"))
    fill(site.there.log(LOG), (1, "a"), (17, "x"))
    site.seized(17, 2)
    site.reported(17, 1, 4)
    assert await site.step() == []
    site.reported(17, 2, 4)
    assert await site.step() == [LOG]


async def test_the_same_records_in_other_batches_are_the_same(site: Site) -> None:
    """The same records in other batches count as equal."""
    here, there = site.here.log(LOG), site.there.log(LOG)
    fill(here, (1, ""))
    fill(there, (1, ""))
    add(here, 1, "abc", marker=0)
    for letter in "abc":
        add(there, 1, letter, marker=0)
    add(here, 1, "d", marker=0)
    fill(there, (17, ""))
    site.seized(17, 4)
    site.reported(17, 4, 5)
    assert await site.step() == [LOG]


async def test_what_only_stands_for_an_offset_proves_nothing(site: Site) -> None:
    """A filler proves no agreement.

    It agrees with every record, but in another term it belongs to another history.
    """
    here, there = site.here.log(LOG), site.there.log(LOG)
    fill(here, (1, "abc"))
    fill(there, (1, ""))
    fillers = filler_batch(1, term=9, offset=1, marker=1, timestamp_ms=1)
    assert there.append(fillers)[0] == 0
    fill(there, (33, "x"))
    site.seized(33, 2)
    site.reported(33, 2, 4)
    assert await site.step() == []
    assert "differs from the one" in site.trouble.cause


async def test_a_copy_that_begins_at_the_cut_has_nothing_before_it(site: Site) -> None:
    """A copy that begins at the seizure has no records before it that must agree."""
    here = site.here.log(LOG, start=3)
    add(here, 1, "cd", marker=0)
    fill(site.there.log(LOG), (1, "ab"), (17, "x"))
    site.seized(17, 3)
    site.reported(17, 3, 5)
    assert await site.step() == [LOG]


async def test_a_source_need_only_be_beyond_the_newest_seizure(site: Site) -> None:
    """A source need only have the newest seizure.

    The newer seizure was made from a shorter copy, so the marker of the older one is not part of the log any more.
    """
    fill(site.here.log(LOG), (1, "abcdef"), (17, "g"))
    fill(site.there.log(LOG), (1, "ab"), (33, ""))
    site.seized(17, 7, "yard")
    site.seized(33, 3)
    site.reported(33, 3, 9)
    assert await site.step() == [LOG]


async def test_a_source_that_lacks_the_newest_seizure_gives_nothing_back(site: Site) -> None:
    """A copy is not rebuilt from a source that lacks the newest seizure."""
    fill(site.here.log(LOG), (1, "abcdef"))
    fill(site.there.log(LOG), (1, "a"), (17, "b"))
    site.seized(17, 2, "yard")
    site.seized(33, 4)
    site.reported(33, 2, 7)
    assert await site.step() == []
    assert site.trouble.state is LogState.REBUILDING


async def test_a_copy_that_a_sleeping_bridge_began_is_stale_from_its_start(site: Site) -> None:
    """A copy that a suspended bridge began is cut off from its start.

    The topic was deleted and created again; its broker has no producer state and accepts any first batch.
    """
    here = site.here.log(LOG)
    add(here, 1, "z", marker=-4)
    fill(site.there.log(LOG), (1, "ab"), (17, "x"))
    site.seized(17, 3)
    assert await site.stale() == Stale(0, 1, 1, 17)
    assert await site.step() == []
    assert "none of its records" in site.trouble.cause
    site.reported(17, 0, 1)
    assert await site.step() == [LOG]


async def test_a_copy_begun_by_a_sleeping_bridge_is_so_however_long_it_is(site: Site) -> None:
    """This holds however long such a copy is."""
    add(site.here.log(LOG), 1, "zyxwv", marker=-4)
    site.seized(17, 3)
    assert await site.stale() == Stale(0, 5, 1, 17)


@pytest.mark.parametrize("first", ["marker", "filler", "in the middle"])
async def test_a_copy_that_is_on_its_way_is_not_stale(site: Site, first: str) -> None:
    """A copy that is still being made is not cut off."""
    here = site.here.log(LOG, start=2 if first == "in the middle" else 0)
    match first:
        case "marker":
            fill(here, (1, "a"))
        case "filler":
            fillers: Any = filler_batch(2, term=0, offset=0, marker=0, timestamp_ms=1)
            assert here.append(fillers)[0] == 0
        case _:
            add(here, 1, "b", marker=0)
    site.seized(17, 3)
    assert await site.stale() is None


async def test_a_copy_of_a_log_that_was_never_seized_is_not_looked_at(site: Site) -> None:
    """The copy of a log that was never seized is not checked."""
    add(site.here.log(LOG), 1, "z", marker=-4)
    assert await site.stale() is None


async def test_a_source_that_was_made_anew_before_the_seizure_was_known_here_is_used_again(site: Site) -> None:
    """A rebuilt source is used again.

    The port had rebuilt its copy because of a seizure that this site learns of only now.
    """
    fill(site.here.log(LOG), (1, "ab"))
    site.seized(17, 9)
    site.troubles[TP(LOG)] = LogTrouble(LogState.UNAVAILABLE, "away", NOW)
    assert await site.plan() == set()
    site.troubles[TP(LOG)] = LogTrouble(LogState.SOURCE_RECREATED, "deleted and made anew", NOW)
    assert await site.plan() == {TP(LOG)}
    del site.troubles[TP(LOG)]  # the planner does the same
    assert await site.plan() == set()
    site.troubles[TP(LOG)] = LogTrouble(LogState.SOURCE_TRUNCATED, "has less", NOW)
    assert await site.plan() == {TP(LOG)}
    assert await site.plan() == set()


async def test_a_difference_that_was_seen_before_the_seizure_was_known_is_looked_at_once_more(site: Site) -> None:
    """A difference found before the seizure was known is checked once more."""
    fill(site.here.log(LOG), (1, "ab"))
    site.seized(17, 9)
    site.appender.stop_log(site.appender.replica(TP(LOG), Priority.NORMAL), LogState.DIVERGED, "two batches at 3")
    assert await site.plan() == {TP(LOG)}
    assert await site.plan() == set()
    site.seized(33, 8)
    assert await site.plan() == {TP(LOG)}
