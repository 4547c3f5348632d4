"""Tables ``excursions`` and ``excursion_parts``: when a container was out of band, as sessions.

What is judged, and against what, is in ``shore.tables.bands``: temperature, humidity and power. A session begins with
the first reading out of band. It is over when the container has been back in band for 30 minutes, or has said nothing
that can be judged for six hours; a reading out of band after that begins another one. Readings that cannot be judged
(defrosting, an inspection before a trip, no set point) neither begin nor end anything.

``excursion_parts`` holds the same half hour by half hour. Within a half hour readings out of band are always of one
session, so sessions follow from the parts alone, and a late reading makes some half hours again and not a voyage.
"""

from __future__ import annotations

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

_TEXT, _DOUBLE, _LONG = pa.string(), pa.float64(), pa.int64()

_WORST = (
    Column("worst_value", _DOUBLE, "Reading furthest from the set point; null for POWER", "Cel or %"),
    Column("worst_deviation", _DOUBLE, "How far that was from the set point, at least 0; null for POWER", "K or %"),
    Column("direction", _TEXT, "HIGH or LOW: on which side of the set point that was; null for POWER"),
    Column("setpoint", _DOUBLE, "Set point at that reading; of the temperature for POWER", "Cel or %"),
    Column("deviation_minutes", _DOUBLE, "Distance from the set point times time (degree-minutes)", "K min or % min"),
    Column("latitude", _DOUBLE, "Where it began, WGS 84; null where that reading has no position", "deg"),
    Column("longitude", _DOUBLE, "Where it began, WGS 84; null where that reading has no position", "deg"),
)
_BOX = Column("equipment_reference", _TEXT, "ISO 6346 container number")
_QUANTITY = Column("quantity", _TEXT, "TEMPERATURE, HUMIDITY or POWER (POWER: not plugged in or switched off)")
_END = Column(
    "end_date_time", TIME, "End: until when the last reading out of band stands (the next reading, at most 30 min)"
)
_RECOVERED = Column(
    "recovered_date_time",
    TIME,
    "First reading back in band, if the next that can be judged is one within six hours; null: not seen to be over",
)
_READINGS = Column("readings", _LONG, "Readings out of band, repeats counted once")
_MINUTES = Column("minutes_out_of_band", _DOUBLE, "Time those readings stand for", "min")

EXCURSIONS = Table(
    name="excursions",
    title="Excursions: when a container was out of band",
    columns=(
        Column("excursion_id", _TEXT, "<container>/<quantity>/<begin>: names the row"),
        _BOX,
        _QUANTITY,
        Column("start_date_time", TIME, "Device time of the first reading out of band"),
        Column("last_date_time", TIME, "Device time of the last reading out of band"),
        _END,
        _RECOVERED,
        Column("minutes", _DOUBLE, "From begin to end, short times in band included", "min"),
        _MINUTES,
        _READINGS,
        *_WORST,
    ),
    key=("equipment_reference", "quantity", "start_date_time"),
    grain="One row per container, quantity and session out of band. A session goes on until the container was back in "
    "band for 30 minutes, or silent for six hours. Not seen to be over: recovered_date_time is null.",
    late="The sessions that new readings fall into, or are within reach of, are made again: late readings lengthen, "
    "join and split sessions. One whose first reading changes gets another begin, and so another key and id.",
    layout="Not partitioned: few rows; sorted by container, quantity and begin.",
)

EXCURSION_PARTS = Table(
    name="excursion_parts",
    title="Half hours out of band, from which excursions are made",
    columns=(
        _BOX,
        _QUANTITY,
        Column("part_start", TIME, "Begin of the half hour of device time, inclusive"),
        Column("start_date_time", TIME, "Device time of its first reading out of band"),
        Column("last_date_time", TIME, "Device time of its last reading out of band"),
        _END,
        _RECOVERED,
        _MINUTES,
        _READINGS,
        *_WORST,
    ),
    key=("equipment_reference", "quantity", "part_start"),
    grain="One row per container, quantity and half hour of device time with at least one reading out of band.",
    late="The half hours that new readings touch are made again from readings, however late.",
    layout="Not partitioned: only containers out of band have rows; sorted by container, quantity and time.",
)
