"""A replicator copies logs and ledgers side by side, so a log's copy may arrive before the ledger entry that names
it."""

from __future__ import annotations

import datetime as dt

from edge.holdings import CustodyState
from fairlead.kafka.convention import marker_record, term_batch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records.custody import ClaimEntry, CustodyEntry
from tests.support.edge.port import copied, granted_by_sydney, running
from tests.support.edge.samples import BOX_LOG, NOW, NOW_MS, reading
from tests.support.kafka.fake_broker import FakeCluster, until

HOUR = dt.timedelta(hours=1)


async def test_a_gate_in_waits_for_the_entry_of_a_log_whose_copy_is_here_already(fake: FakeCluster) -> None:
    """A gate-in waits for the ledger entry if a copy of the box's log is already here.

    The box has left in Sydney and comes in at Tokyo, which does not know yet that it has left.
    """
    async with running(fake) as port:
        copied(fake, BOX_LOG, reading(0), reading(1))
        port.put_event("GTIN", "gate-in")
        await until(lambda: port.failures or port.rejected or port.writers.strays.events)
        assert (port.failures, port.rejected) == ([], [])
        assert port.state() is CustodyState.ELSEWHERE
        assert [each.event_id for each in port.writers.strays.events[BOX_LOG]] == ["gate-in"]
        came_in = granted_by_sydney(1, 0, "sydney", "GTIN", NOW - 2 * HOUR)
        copied(fake, "custody.sydney", came_in, granted_by_sydney(2, 3, None, "GTOT", NOW - HOUR))
        await until(lambda: port.failures or port.holdings.view.term(BOX_LOG) == 2)
        port.writers.strays.events_due.set()
        await until(lambda: port.failures or port.custody.term_writer.protocol.claims.is_made(BOX_LOG, 2, "gate-in"))
        await port.until_idle()
        [claim] = [each for each in await port.entries() if isinstance(each, ClaimEntry)]
        assert (claim.left_site, claim.term, claim.event_id) == ("sydney", 2, "gate-in")
        assert (port.failures, port.rejected) == ([], [])


async def test_a_log_that_has_records_is_never_opened_here(fake: FakeCluster) -> None:
    """A log that has records is never opened here: a marker of term 1 would be refused or, worse, stored behind the
    records of another site.
    """
    async with running(fake) as port:
        copied(fake, BOX_LOG, reading(0))
        before = fake.logs[BOX_LOG].end
        port.put_event("GTIN", "gate-in")
        await until(lambda: port.failures or port.rejected or port.writers.strays.events)
        assert fake.logs[BOX_LOG].end == before
        assert [each for each in await port.entries() if isinstance(each, CustodyEntry)] == []


async def test_a_log_that_cannot_be_taken_over_at_once_is_looked_at_again(fake: FakeCluster) -> None:
    """A log that cannot be taken over at once is checked again.

    The copy continues behind the marker in this site's own term: the last append of a killed bridge was stored late.
    """
    async with running(fake) as port:
        copied(fake, BOX_LOG, reading(0))
        log = fake.logs[BOX_LOG]
        marker = marker_record(b"m2", timestamp_ms=1)
        assert log.append(term_batch([marker], term=2, offset=2, marker=2))[0] == 0
        late = NewRecord(reading(1), timestamp_ms=NOW_MS)
        assert log.append(term_batch([late], term=2, offset=3, marker=2))[0] == 0
        copied(fake, "custody.sydney", granted_by_sydney(2, 2, "tokyo", "DISC", NOW - HOUR))
        await until(lambda: port.failures or port.state() is CustodyState.HELD)
        assert port.failures == []
        port.put_reading(2)
        await until(lambda: port.failures or port.metrics.readings == 1)
        assert await port.readings() == [0, 1, 2]
