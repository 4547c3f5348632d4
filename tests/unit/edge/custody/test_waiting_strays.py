"""Strays are drained although no later reading of their box makes the bridge look for them, and events wait once."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping
from typing import Any

import pytest

from edge.holdings import CustodyState
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import marker_record, term_batch
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TP, FetchedPartition
from fairlead.records import encode
from fairlead.records.custody import CUSTODY_ORDERS, CustodyOrder, Marker
from fairlead.records.edge import Stray
from tests.support.edge.port import Port, copied, granted_by_sydney, running
from tests.support.edge.samples import BOX_LOG, IMO, NOW, NOW_MS, event, reading
from tests.support.kafka.fake_broker import FakeCluster, until

HOUR = dt.timedelta(hours=1)


def order(port: Port, kind: str, order_id: str, **more: Any) -> None:
    """Give an operator's order at Tokyo."""
    given = CustodyOrder(
        order_id=order_id,
        kind=kind,  # type: ignore[arg-type]
        log=BOX_LOG,
        at_site="tokyo",
        ordered_date_time=NOW + 2 * HOUR,
        ordered_by="somebody",
        reason="a test",
        **more,
    )
    port.custody.orders.add_order(CUSTODY_ORDERS, Record(0, NOW_MS, None, encode(given), ()), False)


def killed_bridge_opens(fake: FakeCluster, term: int, event_id: str, event: str = "GTIN") -> None:
    """Store the marker of a bridge that was killed before it wrote the entry; the marker is stored late."""
    log = fake.logs[BOX_LOG]
    marker = Marker(
        log=BOX_LOG,
        term=term,
        from_site=None if event == "GTIN" else "sydney",
        to_site="tokyo",
        event=event,  # type: ignore[arg-type]
        event_id=event_id,
        event_date_time=NOW + HOUR,
        nonce="n",
    )
    record = marker_record(encode(marker), timestamp_ms=NOW_MS)
    assert log.append(term_batch([record], term=term, offset=log.end, marker=log.end))[0] == 0
    fake.change()


async def until_stored(port: Port, *sequences: int) -> None:
    """Wait until the box's log has exactly these readings."""
    await until(lambda: port.failures or port.metrics.drained + port.metrics.readings == len(sequences))
    assert (await port.readings(), port.failures) == ([*sequences], [])


async def test_strays_of_a_ship_are_drained_when_its_grant_becomes_known_late(fake: FakeCluster) -> None:
    """A ship's strays are drained as soon as the entry that once gave the log to the ship is known.

    Tokyo seizes the log before it has heard that Sydney had given it to the ship. Until then nothing shows that the
    ship may have had readings of that box.
    """
    copied(fake, BOX_LOG)
    copied(fake, "custody.sydney", granted_by_sydney(1, 0, "sydney", "GTIN"))
    kept = Stray(log=BOX_LOG, payload=reading(5), received_date_time=NOW)
    copied(fake, "strays.star", encode(kept))
    async with running(fake) as port:
        order(port, "seize", "seizure", to_site="tokyo")
        await port.until_state(CustodyState.HELD)
        await port.until_idle()
        assert await port.readings() == []
        copied(fake, "custody.sydney", granted_by_sydney(2, 1, "star", "LOAD"))
        await until_stored(port, 5)


async def test_strays_are_drained_when_recovery_writes_the_entry_of_an_opening(fake: FakeCluster) -> None:
    """Strays are drained when this site holds a log again because recovery has written the missing entry.

    The marker of a killed bridge is stored after the next bridge has read the log's end. The gate-in that is delivered
    again cannot open the log a second time.
    """
    async with running(fake) as port:
        port.put_event("GTIN", "in")
        await port.until_state(CustodyState.HELD)
        port.put_event("GTOT", "out")
        await port.until_state(CustodyState.ELSEWHERE)
        port.put_reading(5)
        await until(lambda: port.failures or port.metrics.strays == 1)
        killed_bridge_opens(fake, 3, "again")
        port.put_event("GTIN", "again", at=NOW + HOUR)
        await port.until_state(CustodyState.HELD)
        await until_stored(port, 5)


async def test_strays_are_drained_when_an_order_enters_an_earlier_seizure(fake: FakeCluster) -> None:
    """Strays are drained when an order finds the marker of an earlier seizure of this site, and is refused itself."""
    copied(fake, BOX_LOG)
    copied(fake, "custody.sydney", granted_by_sydney(1, 0, "sydney", "GTIN"))
    async with running(fake) as port:
        port.put_reading(5)
        await until(lambda: port.failures or port.metrics.strays == 1)
        killed_bridge_opens(fake, 17, "first", "SEIZURE")
        order(port, "seize", "second", to_site="tokyo", term=1)
        await port.until_state(CustodyState.HELD)
        await until_stored(port, 5)


@pytest.mark.parametrize("clock", [HOUR, 3 * HOUR], ids=["right", "ahead"])
async def test_an_event_that_was_carried_out_does_not_wait_again_after_a_restart(
    fake: FakeCluster, clock: dt.timedelta
) -> None:
    """A seized log is not given to the lost ship again by the LOAD that once waited.

    The restarted bridge remembers none of the events (here it never reads their log's tail): as many others followed.
    The order is of NOW + 2 h, the LOAD of an hour before; or its device's clock was ahead.
    """
    async with running(fake) as port:
        port.put_event("LOAD", "load", at=NOW + clock, vesselIMONumber=IMO)
        await until(lambda: port.failures or port.metrics.events_kept == 1)
        port.put_event("GTIN", "in")
        await until(lambda: port.failures or port.metrics.grants == 1)
        order(port, "seize", "seizure", to_site="tokyo")
        await port.until_state(CustodyState.HELD)
    async with running(fake) as port:
        assert (port.writers.strays.events, port.failures) == ({}, [])
        await port.until_state(CustodyState.HELD)


@pytest.mark.parametrize("restarted", [False, True], ids=["same bridge", "next bridge"])
async def test_an_event_that_comes_again_after_a_seizure_does_not_move_the_log_again(
    fake: FakeCluster, restarted: bool
) -> None:
    """A seized log is not given away by the event that moved it before the seizure, and that is sent once more."""
    events: dict[str, tuple[str, dt.datetime, dict[str, Any]]] = {
        "in": ("GTIN", NOW - 2 * HOUR, {}),
        "out": ("LOAD", NOW - HOUR, {"vesselIMONumber": IMO}),
        "load": ("LOAD", NOW, {"vesselIMONumber": IMO}),
    }

    def come(port: Port, event_id: str) -> None:
        code, at, more = events[event_id]
        port.put_event(code, event_id, at=at, **more)

    async def seize(port: Port, order_id: str) -> None:
        order(port, "seize", order_id, to_site="tokyo")
        await port.until_state(CustodyState.HELD)

    async with running(fake) as port:
        come(port, "in")
        for event_id in ("out", "load"):
            await port.until_state(CustodyState.HELD)
            come(port, event_id)
            await port.until_state(CustodyState.ELSEWHERE)
            await seize(port, f"seized after {event_id}")
        if not restarted:
            come(port, "load")
            await port.until_idle()
            assert (port.state(), port.metrics.grants, port.failures) == (CustodyState.HELD, 2, [])
            return
    async with running(fake) as port:
        port.writers.event_ids.add("load")  # as the bridge reads them at its start
        await port.until_state(CustodyState.HELD)
        come(port, "load")
        await port.until_idle()
        assert (port.state(), port.metrics.grants, port.failures) == (CustodyState.HELD, 0, [])


async def test_an_event_that_was_never_carried_out_waits_after_a_restart(fake: FakeCluster) -> None:
    """An event that was kept and not carried out waits again, though the log has moved by hand."""
    async with running(fake) as port:
        port.put_event("LOAD", "load", at=NOW, vesselIMONumber=IMO)
        await until(lambda: port.failures or port.metrics.events_kept == 1)
    copied(fake, "custody.sydney", granted_by_sydney(1, 0, "sydney", "SEIZURE", NOW + HOUR))
    async with running(fake) as port:
        assert [each.event_id for each in port.writers.strays.events[BOX_LOG]] == ["load"]


@pytest.mark.parametrize("came, refused", [(1, 1), (2, 1), (2, 2)], ids=["refused", "came again", "refused again"])
async def test_an_event_waits_after_a_restart_only_if_it_came_since_it_was_refused(
    fake: FakeCluster, came: int, refused: int
) -> None:
    """A box is not given to the ship by a LOAD that became a dead letter long ago, because a grant by hand followed.

    A message that comes again after its refusal, such as a replay, is a new one: it waits.
    """
    async with running(fake) as port:
        await come(port, 1, NOW_MS)
        await refuse(port, 1)
        if came == 2:
            await come(port, 2, time.time_ns() // 1_000_000)
        if refused == 2:
            await refuse(port, 2)
    assert await waiting_after_restart(fake) == ["load"] * (came - refused)


async def test_a_clock_that_is_set_back_before_a_refusal_does_not_undo_it(fake: FakeCluster) -> None:
    """An event stays refused after a restart although the site's clock was ahead when the event came."""
    async with running(fake) as port:
        await come(port, 1, time.time_ns() // 1_000_000 + 3_600_000)
        await refuse(port, 1)
    assert await waiting_after_restart(fake) == []


async def come(port: Port, times: int, received_ms: int) -> None:
    """Let the LOAD come for the nth time, and wait until it is kept."""
    port.put_event("LOAD", "load", received_ms, at=NOW, vesselIMONumber=IMO)
    await until(lambda: port.failures or port.metrics.events_kept == times)


async def granted(port: Port, event: str, letters: int, at: dt.datetime | None = None) -> None:
    """Let Sydney's next grant arrive, by default later than the LOAD, and wait for the dead letters."""
    view = port.holdings.view
    term = (view.term(BOX_LOG) or 0) + 1
    copied(port.fake, "custody.sydney", granted_by_sydney(term, term - 1, "sydney", event, at or NOW + term * HOUR))
    await until(lambda: port.failures or (view.term(BOX_LOG), port.metrics.dead_letters) == (term, letters))


async def refuse(port: Port, letters: int) -> None:
    """Let an event overtake the LOAD, and a grant by hand follow, which overtakes nothing."""
    await granted(port, "GTIN", letters)
    await granted(port, "HAND", letters)


async def waiting_after_restart(fake: FakeCluster) -> list[str]:
    """Return the ids of the events that wait when the next bridge has started."""
    async with running(fake) as port:
        waiting = [each.event_id for each in port.writers.strays.events.get(BOX_LOG, ())]
        assert port.failures == []
        return waiting


@pytest.mark.parametrize(("shortened", "start", "left"), [("strays.tokyo", 2, [2]), ("events.tokyo", 1, [1, 2])])
async def test_strays_are_known_although_retention_deletes_records_while_the_bridge_starts(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, shortened: str, start: int, left: list[int]
) -> None:
    """A broker that has just started deletes what is old, while the bridge beside it reads what waits."""
    strays = [Stray(log=BOX_LOG, payload=reading(n), received_date_time=NOW) for n in range(2)]
    load = event("LOAD", event_id="load", vesselIMONumber=IMO)
    waiting = Stray(log=BOX_LOG, payload=load, received_date_time=NOW, event=True)
    copied(fake, "strays.tokyo", *map(encode, [*strays, waiting]))
    real = Cluster.fetch

    async def fetch(self: Cluster, positions: Mapping[TP, int], **given: Any) -> dict[TP, FetchedPartition]:
        if positions.get(TP(shortened)) == 0:
            fake.logs[shortened].start = start
        return await real(self, positions, **given)

    monkeypatch.setattr(Cluster, "fetch", fetch)
    async with running(fake) as port:
        assert list(port.writers.strays.index.offsets(BOX_LOG)) == left
        assert [each.event_id for each in port.writers.strays.events[BOX_LOG]] == ["load"]
        assert port.failures == []
