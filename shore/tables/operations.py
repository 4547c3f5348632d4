"""Tables ``alerts``, ``events``, ``positions``, ``environment``, ``digests``, ``booking_changes``, ``custody_entries``.

All seven are the same kind of table. Grain: one row per data record of the logs of one stream. Key: (``log``,
``log_offset``). Late data: appended when read, never dropped or updated; the reader resolves which record replaces
which (the last state of an alert or booking is the one with the highest offset). ``Column.path`` names the place of a
column in the record; nested lists of JSON are kept as JSON text. Volume is small, so they are not partitioned.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from fairlead.records import Decoder, decoder
from fairlead.records.alert import Alert
from fairlead.records.booking import Booking
from fairlead.records.custody import LedgerEntry
from fairlead.records.digest import Digest, DigestDecoder
from fairlead.records.event import Event
from fairlead.records.ship import Environment, Position
from shore.tables.model import TIME, Column, Table
from shore.tables.readings import RECORD_COLUMNS

_TEXT, _DOUBLE, _BOOL = pa.string(), pa.float64(), pa.bool_()
_PLACE = (
    Column("latitude", _DOUBLE, "WGS 84", "deg", "geoLocation.latitude"),
    Column("longitude", _DOUBLE, "WGS 84", "deg", "geoLocation.longitude"),
)


@dataclass(frozen=True, slots=True)
class LogTable:
    """A table and the logs that fill it: those of ``stream`` whose key matches ``keys``.

    Their records are of type ``kind``: a struct, or a union of tagged structs, each of which fills the columns it has.
    They are JSON, except digests.
    """

    table: Table
    kind: Any
    stream: str
    keys: str = r".+"

    @property
    def pattern(self) -> str:
        """Regular expression that matches the whole name of its logs."""
        return rf"{self.stream}\.{self.keys}"

    @property
    def decoder(self) -> Decoder:
        """Decodes the records' values."""
        return DigestDecoder() if self.kind is Digest else decoder(self.kind)

    @property
    def payload_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.table.columns if column.path)


def _table(
    name: str,
    title: str,
    grain: str,
    columns: Iterable[Column],
    added: Iterable[Column] = (),
    payload: str = "The record as written, JSON",
) -> Table:
    """``added`` are columns of later versions. They come after all others."""
    tail = (
        Column("record_date_time", TIME, "Kafka's time of the record"),
        Column("problem", _TEXT, "Why the payload could not be read; its columns are null then"),
        Column("payload", pa.binary(), payload),
    )
    return Table(
        name=name,
        title=title,
        columns=(*RECORD_COLUMNS, *columns, *tail, *added),
        key=("log", "log_offset"),
        grain=grain,
        late="Appended when read, whatever its time; never dropped, never updated.",
        layout="Not partitioned: small.",
    )


ALERTS = _table(
    "alerts",
    "Alerts raised by the bridges of ships and ports",
    "One row per state of an alert (OPENED, UPDATED, CLEARED).",
    (
        Column("alert_id", _TEXT, "The same over all states of one alert; other sites may use it, too", path="alertID"),
        Column("kind", _TEXT, "What it is about: OVERBOARD, POWER_LOST, TEMPERATURE, ... (docs/edge.md)", path="kind"),
        Column("severity", _TEXT, "DCSA RMO alarmSeverity: CRITICAL, ALARM, WARNING", path="severity"),
        Column("state", _TEXT, "OPENED, UPDATED, CLEARED", path="state"),
        Column("revision", pa.int32(), "Counts the states of one alert; null in its first one", path="revision"),
        Column(
            "equipment_reference", _TEXT, "ISO 6346 container number; empty: all of a site", path="equipmentReference"
        ),
        Column("raised_at", _TEXT, "Site that raised it: the one whose log this is", path="raisedAt"),
        Column("event_date_time", TIME, "Device time of the reading that caused this state", path="eventDateTime"),
        Column("raised_date_time", TIME, "When the site wrote it", path="raisedDateTime"),
        Column("vessel_imo_number", _TEXT, "Ship it happened on; null ashore", path="vesselIMONumber"),
        *_PLACE,
        Column("evidence", _TEXT, "What was seen and how much it counts, JSON", path="evidence"),
        Column("causes", _TEXT, "Readings that led to it, JSON", path="causes"),
    ),
    added=(
        Column("acknowledged_by", _TEXT, "Who has said that it is seen to; empty: nobody", path="acknowledgedBy"),
        Column("acknowledged_date_time", TIME, "When", path="acknowledgedDateTime"),
        Column("acknowledgement", _TEXT, "What that person said", path="acknowledgement"),
    ),
)
EVENTS = _table(
    "events",
    "Port and vessel events",
    "One row per DCSA Track & Trace event as published.",
    (
        Column("event_id", _TEXT, "DCSA eventID; a repeat has the same", path="metadata.eventID"),
        Column("event_type", _TEXT, "EQUIPMENT or TRANSPORT", path="metadata.eventType"),
        Column("publisher", _TEXT, "Who says it", path="metadata.publisher"),
        Column("event_created_date_time", TIME, "When it was written down", path="metadata.eventCreatedDateTime"),
        Column("event_date_time", TIME, "When it happened", path="payload.eventDateTime"),
        Column("equipment_event_type_code", _TEXT, "GTIN, LOAD, DISC, GTOT", path="payload.equipmentEventTypeCode"),
        Column("transport_event_type_code", _TEXT, "ARRI, DEPA", path="payload.transportEventTypeCode"),
        Column("equipment_reference", _TEXT, "ISO 6346 container number", path="payload.equipmentReference"),
        Column("un_location_code", _TEXT, "UN/LOCODE of the port", path="payload.UNLocationCode"),
        Column("vessel_imo_number", _TEXT, "Ship involved", path="payload.vesselIMONumber"),
        Column("voyage_reference", _TEXT, "Voyage", path="payload.voyageReference"),
        Column("booking_reference", _TEXT, "Booking", path="payload.bookingReference"),
    ),
    added=(
        Column(
            "event_classifier_code",
            _TEXT,
            "ACT: it happened; PLN: planned, EST: estimated, of ships only; null: ACT",
            path="payload.eventClassifierCode",
        ),
    ),
)
HAPPENED: Final = "coalesce(event_classifier_code, 'ACT') = 'ACT'"
"""SQL condition over ``events``: the event happened. Rows of earlier releases have no classifier."""
ABOUT: Final = "coalesce(nullif(equipment_reference, ''), vessel_imo_number, '')"
"""SQL of what an event is about: its container, else its ship."""
OF_ONE_EVENT: Final = f"event_id, {ABOUT}"
"""SQL columns that are the same in all copies of one event. Ids are those of many senders, so events about several
containers or ships may have one id."""
COPIES: Final = "event_created_date_time nulls last, log, log_offset"
"""SQL order of the copies of one event: several sites may publish it, and the first copy counts."""
TOLD: Final = f"""
    select * from events
    where problem is null and event_date_time is not null and {HAPPENED}
    qualify row_number() over (partition by {OF_ONE_EVENT} order by {COPIES}) = 1
"""  # noqa: S608  # our own names
"""The events of relation ``events`` that happened, each as its first copy tells it, in DuckDB's SQL."""
POSITIONS = _table(
    "positions",
    "Positions of the ships",
    "One row per position a ship published.",
    (
        Column("vessel_imo_number", _TEXT, "IMO number of the ship", path="vesselIMONumber"),
        Column("device_date_time", TIME, "When, by the device's clock", path="device.deviceDateTime"),
        *_PLACE,
        Column("speed_over_ground", _DOUBLE, "Speed over ground", "kn", "speedOverGround"),
        Column("course_over_ground", _DOUBLE, "Course over ground", "deg", "courseOverGround"),
        Column("heading", pa.int32(), "True heading", "deg", "heading"),
        Column("navigation_status", pa.int32(), "AIS navigation status, 0 to 15", path="navigationStatus"),
    ),
)
ENVIRONMENT = _table(
    "environment",
    "Weather, sea and power around the ships",
    "One row per report a ship published.",
    (
        Column("vessel_imo_number", _TEXT, "IMO number of the ship", path="vesselIMONumber"),
        Column("device_date_time", TIME, "When, by the device's clock", path="device.deviceDateTime"),
        Column("wind_speed", _DOUBLE, "Wind speed", "m/s", "windSpeed"),
        Column("significant_wave_height", _DOUBLE, "Significant wave height", "m", "significantWaveHeight"),
        Column("air_temperature", _DOUBLE, "Air temperature", "Cel", "airTemperature"),
        Column("sea_temperature", _DOUBLE, "Sea temperature", "Cel", "seaTemperature"),
        Column("air_pressure", _DOUBLE, "Air pressure", "hPa", "airPressure"),
        Column("reefer_power", _DOUBLE, "Power that the reefers on board draw", "kW", "reeferPower"),
    ),
)
DIGEST_BOX = pa.struct(
    [
        ("equipment_reference", _TEXT),
        ("reading_date_time", TIME),
        ("setpoint_temperature", _DOUBLE),
        ("supply_temperature", _DOUBLE),
        ("return_temperature", _DOUBLE),
        ("is_connected_to_power_source", _BOOL),
        ("is_powered", _BOOL),
        ("in_band", _BOOL),
        ("is_disturbed", _BOOL),
        ("door_open", _BOOL),
        ("immersed", _BOOL),
        ("open_alerts", pa.int32()),
        ("worst_severity", _TEXT),
    ]
)
"""The columns of one box in a digest; ``fairlead.records.digest.DigestBox`` says what they mean."""
DIGESTS = _table(
    "digests",
    "What ships at sea say of the boxes aboard, before their readings arrive",
    "One row per digest of a ship, every 15 minutes; boxes has one entry per container that changed since the digest "
    "before, with its newest reading.",
    (
        Column("vessel_imo_number", _TEXT, "IMO number of the ship", path="vesselIMONumber"),
        Column("as_of_date_time", TIME, "The ship's clock when it was made", path="asOfDateTime"),
        Column("whole", _BOOL, "Whether it has all boxes that the ship hears, not only changed ones", path="whole"),
        Column(
            "boxes",
            pa.list_(DIGEST_BOX),
            "The boxes: time and temperatures (Cel) of the newest reading, plugged, powered; in_band: whether the "
            "ship's rules find the air within the tolerance, null where they do not judge; is_disturbed: defrost or "
            "pre-trip inspection; how many alerts of the ship are open, and the worst severity",
            path="boxes",
        ),
    ),
    payload="The record as written (fairlead.records.digest)",
)
BOOKING_CHANGES = _table(
    "booking_changes",
    "Changes to bookings",
    "One row per change of a booking for one container, as published; table bookings has the states they lead to.",
    (
        Column("booking_reference", _TEXT, "Booking", path="bookingReference"),
        Column("customer", _TEXT, "Customer who may see the container while it is valid", path="customer"),
        Column("equipment_reference", _TEXT, "ISO 6346 container number", path="equipmentReference"),
        Column("status", _TEXT, "CONFIRMED, COMPLETED, CANCELLED", path="status"),
        Column("commodity", _TEXT, "What is inside", path="commodity"),
        Column("setpoint_temperature", _DOUBLE, "Temperature agreed", "Cel", "setpointTemperature"),
        Column("port_of_loading", _TEXT, "UN/LOCODE", path="portOfLoading"),
        Column("port_of_discharge", _TEXT, "UN/LOCODE", path="portOfDischarge"),
        Column("valid_from", TIME, "First device time the customer may see, inclusive", path="validFrom"),
        Column("valid_to", TIME, "First device time after it; null while it runs", path="validTo"),
    ),
    added=(
        Column("consignee", _TEXT, "Recipient of the goods; may see it, too", path="consignee"),
        Column(
            "cold_treatment_temperature",
            _DOUBLE,
            "Cold treatment: the warmest that the cargo may be",
            "Cel",
            "coldTreatmentTemperature",
        ),
        Column("cold_treatment_days", _DOUBLE, "Cold treatment: days without a break", "d", "coldTreatmentDays"),
        Column(
            "transport_document_reference",
            _TEXT,
            "Number of the transport document (B/L); empty: none yet",
            path="transportDocumentReference",
        ),
    ),
)
CUSTODY_ENTRIES = _table(
    "custody_entries",
    "The ledgers of custody as written",
    "One row per entry: a grant, opening or seizure; what a site had beyond a seizure (return); a refused order; a "
    "site that asks for the log of a box that had left elsewhere (claim). Columns that an entry of its "
    "kind does not have are null.",
    (
        Column("entry_type", _TEXT, "grant, return, refusal, claim", path="entryType"),
        Column("entry_log", _TEXT, "Log that it is about", path="log"),
        Column(
            "entry_term",
            pa.int32(),
            "Term that begins; the seizure's of a return, the gate-out's of a claim",
            path="term",
        ),
        Column("marker_offset", pa.int64(), "Offset of that term's marker in the log", path="markerOffset"),
        Column("from_site", _TEXT, "Grant: holder before; null at an opening", path="fromSite"),
        Column("to_site", _TEXT, "Grant: holder from then on; null when the box leaves", path="toSite"),
        Column("event", _TEXT, "Grant: GTIN, LOAD, DISC, GTOT, HAND, SEIZURE", path="event"),
        Column("event_id", _TEXT, "Grant: the event or order that moved it. Claim: the gate-in", path="eventId"),
        Column("event_date_time", TIME, "Grant, claim: when that happened", path="eventDateTime"),
        Column("granted_date_time", TIME, "Grant: when it was written down", path="grantedDateTime"),
        Column("granted_by", _TEXT, "Grant: site that wrote it", path="grantedBy"),
        Column("ordered_by", _TEXT, "Grant: who ordered it by hand; empty otherwise", path="orderedBy"),
        Column("end_offset", pa.int64(), "Return: where the site's copy ended", path="endOffset"),
        Column("kept", pa.int64(), "Return: readings that were kept as strays", path="kept"),
        Column("strays_log", _TEXT, "Return: where they are kept", path="straysLog"),
        Column("returned_date_time", TIME, "Return: when it was written down", path="returnedDateTime"),
        Column("returned_by", _TEXT, "Return: site that wrote it", path="returnedBy"),
        Column("order_id", _TEXT, "Refusal: the order", path="orderId"),
        Column("code", _TEXT, "Refusal: class of the error", path="code"),
        Column("refused_date_time", TIME, "Refusal: when it was written down", path="refusedDateTime"),
        Column("refused_by", _TEXT, "Refusal: site that wrote it", path="refusedBy"),
        Column("left_site", _TEXT, "Claim: site that the box had left", path="leftSite"),
        Column("claimed_date_time", TIME, "Claim: when it was written down", path="claimedDateTime"),
        Column("claimed_by", _TEXT, "Claim: site where the box came in", path="claimedBy"),
        Column("reason", _TEXT, "Grant by hand: why. Refusal: why not", path="reason"),
    ),
)

OPERATIONS: tuple[LogTable, ...] = (
    LogTable(ALERTS, Alert, "alerts", r"(?!shore$).+"),  # shore's own are in alerts_ashore
    LogTable(EVENTS, Event, "events"),
    LogTable(POSITIONS, Position, "ships", r"\d{7}\.location"),
    LogTable(ENVIRONMENT, Environment, "ships", r"\d{7}\.environment"),
    LogTable(DIGESTS, Digest, "ships", r"\d{7}\.digest"),
    LogTable(BOOKING_CHANGES, Booking, "bookings"),
    LogTable(CUSTODY_ENTRIES, LedgerEntry, "custody"),
)
