"""A log that accepts no appends delays no other box. Its messages wait as strays and are stored in order, once, when it
recovers.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from functools import partial

import pytest

from edge.custody import blocked
from edge.custody.blocked import ALERT_SECONDS, BlockedLogs, Waits
from edge.holdings import CustodyState
from edge.logwriter import records
from edge.logwriter.writer import LogEntry
from edge.messages import EventMessage, MessageId
from edge.site_kafka import served
from fairlead.errors import FairleadError
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.protocol.types import TP
from fairlead.records.custody import CustodyEntry
from tests.support.acknowledging import AckSession
from tests.support.edge.port import Port, running
from tests.support.edge.samples import BOX, BOX_LOG, IMO, NOW_MS, event, reading
from tests.support.kafka.fake_broker import PRODUCE, FakeCluster, Fault, until

OTHER = "BIGU1000010"
NO_LEADER = -1
SECONDS = 0.4


class BlockedPort:
    """A port that shows its blocked logs; each published message has an acknowledgement."""

    def __init__(self, port: Port, seconds: float) -> None:
        self.port = port
        self.session = AckSession()
        self.blocked = BlockedLogs(
            port.writers,
            port.holdings,
            port.custody.term_writer.uncreated,
            partial(served, port.cluster, port.logs.strays),
            seconds=seconds,
        )

    def publish(self, sequence: int, number: str = BOX, *, redelivered: bool = False) -> None:
        record = records.published(reading(sequence, number=number), key=number, at_ms=NOW_MS, received_ms=NOW_MS)
        writer = self.port.writers.box(f"containers.{number}")
        writer.enqueue(LogEntry(record, MessageId("d1", 1, sequence), redelivered, self.session.ack()))

    def publish_event(self, code: str, event_id: str, **more: object) -> None:
        payload = event(code, event_id=event_id, **more)  # type: ignore[arg-type]
        message = self.port.classifier.classify("fairlead/v1/events", payload, NOW_MS)
        assert isinstance(message, EventMessage), message
        record = records.published(payload, key=event_id, at_ms=message.device_ms, received_ms=NOW_MS)
        ack = self.session.ack()
        self.port.event_handler.handle_event(message, record, "fairlead/v1/events", redelivered=False, ack=ack)

    async def until_acknowledged(self, count: int) -> None:
        await until(lambda: self.port.failures or len(self.session.acknowledged) == count)
        assert (self.session.acknowledged, self.port.failures) == (list(range(1, count + 1)), [])

    async def kept(self) -> list[int]:
        """Return the sequence numbers of the readings among the strays, once for each time one is kept."""
        found = [records.read_stray(each) async for each in read_log(self.port.cluster, TP(self.port.logs.strays))]
        names = [records.identity(stray.payload) for stray in found if stray is not None and not stray.event]
        return [name.sequence for name in names if name is not None]

    def alerts(self) -> list[str]:
        """Return what the alert about blocked logs shows at a later time."""
        source = self.blocked.source()
        later_ms = time.time_ns() // 1_000_000 + int(ALERT_SECONDS * 1000)
        return [condition.detail for condition in source.find(later_ms, {})]


@contextlib.asynccontextmanager
async def open_port(fake: FakeCluster, seconds: float = SECONDS) -> AsyncIterator[BlockedPort]:
    async with running(fake) as port:
        made = BlockedPort(port, seconds)
        looking = asyncio.create_task(made.blocked.run())
        try:
            yield made
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "_EVERY", 0.02)
    monkeypatch.setattr(blocked, "_SUSPICIOUS", 0.05)
    monkeypatch.setattr(blocked, "_OVERDUE", 0.2)
    monkeypatch.setattr("edge.custody.drain._SOON", 0.2)
    monkeypatch.setattr("edge.custody.term_writer._CREATE_FIRST", 0.05)
    monkeypatch.setattr("edge.custody.handlers.EVERY", 0.05)


async def both_boxes_in(made: BlockedPort) -> None:
    made.publish_event("GTIN", "one")
    made.publish_event("GTIN", "two", number=OTHER)
    made.publish(0)
    made.publish(0, OTHER)
    await made.until_acknowledged(4)


def test_in_a_burst_no_log_is_stuck_while_it_waits_for_its_turn() -> None:
    """In a burst, no log counts as stuck while it waits for its turn.

    Of 2,000 logs, 50 a second make progress, so the last one waits for 40 s.
    """
    waits: Waits[int] = Waits(5.0)
    found = []
    for step in range(80):
        left = range(step * 25, 2000)
        found.append(waits.find_stuck(0.5, dict.fromkeys(left, 0)))
    assert waits.longest > 39
    assert found == [[]] * 80
    assert waits.find_stuck(0.5, {}) == []


def test_a_log_that_takes_nothing_is_stuck_in_a_burst_too_and_is_no_measure_when_it_goes_on() -> None:
    """A log that accepts nothing counts as stuck in a burst, too; when it recovers, its long wait does not raise the
    limit.
    """
    waits: Waits[str] = Waits(5.0)
    first = next(
        step for step in range(100) if "dead" in waits.find_stuck(0.5, {"dead": 0, "quick": step, "quicker": 2 * step})
    )
    assert first == 10, "where others go on at once, after five seconds"
    for step in range(100, 200):  # the dead log stays stuck, others wait for some seconds each
        found = waits.find_stuck(0.5, {"dead": 0, "slow": step // 8})
        assert found == ["dead"]
    assert waits.find_stuck(0.5, {"dead": 1}) == []
    second = next(step for step in range(100) if waits.find_stuck(0.5, {"dead": 2, "other": 0}))
    assert second * 0.5 <= 10, "its hundred seconds are no measure"


async def test_an_append_that_is_stuck_holds_up_neither_its_own_box_nor_another(fake: FakeCluster) -> None:
    """A stuck append delays neither other messages of its own box nor other boxes."""
    async with open_port(fake) as made:
        await both_boxes_in(made)
        fake.logs[BOX_LOG].leader = NO_LEADER
        made.publish(1)  # stays under way as long as there is no leader
        made.publish(2)
        made.publish(1, OTHER)
        await made.until_acknowledged(7)
        made.publish(3)  # becomes a stray at once
        made.publish(2, OTHER)
        await made.until_acknowledged(9)
        assert made.port.state() is CustodyState.HELD
        assert await made.kept() == [1, 2, 3]
        assert made.alerts() == [f"appends fail to {BOX_LOG}; its messages are kept in strays.tokyo"]
        assert await made.port.readings(f"containers.{OTHER}") == [0, 1, 2]
        fake.logs[BOX_LOG].leader = 0
        await until(lambda: not made.port.writers.strays.index.waiting)
        made.publish(4)
        await made.until_acknowledged(10)
        assert await made.port.readings() == [0, 1, 2, 3, 4]
        await until(lambda: made.alerts() == [])
        metrics = made.port.metrics
        assert (metrics.readings, metrics.strays) == (5, 3)  # each reading is counted in one of the counters


async def test_an_append_whose_outcome_is_unknown_is_not_stored_twice(fake: FakeCluster) -> None:
    """An append whose outcome is unknown is not stored twice.

    The append was stored and its answer was lost; when its stray is drained, the bridge recognises the repeat.
    """
    async with open_port(fake) as made:
        await both_boxes_in(made)
        end = fake.logs[BOX_LOG].end
        fake.fault(PRODUCE, Fault(hang=True))
        made.publish(1)
        await until(lambda: fake.logs[BOX_LOG].end == end + 1)
        fake.logs[BOX_LOG].leader = NO_LEADER
        made.publish(2)
        await made.until_acknowledged(6)
        fake.logs[BOX_LOG].leader = 0
        await until(lambda: not made.port.writers.strays.index.waiting)
        await made.port.until_idle()
        assert await made.kept() == [1, 2]
        assert await made.port.readings() == [0, 1, 2]


async def test_a_bridge_that_ends_while_a_log_is_blocked_stores_nothing_twice(fake: FakeCluster) -> None:
    """A bridge that ends while a log is blocked stores nothing twice."""
    async with open_port(fake) as made:
        await both_boxes_in(made)
        end = fake.logs[BOX_LOG].end
        fake.fault(PRODUCE, Fault(hang=True))
        made.publish(1)
        await until(lambda: fake.logs[BOX_LOG].end == end + 1)
        fake.logs[BOX_LOG].leader = NO_LEADER
        made.publish(2)
        await made.until_acknowledged(6)
    fake.logs[BOX_LOG].leader = 0
    async with open_port(fake) as made:
        made.publish(2, redelivered=True)
        made.publish(3)
        await made.until_acknowledged(2)
        assert await made.port.readings() == [0, 1, 2, 3]


async def test_a_loading_behind_a_stuck_append_waits_for_it_and_is_acknowledged(fake: FakeCluster) -> None:
    """A LOAD event behind a stuck append waits for it, and is acknowledged."""
    async with open_port(fake) as made:
        await both_boxes_in(made)
        fake.logs[BOX_LOG].leader = NO_LEADER
        made.publish(1)
        made.publish_event("LOAD", "load", vesselIMONumber=IMO)
        made.publish(2)
        made.publish(1, OTHER)
        await made.until_acknowledged(8)
        made.publish_event("LOAD", "load-two", vesselIMONumber=IMO, number=OTHER)
        await made.until_acknowledged(9)
        assert made.port.metrics.grants == 1
        fake.logs[BOX_LOG].leader = 0
        await until(lambda: made.port.failures or made.port.metrics.grants == 2)
        assert made.port.failures == []
        assert await made.port.readings() == [0, 1, 2]
        given = [each for each in await made.port.entries() if isinstance(each, CustodyEntry) and each.term == 2]
        assert [each.log for each in given] == [f"containers.{OTHER}", BOX_LOG]
        await until(lambda: not made.port.writers.strays.events)


async def test_a_log_that_cannot_be_created_keeps_its_event_and_readings_until_it_can(fake: FakeCluster) -> None:
    """If a log cannot be created, its event and readings are kept until it can."""
    async with open_port(fake) as made:
        made.port.uncreatable[BOX_LOG] = FairleadError("the policy of the site's Kafka refuses it")
        made.publish_event("GTIN", "one")
        made.publish(0)
        made.publish_event("GTIN", "two", number=OTHER)
        made.publish(0, OTHER)
        await made.until_acknowledged(4)
        assert made.port.holdings.state(f"containers.{OTHER}") is CustodyState.HELD
        await until(lambda: made.alerts() != [])
        [alert] = made.alerts()
        assert f"{BOX_LOG} cannot be created: the policy" in alert
        made.port.uncreatable.clear()
        await made.port.until_state(CustodyState.HELD)
        made.publish(1)
        await made.until_acknowledged(5)
        assert await made.port.readings() == [0, 1]
        await until(lambda: made.alerts() == [])


async def test_a_creation_that_hangs_holds_up_only_its_own_event(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic creation that hangs delays only its own event."""
    async with open_port(fake) as made:
        go_on = asyncio.Event()
        position = made.port.appender.position

        async def slow(log: TP) -> object:
            if log.topic == BOX_LOG:
                await go_on.wait()
            return await position(log)

        monkeypatch.setattr(made.port.appender, "position", slow)
        made.publish_event("GTIN", "one")
        made.publish(0)
        made.publish_event("GTIN", "two", number=OTHER)
        await made.until_acknowledged(3)
        made.publish(1)
        made.publish(0, OTHER)
        await made.until_acknowledged(5)
        go_on.set()
        await made.port.until_state(CustodyState.HELD)
        await until(lambda: not made.port.writers.strays.index.waiting and not made.port.writers.strays.events)
        assert await made.port.readings() == [0, 1]
        assert [each.term for each in await made.port.entries() if isinstance(each, CustodyEntry)] == [1, 1]


async def test_while_the_strays_log_does_not_answer_either_everything_waits(fake: FakeCluster) -> None:
    """If the strays log does not answer either, all messages wait.

    Kafka as a whole is away: strays would not help, and no message may be lost.
    """
    async with open_port(fake, seconds=2.5) as made:  # longer than the appender's delay between two attempts
        await both_boxes_in(made)
        for log in fake.logs.values():
            log.leader = NO_LEADER
        made.publish(1)
        made.publish(1, OTHER)
        await until(lambda: BOX_LOG in made.blocked.since_ms)
        assert made.session.acknowledged == [1, 2, 3, 4]
        for log in fake.logs.values():
            log.leader = 0
        await made.until_acknowledged(6)
        await made.port.until_idle()
        assert made.port.metrics.strays == 0
        assert await made.port.readings() == [0, 1]


async def test_an_own_log_of_the_site_that_takes_nothing_is_named(fake: FakeCluster) -> None:
    """A log of the site itself that accepts no appends is named in the alert: its messages cannot become strays."""
    async with open_port(fake) as made:
        await both_boxes_in(made)
        fake.logs["events.tokyo"].leader = NO_LEADER
        writer = made.port.writers.events
        record = records.published(event("DEPA", event_id="sails"), key="sails", at_ms=NOW_MS, received_ms=NOW_MS)
        writer.enqueue(LogEntry(record, "sails", False, made.session.ack()))
        await until(lambda: made.alerts() != [])
        [alert] = made.alerts()
        assert alert.startswith("appends fail to events.tokyo, one of the site's own logs")
        fake.logs["events.tokyo"].leader = 0
        await made.until_acknowledged(5)
        await until(lambda: made.alerts() == [])
