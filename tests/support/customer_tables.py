"""Customers' own tables for tests: rows as shore writes them from a feed, without Kafka and Spark."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from shore.paths import TablePaths
from shore.tables.feeds import CUSTOMER_FEED
from tests.support.delta_rs import create

Json = dict[str, Any]


def written(moment: dt.datetime) -> str:
    """Return a time as records have it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class FeedRows:
    """The rows of one customer's table in the order of its feed."""

    def __init__(self) -> None:
        self.rows: list[Json] = []

    def add(self, kind: str, number: str, at: dt.datetime, value: Json | str, log: str, log_offset: int) -> int:
        """Add a record; return its offset in the feed. ``revision`` is that of the value."""
        text = value if isinstance(value, str) else json.dumps(value)
        row = {
            "feed_offset": len(self.rows),
            "kind": kind,
            "equipment_reference": number,
            "device_date_time": at,
            "log": log,
            "log_offset": log_offset,
            "retracts": False,
            "revision": value.get("revision") if isinstance(value, dict) and "/" in log else None,
            "value": text,
        }
        self.rows.append(row)
        return len(self.rows) - 1

    def take_back(self, log: str, log_offset: int) -> None:
        """Add the retraction of a record that was given."""
        given = next(row for row in reversed(self.rows) if (row["log"], row["log_offset"]) == (log, log_offset))
        what = f"{log}@{log_offset}"
        value = {
            "retracts": what,
            "feedOffset": given["feed_offset"],
            "equipmentReference": given["equipment_reference"],
        }
        self.rows.append(
            {
                **given,
                "feed_offset": len(self.rows),
                "retracts": True,
                "revision": None,
                "value": json.dumps(value),
            }
        )

    def reading(self, number: str, at: dt.datetime, sequence: int, *, log: str = "", **more: Any) -> int:
        """Add a reading. ``more``: parts of its JSON, such as ``measurements``."""
        value = {
            "equipmentReference": number,
            "device": {"deviceId": f"d-{number}", "bootId": 1, "sequence": sequence, "deviceDateTime": written(at)},
            "measurements": {"supplyTemperature": 2.0, "returnTemperature": 2.5},
            "setpoints": {"temperature": 2.0},
            **more,
        }
        return self.add("reading", number, at, value, log or f"containers.{number}", sequence)

    def alert(self, number: str, at: dt.datetime, log_offset: int, *, log: str = "alerts.tokyo", **more: Any) -> int:
        """Add a state of an alert. ``more``: other values of its JSON."""
        value = {
            "alertID": f"a-{number}",
            "kind": "TEMPERATURE_OUT_OF_BAND",
            "severity": "ALARM",
            "state": "OPENED",
            "equipmentReference": number,
            "raisedAt": "tokyo",
            "eventDateTime": written(at),
            "raisedDateTime": written(at),
            "revision": 0,
            **more,
        }
        return self.add("alert", number, at, value, log, log_offset)

    def digest(self, number: str, at: dt.datetime, revision: int = 0, **more: Any) -> int:
        """Add what a ship's digest tells of a box."""
        value = {
            "kind": "digest",
            "equipmentReference": number,
            "vesselIMONumber": "9321483",
            "readingDateTime": written(at),
            "setpointTemperature": 2.0,
            "supplyTemperature": 2.2,
            "isConnectedToPowerSource": True,
            "isPowered": True,
            "inBand": True,
            "isDisturbed": False,
            "doorOpen": False,
            "immersed": False,
            **more,
            "revision": revision,
        }
        return self.add("digest", number, at, value, f"digests/{number}", 0)

    def hour(self, number: str, start: dt.datetime, revision: int = 0, **more: Any) -> int:
        """Add the conditions of an hour."""
        value = {
            "kind": "conditions",
            "equipmentReference": number,
            "windowStart": written(start),
            "windowEnd": written(start + dt.timedelta(hours=1)),
            "readings": 12,
            "supplyTemperature": {"min": 1.5, "mean": 2.0, "max": 2.5},
            "returnTemperature": {"min": 2.0, "mean": 2.5, "max": 3.0},
            "minutesOutOfBand": 0.0,
            "minutesWithoutPower": 0.0,
            "minutesObserved": 60.0,
            **more,
            "revision": revision,
        }
        return self.add("conditions", number, start, value, f"hours/{number}", int(start.timestamp()) // 3600)

    def milestone(self, number: str, at: dt.datetime, event_id: str, **more: Any) -> int:
        """Add a milestone."""
        value = {
            "kind": "milestone",
            "equipmentReference": number,
            "eventID": event_id,
            "eventType": "EQUIPMENT",
            "equipmentEventTypeCode": "LOAD",
            "eventDateTime": written(at),
            "UNLocationCode": "JPTYO",
            "vesselIMONumber": "9321483",
            "voyageReference": "001E",
            **more,
            "revision": 0,
        }
        return self.add("milestone", number, at, value, f"milestones/{number}/{event_id}", 0)

    def custody(self, number: str, at: dt.datetime, log_offset: int, **more: Any) -> int:
        """Add a grant of custody."""
        value = {
            "entryType": "grant",
            "log": f"containers.{number}",
            "term": 2,
            "fromSite": "tokyo",
            "toSite": "duck-star",
            "event": "LOAD",
            "eventDateTime": written(at),
            **more,
        }
        return self.add("custody", number, at, value, "custody.tokyo", log_offset)

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, schema=CUSTOMER_FEED.plain_schema)

    def write(self, paths: TablePaths, customer: str) -> None:
        """Append all rows to the customer's table, in one commit."""
        create(CUSTOMER_FEED, paths.customer(customer))
        write_deltalake(DeltaTable(paths.customer(customer)), self.table, mode="append")
