"""Write readings, bookings and alerts into real logs for the tests of shore, with Fairlead's own appender."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.convention import marker_record
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import TP
from fairlead.names import container_check_digit
from fairlead.records import encode, headers
from fairlead.records.alert import Alert
from fairlead.records.booking import Booking
from fairlead.records.custody import CustodyEntry
from fairlead.records.event import Event, EventMetadata, EventPayload
from fairlead.records.reading import Device, GeoLocation, Measurements, Motion, Reading, Setpoints
from topologies.model import DEFAULT_STREAMS, Customer, InsertPoint, Shore, Site, SiteKind, Stream, Topology

T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


def at(minutes: int) -> dt.datetime:
    return T0 + minutes * MINUTE


def number(index: int) -> str:
    """Return a container number with a valid check digit."""
    ten = f"BIGU{index:06d}"
    return ten + container_check_digit(ten)


def reading(
    box: str,
    sequence: int,
    at: dt.datetime,
    supply: float = 4.0,
    is_powered: bool = True,
    probe: float | None = None,
) -> NewRecord:
    value = Reading(
        equipment_reference=box,
        device=Device(device_id=f"dev-{box}", boot_id=1, sequence=sequence, device_date_time=at),
        measurements=Measurements(
            supply_temperature=supply,
            return_temperature=supply + 0.5,
            cargo_probe1_temperature=probe,
            relative_humidity=85.0,
        ),
        setpoints=Setpoints(temperature=4.0),
        geo_location=GeoLocation(latitude=35.6, longitude=139.8),
        motion=Motion(tilt_degrees=1.0),
        is_powered=is_powered,
    )
    received = (headers.RECEIVED, str(_ms(at) + 1500).encode())
    return NewRecord(encode(value), box.encode(), (received,), timestamp_ms=_ms(at))


def booking(
    reference: str,
    customer: str,
    box: str,
    begin: dt.datetime,
    end: dt.datetime | None,
    status: str = "CONFIRMED",
    consignee: str = "",
    **more: Any,
) -> NewRecord:
    value = Booking(
        booking_reference=reference,
        customer=customer,
        equipment_reference=box,
        status=status,  # type: ignore[arg-type]  # the tests also write wrong ones
        valid_from=begin,
        valid_to=end,
        consignee=consignee,
        **more,
    )
    return NewRecord(encode(value), reference.encode(), timestamp_ms=_ms(begin))


def alert(box: str, site: str, at: dt.datetime) -> NewRecord:
    value = Alert(
        alert_id=str(uuid.uuid4()),
        kind="OVERBOARD",
        severity="CRITICAL",
        state="OPENED",
        equipment_reference=box,
        raised_at=site,
        event_date_time=at,
        raised_date_time=at,
    )
    return NewRecord(encode(value), box.encode(), timestamp_ms=_ms(at))


def docked(
    event_id: str,
    code: str,
    at: dt.datetime,
    *,
    port: str = "JPTYO",
    created: int = 0,
    imo: str = "9074729",
    classifier: Literal["ACT", "PLN", "EST"] = "ACT",
) -> NewRecord:
    """Return a ship's ARRI or DEPA event, created so many minutes after it happened."""
    value = Event(
        metadata=EventMetadata(
            event_id=event_id,
            event_created_date_time=at + created * MINUTE,
            event_type="TRANSPORT",
            publisher="test",
        ),
        payload=EventPayload(
            event_classifier_code=classifier,
            event_date_time=at,
            transport_event_type_code=code,  # type: ignore[arg-type]  # what the test says
            un_location_code=port,
            vessel_imo_number=imo,
        ),
    )
    return NewRecord(encode(value), event_id.encode(), timestamp_ms=_ms(at))


def grant(log: str, term: int, site: str, at: dt.datetime) -> NewRecord:
    """Return the ledger entry by which a site granted the log to itself, as at a gate."""
    value = CustodyEntry(
        log=log,
        term=term,
        marker_offset=0,
        from_site=None,
        to_site=site,
        event="GTIN",
        event_id=str(uuid.uuid4()),
        event_date_time=at,
        granted_date_time=at,
        granted_by=site,
        marker_batch=b"",
    )
    return NewRecord(encode(value), log.encode(), timestamp_ms=_ms(at))


def _ms(at: dt.datetime) -> int:
    return int(at.timestamp() * 1000)


@dataclass(frozen=True)
class World:
    """One test's part of a shared Kafka: a topology whose streams and customers have unique names."""

    endpoint: KafkaEndpoint
    tag: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def stream(self) -> str:
        return f"boxes-{self.tag}"

    @property
    def customer(self) -> str:
        return f"ducks-{self.tag}"

    @property
    def bookings(self) -> str:
        return f"bookings.{self.tag}"

    @property
    def alerts(self) -> str:
        return f"alerts.{self.tag}"

    @property
    def custody(self) -> str:
        return f"custody.{self.tag}"

    def box(self, index: int) -> str:
        """Return a container number that no other test uses."""
        return number((int(self.tag, 16) + index) % 1_000_000)

    def log(self, box: str) -> str:
        return f"{self.stream}.{box}"

    @property
    def recipient(self) -> str:
        """A customer with a coarse feed and a table of its own, where the topology has it."""
        return f"shop-{self.tag}"

    @property
    def events(self) -> str:
        return f"events.{self.tag}"

    @property
    def authority(self) -> str:
        """A port's authority with a table of its own, where the topology has it."""
        return f"port-{self.tag}"

    def topology(
        self,
        *more_customers: str,
        recipient: bool = False,
        authority: bool = False,
        tables: bool = False,
        fail_on_data_loss: bool = True,
        alerts: bool = False,
    ) -> Topology:
        """Return the topology.

        Args:
            tables: Each customer with a detailed feed has a table of its own.
            alerts: It has stream ``alerts``, so that shore writes its log ``alerts.shore``, which tests share.
        """
        site = self.endpoint.site
        customers = {name: Customer(feed_at=site, table=tables) for name in (self.customer, *more_customers)}
        if authority:
            customers[self.authority] = Customer(feed_at=site, feed="movements", port="JPTYO", table=True)
        if recipient:
            customers[self.recipient] = Customer(feed_at=site, feed="coarse", table=True)
        return Topology(
            name=f"test-{self.tag}",
            sites={site: Site(kind=SiteKind.PORT, unlocode="JPTYO")},
            streams={name: each for name, each in DEFAULT_STREAMS.items() if alerts or name != "alerts"}
            | {self.stream: Stream(insert_point=InsertPoint.MOVES, owners=("BIGU",))},
            customers=customers,
            shore=Shore(at=site, fail_on_data_loss=fail_on_data_loss),
        )

    def append(self, logs: Mapping[str, Sequence[NewRecord]], *, codec: Codec = Codec.NONE) -> dict[str, int]:
        """Create and open logs where needed (marker at offset 0), and append; return each log's first new offset."""

        async def write() -> dict[str, int]:
            async with await Cluster.open(self.endpoint, client_id="test") as cluster:
                missing = set(logs) - set(await cluster.topics(list(logs), refresh=True))
                if missing:
                    await asyncio.to_thread(create_logs, self.endpoint, {topic: {} for topic in missing})
                    await cluster.wait_writable(sorted(missing))
                appender = Appender(cluster, codec=codec)
                try:
                    marker = [self._marker(topic) for topic in logs]
                    opened = zip(logs, marker, strict=True)
                    await asyncio.gather(*(appender.ensure_open(TP(topic), record) for topic, record in opened))
                    found = await asyncio.gather(
                        *(appender.append(TP(topic), records) for topic, records in logs.items() if records)
                    )
                finally:
                    await appender.close()
                written = [topic for topic, records in logs.items() if records]
                return {topic: done.base_offset for topic, done in zip(written, found, strict=True)}

        return asyncio.run(write())

    @staticmethod
    def _marker(topic: str) -> NewRecord:
        return marker_record(f"{topic} {uuid.uuid4()}".encode(), timestamp_ms=_ms(T0))

    def read(self, topic: str) -> list[Record]:
        async def all_of() -> list[Record]:
            async with await Cluster.open(self.endpoint, client_id="test") as cluster:
                return [record async for record in read_log(cluster, TP(topic))]

        return asyncio.run(all_of())

    def delete_before(self, topic: str, offset: int) -> None:
        """Delete the records before an offset, as retention does."""

        async def delete() -> None:
            async with await Cluster.open(self.endpoint, client_id="test") as cluster:
                await cluster.delete_records({TP(topic): offset})

        asyncio.run(delete())
