from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import itertools
from collections.abc import Collection, Mapping

import pytest

from fairlead.kafka.protocol.errors import ConnectionLost
from fairlead.kafka.protocol.types import TP
from fairlead.records import encode
from fairlead.records.custody import CustodyEntry
from simulators.steps import BarrierKind, VoyageBarrier
from simulators.voyage import waiting
from simulators.voyage.player import BarrierTimeout
from simulators.voyage.waiting import Waiter, ends_ahead
from tests.unit.simulators.voyage.fakes import FakeClusters
from topologies.loader.load import load

TIME = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
BOX = "BIGU7176368"
LOG = f"containers.{BOX}"


@pytest.fixture
def sites() -> FakeClusters:
    return FakeClusters("tokyo", "duck-star")


def waiter(sites: FakeClusters, timeout: float = 5.0) -> Waiter:
    return Waiter(load("minimal", env={}), sites, timeout=timeout)


def barrier(
    kind: BarrierKind, ends: Mapping[str, int], *, site: str = "tokyo", peer: str = "duck-star"
) -> VoyageBarrier:
    boxes = (BOX,) if kind in (BarrierKind.CUSTODY, BarrierKind.DEPARTURE) else ()
    return VoyageBarrier(TIME, kind, "the test", site=site, peer=peer, containers=boxes, log_ends=ends)


def grant(term: int, marker: int, to: str | None) -> bytes:
    return encode(
        CustodyEntry(
            log=LOG,
            term=term,
            marker_offset=marker,
            from_site=None if term == 1 else "tokyo",
            to_site=to,
            event="LOAD",
            event_id=f"event-{term}",
            event_date_time=TIME,
            granted_date_time=TIME,
            granted_by="tokyo",
            marker_batch=b"",
        )
    )


async def reaches(waiting: Waiter, wanted: VoyageBarrier) -> bool:
    """Whether the barrier is passed with the logs as they are."""
    try:
        await waiting.wait(wanted)
    except BarrierTimeout:
        return False
    return True


async def test_recorded_waits_for_the_end_at_the_site(sites: FakeClusters) -> None:
    wanted = barrier(BarrierKind.RECORDED, {"bookings.tokyo": 3})
    waiting = asyncio.create_task(waiter(sites).wait(wanted))
    sites["duck-star"].lengthen("bookings.tokyo", 3)  # another site's copy does not count
    await asyncio.sleep(0)
    sites["tokyo"].lengthen("bookings.tokyo", 2)
    async with asyncio.timeout(5):
        await sites["tokyo"].looked_at(3)
    assert not waiting.done()
    sites["tokyo"].lengthen("bookings.tokyo", 3)
    async with asyncio.timeout(5):
        await waiting


async def test_a_stuck_barrier_names_what_is_missing(sites: FakeClusters) -> None:
    sites["tokyo"].lengthen("bookings.tokyo", 2)
    with pytest.raises(BarrierTimeout, match=r"bookings\.tokyo at tokyo: 2 of 3") as error:
        await waiter(sites, 0.15).wait(barrier(BarrierKind.RECORDED, {"bookings.tokyo": 3}))
    assert error.value.fields["missing"] == ["bookings.tokyo at tokyo: 2 of 3"]


async def test_progress_extends_the_patience_of_a_barrier(sites: FakeClusters) -> None:
    """One long log that grows all the time is progress, though the number of logs that are short stays the same."""
    waiting = asyncio.create_task(waiter(sites, 0.5).wait(barrier(BarrierKind.RECORDED, {"bookings.tokyo": 12})))
    for end in range(1, 12):
        sites["tokyo"].lengthen("bookings.tokyo", end)
        await asyncio.sleep(0.12)  # the patience is over after four of these
        assert not waiting.done()
    sites["tokyo"].lengthen("bookings.tokyo", 12)
    async with asyncio.timeout(5):
        await waiting


async def test_a_site_that_does_not_answer_is_waited_for(sites: FakeClusters, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = barrier(BarrierKind.RECORDED, {"bookings.tokyo": 3})
    sites["tokyo"].lengthen("bookings.tokyo", 3)
    monkeypatch.setattr(sites["tokyo"], "end_offsets", _away)
    with pytest.raises(BarrierTimeout, match=r"still missing 1, for example tokyo was killed"):
        await waiter(sites, 0.15).wait(wanted)
    waiting = asyncio.create_task(waiter(sites).wait(wanted))
    await asyncio.sleep(0)
    monkeypatch.undo()
    async with asyncio.timeout(5):
        await waiting


async def test_changing_errors_are_no_progress(sites: FakeClusters, monkeypatch: pytest.MonkeyPatch) -> None:
    sites["tokyo"].lengthen("bookings.tokyo", 3)
    looks = itertools.count()

    async def away(_logs: Collection[TP]) -> dict[TP, int]:
        raise ConnectionLost(f"tokyo has not answered {next(looks)} times")

    monkeypatch.setattr(sites["tokyo"], "end_offsets", away)
    async with asyncio.timeout(5):
        with pytest.raises(BarrierTimeout, match="tokyo has not answered"):
            await waiter(sites, 0.15).wait(barrier(BarrierKind.RECORDED, {"bookings.tokyo": 3}))


async def _away(_logs: Collection[TP]) -> dict[TP, int]:
    raise ConnectionLost("tokyo was killed")


async def test_a_custody_barrier_needs_the_ledger_and_the_log(sites: FakeClusters) -> None:
    wanted = barrier(BarrierKind.CUSTODY, {LOG: 6}, site="duck-star")
    at_ship = sites["duck-star"]
    at_ship.lengthen(LOG, 6)
    sites["tokyo"].append("custody.tokyo", grant(1, 0, "tokyo"), grant(2, 4, "duck-star"))
    assert not await reaches(waiter(sites, 0.15), wanted), "only tokyo knows of the grant"
    at_ship.append("custody.tokyo", grant(1, 0, "tokyo"))
    assert not await reaches(waiter(sites, 0.15), wanted), "the newest grant at the ship is the first"
    at_ship.append("custody.tokyo", grant(2, 4, "duck-star"))
    assert await reaches(waiter(sites), wanted)


async def test_custody_needs_the_log_to_its_marker(sites: FakeClusters) -> None:
    wanted = barrier(BarrierKind.CUSTODY, {}, site="duck-star")
    sites["duck-star"].append("custody.tokyo", grant(2, 4, "duck-star"))
    sites["duck-star"].lengthen(LOG, 4)
    assert not await reaches(waiter(sites, 0.15), wanted), "the marker at offset 4 is not there"
    sites["duck-star"].lengthen(LOG, 5)
    assert await reaches(waiter(sites), wanted)


@pytest.mark.parametrize(("short", "passes"), [("tokyo", False), ("duck-star", False), ("", True)])
async def test_a_ship_departs_when_both_have_its_cargos_logs(sites: FakeClusters, short: str, passes: bool) -> None:
    sites["duck-star"].append("custody.tokyo", grant(2, 4, "duck-star"))
    for name, cluster in sites.fakes.items():
        cluster.lengthen(LOG, 6 if name == short else 7)
    assert await reaches(waiter(sites, 0.15), barrier(BarrierKind.DEPARTURE, {LOG: 7})) is passes


def arrival(ends: Mapping[str, int]) -> VoyageBarrier:
    wanted = barrier(BarrierKind.ARRIVAL, ends)
    return dataclasses.replace(wanted, containers=(BOX,))


async def test_an_arrival_waits_for_the_ship_and_then_for_what_comes_by_satellite(sites: FakeClusters) -> None:
    """The boxes' readings wait for the berth: they are counted, and not waited for."""
    ship, port = sites["duck-star"], sites["tokyo"]
    made, wanted = waiter(sites), arrival({LOG: 9, "ships.9074729.location": 4})
    waited = asyncio.create_task(made.wait(wanted))
    async with asyncio.timeout(5):
        await ship.looked_at(2)
    assert not waited.done(), "the ship has not stored its readings"
    port.lengthen(LOG, 5)
    port.lengthen("events.tokyo", 3)
    ship.lengthen("alerts.duck-star", 2)
    ship.lengthen(LOG, 9)
    ship.lengthen("ships.9074729.location", 4)
    async with asyncio.timeout(5):
        await port.looked_at(2)
    assert not waited.done(), "the port lacks positions"
    port.lengthen("ships.9074729.location", 4)
    port.lengthen("alerts.duck-star", 2)
    async with asyncio.timeout(5):
        await waited
    (found,) = made.arrivals
    assert (found.ashore, found.own, found.own_here, found.boxes, found.boxes_here) == (0, 6, 6, 9, 5)
    assert found.complete and not found.cut and found.seconds > 0


async def test_an_arrival_without_news_goes_on_and_names_what_is_missing(
    sites: FakeClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "GIVE_WAY", 0.1)
    sites["duck-star"].lengthen("ships.9074729.location", 4)
    sites["tokyo"].lengthen("ships.9074729.location", 3)
    cut = [frozenset(("duck-star", "sydney"))]  # not on the way
    made = Waiter(load("minimal", env={}), sites, timeout=0.1, cut=lambda: cut)
    await made.wait(arrival({"ships.9074729.location": 4}))
    cut.append(frozenset(("tokyo", "duck-star")))
    await made.wait(arrival({"ships.9074729.location": 4}))
    excuses = [(found.complete, found.cut) for found in made.arrivals]
    assert excuses == [(False, None), (False, ("duck-star", "tokyo"))]
    assert made.arrivals[0].missing == "ships.9074729.location: 3 of 4"


def test_what_lies_ahead_of_a_ship() -> None:
    """Records of other ports, over links that are always open, and the ship's own that come by way of headquarters."""
    positions, box, home = "ships.9074729.location", LOG, "los-angeles"
    ends: dict[str, dict[str, int]] = {site: {} for site in load("big-blue", env={}).sites}
    ends["tokyo"] = {box: 7, "events.tokyo": 5, "feeds.ducks": 3, "events.singapore": 9, positions: 2}
    ends["sydney"] = {box: 8}
    ends[home] = {positions: 3, "bookings.los-angeles": 4}
    ends["duck-star"] = {positions: 5, box: 20, "alerts.duck-star": 2, "events.tokyo": 4, "strays.duck-star": 6}
    ends["singapore"] = {"events.singapore": 9}
    ashore, own, ways = ends_ahead(load("big-blue", env={}), "singapore", "duck-star", ends)
    assert ashore == {box: 8, "events.tokyo": 5, "bookings.los-angeles": 4}
    assert own == {positions: 5, "alerts.duck-star": 2}
    assert {tuple(sorted(pair)) for pair in ways} == {
        ("duck-star", "los-angeles"),
        ("los-angeles", "singapore"),
        ("singapore", "tokyo"),
        ("singapore", "sydney"),
    }


async def test_finished_means_at_any_site_for_each_log(sites: FakeClusters) -> None:
    wanted = barrier(BarrierKind.FINISHED, {LOG: 7, "events.tokyo": 3})
    sites["duck-star"].lengthen(LOG, 7)
    sites["tokyo"].lengthen(LOG, 5)
    assert not await reaches(waiter(sites, 0.15), wanted)
    sites["tokyo"].lengthen("events.tokyo", 3)
    assert await reaches(waiter(sites), wanted)


async def test_a_failed_worker_ends_the_wait(sites: FakeClusters) -> None:
    class Ended(Exception):
        pass

    def check() -> None:
        raise Ended

    waiting = Waiter(load("minimal", env={}), sites, check=check)
    with pytest.raises(Ended):
        await waiting.wait(barrier(BarrierKind.RECORDED, {"bookings.tokyo": 3}))


async def test_a_barrier_gives_way_to_a_cut_link(sites: FakeClusters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "GIVE_WAY", 0.2)
    sites["tokyo"].append(LOG)
    wanted = barrier(BarrierKind.CUSTODY, {})
    cut = {frozenset(("sydney", "los-angeles"))}
    each = Waiter(load("minimal", env={}), sites, timeout=0.5, cut=lambda: cut)
    yielding = dataclasses.replace(wanted, gives_way=True)
    assert not await reaches(each, yielding), "the link that is cut is another one"
    cut.add(frozenset(("tokyo", "duck-star")))
    assert not await reaches(each, wanted)
    assert await reaches(each, yielding)
