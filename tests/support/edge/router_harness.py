"""A bridge's router without brokers: what became of one message, and what must hold of it whatever the message is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import MagicMock

from edge.alerts.engine import AlertEngine
from edge.custody.handlers import CustodyEventHandler
from edge.holdings import Holdings
from edge.ingest.classifier import Classifier
from edge.ingest.dead_letters import KEPT_BYTES, DeadLetters
from edge.ingest.router import MessageRouter
from edge.logwriter.records import identity
from edge.logwriter.writer import Barrier, LogEntry
from edge.messages import RejectReason
from edge.metrics import Metrics
from edge.mqtt.session import Delivery
from edge.writer_registry import WriterRegistry
from fairlead.custody.view import CustodyView
from fairlead.kafka.protocol.record import NewRecord, decode_batch, encode_batch
from fairlead.records import decoder
from fairlead.records.alert import Alert
from fairlead.records.edge import DeadLetter
from tests.support.acknowledging import AckSession
from tests.support.edge.samples import BOX, BOX_LOG, IMO, event, reading, readings_topic, topology
from tests.support.raised_alerts import RaisedAlerts

LARGEST_RECORD = 850_000  # bytes; a log takes 1 MiB
LARGEST_ALERT = 64 * 1024  # it leaves a ship by satellite, before everything else
_letter = decoder(DeadLetter)
_alert = decoder(Alert)

Put = tuple[str, LogEntry[Any] | Barrier]


class _Writer:
    """Keeps what is put into it."""

    busy = False

    def __init__(self, log: str, puts: list[Put]) -> None:
        self.log = log
        self._puts = puts

    def enqueue(self, item: LogEntry[Any] | Barrier) -> None:
        self._puts.append((self.log, item))


class _Alerts(RaisedAlerts):
    def __init__(self, site: str, puts: list[Put]) -> None:
        super().__init__(site)
        self._puts = puts

    def enqueue(self, item: LogEntry[Any] | Barrier) -> None:
        self._puts.append((self.log, item))


class _Writers:
    """Stands for ``WriterRegistry``."""

    def __init__(self, site: str, puts: list[Put], metrics: Metrics, holdings: Holdings) -> None:
        self._puts = puts
        self.holdings = holdings
        self.metrics = metrics
        self.events = _Writer(f"events.{site}", puts)
        self.alerts = _Alerts(site, puts)
        self.strays = _Writer(f"strays.{site}", puts)
        self.letters = _Writer(f"deadletters.{site}", puts)
        self.bookings = _Writer(f"bookings.{site}", puts)
        self.ship = {log: _Writer(log, puts) for log in (f"ships.{IMO}.location", f"ships.{IMO}.environment")}

    def box(self, topic: str) -> _Writer:
        return _Writer(topic, self._puts)


class RouterHarness:
    """One site's router with its alert engine, which remembers what came before."""

    def __init__(self, site: str) -> None:
        self.puts: list[Put] = []
        self.metrics = Metrics()
        self.engine = AlertEngine(site, ashore=site != "star")
        holdings = Holdings(site, CustodyView())
        holdings.hold(BOX_LOG, 2)
        self._letters = f"deadletters.{site}"
        self._alerts = f"alerts.{site}"
        writers = cast(WriterRegistry, _Writers(site, self.puts, self.metrics, holdings))
        dead_letters = DeadLetters(writers, self.engine)
        classifier = Classifier(topology(), site)
        events = CustodyEventHandler(classifier, MagicMock(), writers, MagicMock(), dead_letters)
        self._router = MessageRouter(classifier, writers, events, dead_letters, self.engine)

    def take(self, topic: str, payload: bytes) -> str:
        """One message; the log that it went to. Fails when it is not exactly one, or holds another message."""
        self.puts.clear()
        ack = AckSession().ack()
        self._router.route_message(Delivery(topic, payload, False, ack))
        alerts = [item for log, item in self.puts if log == self._alerts]
        [(log, stored)] = [put for put in self.puts if put[0] != self._alerts]
        assert ack.parts == 1 + len(alerts)
        for each in alerts:
            assert isinstance(each, LogEntry)
            _check_alert(each.record)
        if isinstance(stored, LogEntry):
            assert stored.ack is ack
            _check_stored(stored.record)
            if log == self._letters:
                _check_letter(stored.record, topic, payload)
            elif not log.endswith(".location"):  # there, what AIS sends for "not available" has become null
                assert stored.record.value == payload
            if log.startswith(("containers.", "yellow.", "ships.")):
                assert identity(stored.record.value) == stored.key, "a restart would not know it again"
        else:
            assert topic.endswith("/events")  # it waits for its turn in the box's lane
        assert self.engine.failures == 0
        return log


def _check_stored(record: NewRecord) -> None:
    batch = encode_batch([record], producer_id=1 << 62, epoch=1, sequence=0)
    assert len(batch) < LARGEST_RECORD
    [stored] = decode_batch(batch)
    assert (stored.key, stored.value, stored.timestamp_ms) == (record.key, record.value, record.timestamp_ms)


def _check_alert(record: NewRecord) -> None:
    _check_stored(record)
    assert record.value is not None and len(record.value) < LARGEST_ALERT
    alert = _alert.decode(record.value)
    assert alert.causes and alert.evidence is not None


def _check_letter(record: NewRecord, topic: str, payload: bytes) -> None:
    assert record.value is not None
    letter = _letter.decode(record.value)
    assert letter.reason in set(RejectReason) and letter.detail
    assert letter.mqtt_topic == topic[: len(letter.mqtt_topic)]
    assert letter.payload == payload[:KEPT_BYTES]
    assert letter.payload_bytes == len(payload)
    assert letter.payload_sha256 == hashlib.sha256(payload).hexdigest()


def sample_messages() -> Iterator[tuple[str, bytes]]:
    """Messages of every kind that are all right, to begin from."""
    whole: dict[str, Any] = {
        "measurements": {"supplyTemperature": 4.1, "returnTemperature": 5.0, "relativeHumidity": 80.0},
        "setpoints": {"temperature": 4.0, "relativeHumidity": 85.0, "o2": 3.0, "co2": 3.0},
        "reeferSettings": {"isDefrosting": True, "isPreTripInspection": False},
        "isConnectedToPowerSource": True,
        "isPowered": False,
        "geoLocation": {"latitude": -30.0, "longitude": 155.0},
        "motion": {"tiltDegrees": 70.0, "peakG": 9.0, "freeFallSeconds": 1.5, "immersed": True, "doorOpen": True},
        "stowagePosition": "0340782",
    }
    yield readings_topic(), reading(0)
    yield readings_topic(), reading(1, **whole)
    yield readings_topic("YELU1000002"), reading(0, number="YELU1000002")
    gps = b'"device":{"deviceId":"gps","bootId":1,"sequence":%d,"deviceDateTime":"2026-03-01T12:00:00Z"}'
    yield (
        f"fairlead/v1/ships/{IMO}/position",
        b'{"vesselIMONumber":"9074729",' + gps % 1 + b',"geoLocation":{"latitude":91,"longitude":181},'
        b'"speedOverGround":102.3,"courseOverGround":360.0,"heading":511,"navigationStatus":0}',
    )
    yield (
        f"fairlead/v1/ships/{IMO}/environment",
        b'{"vesselIMONumber":"9074729",' + gps % 2 + b',"windSpeed":12.5,"significantWaveHeight":4.0}',
    )
    places: dict[str, dict[str, Any]] = {
        "GTIN": {},
        "GTOT": {},
        "LOAD": {"vesselIMONumber": IMO},
        "DISC": {"UNLocationCode": "AUSYD"},
        "ARRI": {"vesselIMONumber": IMO},
    }
    for code, more in places.items():
        yield "fairlead/v1/events", event(code, **more)
    yield (
        "fairlead/v1/bookings",
        b'{"bookingReference":"B1","customer":"ducks","equipmentReference":"%b","validFrom":"2026-03-01T00:00:00Z",'
        b'"validTo":"2026-04-01T00:00:00Z","commodity":"bananas","setpointTemperature":13.5}' % BOX.encode(),
    )
    yield "$SYS/broker/publish/messages/dropped/x", b"3"
