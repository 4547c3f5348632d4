"""Custody of one port's bridge on a fake broker: everything except MQTT and detection."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Sequence
from typing import Any

from edge.alerts.engine import AlertEngine
from edge.alerts.site_alerts import LedgerAlerts
from edge.custody.handlers import CustodyEventHandler
from edge.custody.manager import CustodyManager
from edge.holdings import CustodyState, Holdings
from edge.ingest.classifier import Classifier
from edge.ingest.dead_letters import DeadLetters
from edge.logwriter import records
from edge.logwriter.tail_reader import TailReader
from edge.logwriter.writer import LogEntry
from edge.messages import EventMessage, MessageId, Rejected
from edge.metrics import Metrics
from edge.site_kafka import SiteKafka
from edge.site_logs import fixed_logs
from edge.startup import _first_marker
from edge.writer_registry import AlertWriter, Settlement, WriterRegistry
from fairlead.custody.view import CustodyView
from fairlead.errors import FairleadError
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.convention import is_data, marker_record, term_batch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from fairlead.records import encode
from fairlead.records.custody import LedgerEntry, ledger_entries
from tests.support.edge.samples import BOX, BOX_LOG, NOW, NOW_MS, event, reading, topology
from tests.support.kafka.fake_broker import FakeCluster, until
from tests.support.ledgers import entry
from topologies.ledger_trust import Believer, Rules

SITE = "tokyo"


def copied(fake: FakeCluster, topic: str, *values: bytes) -> None:
    """Store what a replicator has copied of a log: its first marker, then one record for each value."""
    log = fake.logs.get(topic) or fake.log(topic)
    if not log.batches:
        assert log.append(term_batch([marker_record(b"m", timestamp_ms=1)], term=1, offset=0, marker=0))[0] == 0
    for value in values:
        record = NewRecord(value, timestamp_ms=NOW_MS)
        assert log.append(term_batch([record], term=1, offset=log.end, marker=0))[0] == 0
    fake.change()


def granted_by_sydney(term: int, marker: int, to: str | None, event: str, at: dt.datetime = NOW) -> bytes:
    """Return the record of Sydney's ledger that gives the box's log to a site; ``to`` None: the box has left."""
    times = {"event_date_time": at, "granted_date_time": at}
    return encode(entry(term, marker, to, event, by="sydney", log=BOX_LOG, marker_batch=b"", **times))


class _Letters(DeadLetters):
    def __init__(self, writers: WriterRegistry, engine: AlertEngine) -> None:
        super().__init__(writers, engine)
        self.rejected: list[Rejected] = []

    def reject(self, rejected: Rejected, *args: Any, **more: Any) -> None:
        self.rejected.append(rejected)
        super().reject(rejected, *args, **more)


class Port:
    """Tokyo's custody, writers and event handler, running. Use ``running`` to create it."""

    def __init__(self, fake: FakeCluster, cluster: Cluster, appender: Appender) -> None:
        self.fake = fake
        self.cluster = cluster
        self.appender = appender
        self.failures: list[BaseException] = []
        self.uncreatable: dict[str, FairleadError] = {}
        self.metrics = Metrics()
        self.holdings = Holdings(SITE, CustodyView())
        self.tails = TailReader(cluster)
        self.logs = fixed_logs(topology(), SITE)
        kafka = SiteKafka(cluster, appender, appender, self.tails, self._create)
        ledgers = LedgerAlerts(topology(), SITE, self.metrics)
        believer = Believer(Rules.of(topology()), self.holdings.view, on_refused=ledgers.refuse)
        settlement = Settlement(self.metrics, self.failures.append)
        alerts = AlertWriter(self.logs.alerts, appender, settlement)
        self.custody = CustodyManager(topology(), kafka, self.holdings, believer, alerts, settlement)
        self.writers = self.custody.writers
        self.classifier = Classifier(topology(), SITE)
        letters = _Letters(self.writers, AlertEngine(SITE, ashore=True))
        self.rejected = letters.rejected
        self.event_handler = CustodyEventHandler(
            self.classifier, self.tails, self.writers, self.custody.term_writer, letters
        )

    async def _create(self, topics: Sequence[str]) -> dict[str, FairleadError]:
        for topic in topics:
            if topic not in self.fake.logs and topic not in self.uncreatable:
                self.fake.log(topic)
        return {topic: self.uncreatable[topic] for topic in topics if topic in self.uncreatable}

    async def start(self) -> None:
        """Open the site's own logs and read the ledgers up to their ends."""
        await self._create(self.logs.all())
        for topic in self.logs.all():
            await self.appender.ensure_open(TP(topic), _first_marker(topic, SITE))
        await self.custody.catch_up()

    def put_reading(self, sequence: int, number: str = BOX) -> None:
        record = records.published(reading(sequence, number=number), key=number, at_ms=NOW_MS, received_ms=NOW_MS)
        self.writers.box(f"containers.{number}").enqueue(LogEntry(record, MessageId("d1", 1, sequence)))

    def put_event(self, code: str, event_id: str, received_ms: int = NOW_MS, **more: object) -> None:
        payload = event(code, event_id=event_id, **more)  # type: ignore[arg-type]
        message = self.classifier.classify("fairlead/v1/events", payload, NOW_MS)
        assert isinstance(message, EventMessage), message
        record = records.published(payload, key=event_id, at_ms=message.device_ms, received_ms=received_ms)
        self.event_handler.handle_event(message, record, "fairlead/v1/events", redelivered=False, ack=None)

    def state(self) -> CustodyState:
        return self.holdings.state(BOX_LOG)

    async def until_state(self, state: CustodyState) -> None:
        await until(lambda: self.failures or self.state() is state)
        assert (self.state(), self.failures) == (state, [])

    async def until_idle(self) -> None:
        while busy := [writer for writer in self.writers.all() if writer.busy]:
            await asyncio.gather(*(writer.idle() for writer in busy))

    async def readings(self, log: str = BOX_LOG) -> list[int]:
        """Return the sequence numbers of the readings in a box's log."""
        found = [records.identity_of(each) async for each in read_log(self.cluster, TP(log))]
        return [each.sequence for each in found if each is not None]

    async def entries(self) -> list[LedgerEntry]:
        """Return the entries of this site's ledger."""
        every = [each async for each in read_log(self.cluster, TP(self.logs.custody)) if is_data(each)]
        return [ledger_entries.decode(each.value) for each in every if each.value is not None]


@contextlib.asynccontextmanager
async def running(fake: FakeCluster, *, request_timeout: float = 1.0) -> AsyncIterator[Port]:
    """Run a port's custody until the block ends; an error that would stop the bridge is in ``failures``."""
    async with await Cluster.open(fake.endpoint(), client_id="test", request_timeout=request_timeout) as cluster:
        appender = Appender(cluster, linger=0.0)
        port = Port(fake, cluster, appender)
        await port.start()
        work = dict(port.custody.work())
        work["events that wait"] = port.event_handler.retry_waiting
        tasks = [asyncio.create_task(run(), name=name) for name, run in work.items()]

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                port.failures.append(error)

        for task in tasks:
            task.add_done_callback(ended)
        try:
            yield port
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(writer.close() for writer in port.writers.all()))
            await port.custody.close()
            await port.tails.close()
            await appender.close()
