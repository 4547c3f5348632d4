"""The claims of other sites are answered, and the logs that they are about do not wait for each other."""

from __future__ import annotations

import asyncio
import datetime as dt

from edge.logwriter.writer import Barrier
from fairlead.records import encode
from fairlead.records.custody import ClaimEntry
from tests.support.edge.port import copied, running
from tests.support.edge.samples import BOX, BOX_LOG, NOW
from tests.support.kafka.fake_broker import FakeCluster, until

OTHER = "BIGU1000010"
OTHER_LOG = f"containers.{OTHER}"
HOUR = dt.timedelta(hours=1)


def claim(log: str) -> bytes:
    """Return the record of Sydney's ledger that claims the log of a box that has left Tokyo in term 2."""
    later = NOW + 2 * HOUR
    return encode(
        ClaimEntry(
            log=log,
            term=2,
            left_site="tokyo",
            event_id=f"{log}-in-sydney",
            event_date_time=later,
            claimed_date_time=later,
            claimed_by="sydney",
        )
    )


async def test_a_log_that_accepts_no_appends_keeps_no_other_claim_from_being_answered(fake: FakeCluster) -> None:
    """A claim that arrives while the answer to another one waits for its log is answered."""
    async with running(fake) as port:
        view, claims = port.holdings.view, port.custody.protocol.claims
        claimed = port.custody._receiver.claimed  # noqa: SLF001
        for number in (BOX, OTHER):
            port.put_event("GTIN", f"in-{number}", number=number)
            port.put_event("GTOT", f"out-{number}", number=number, at=NOW + HOUR)
        await until(lambda: port.failures or view.term(BOX_LOG) == view.term(OTHER_LOG) == 2)

        stuck = asyncio.Event()

        async def wait() -> None:
            await stuck.wait()

        port.writers.box(BOX_LOG).enqueue(Barrier(wait))
        copied(fake, "custody.sydney", claim(BOX_LOG))
        await until(lambda: port.failures or (claims.next(BOX_LOG) is not None and not claimed.is_set()))
        copied(fake, "custody.sydney", claim(OTHER_LOG))
        await until(lambda: port.failures or view.holder(OTHER_LOG) == "sydney")
        assert (port.failures, view.holder(BOX_LOG)) == ([], None)
        stuck.set()
        await until(lambda: port.failures or view.holder(BOX_LOG) == "sydney")
        assert port.failures == []
