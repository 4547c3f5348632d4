"""The readings behind a container's alerts: what each alert says of its causes, looked up in table ``readings``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from shore.report.slices import Row, Slices

_REFERENCES = pa.schema(
    [
        ("source", pa.string()),
        ("alert_id", pa.string()),
        ("role", pa.string()),
        ("log", pa.string()),
        ("log_offset", pa.int64()),
        ("device_id", pa.string()),
        ("boot_id", pa.int64()),
        ("sequence", pa.int64()),
    ]
)


def prepare(slices: Slices) -> None:
    """Make the table ``alert_readings``: how an alert names a reading (``role``), where in the logs, what it measured.

    One row per alert and reading. An alert raised by a site names its causes by log, offset and identity; one that left
    the ship before its reading was stored has the identity alone. One raised ashore names the first, the worst and the
    newest reading by offset. A reading that is not in table ``readings`` (it has not come ashore yet) has no
    ``device_date_time``.
    """
    references = [*_of_sites(slices), *_of_shore(slices)]
    slices.put("alert_references", pa.Table.from_pylist(references, schema=_REFERENCES))
    slices.run(
        """
        create temp table alert_readings as
        select a.source, a.alert_id, a.role,
            coalesce(r.log, a.log) as log, coalesce(r.log_offset, a.log_offset) as log_offset, r.term,
            coalesce(r.device_id, a.device_id) as device_id, coalesce(r.boot_id, a.boot_id) as boot_id,
            coalesce(r.sequence, a.sequence) as sequence,
            r.* exclude (log, log_offset, term, equipment_reference, device_id, boot_id, sequence, payload)
        from alert_references a
        left join all_readings r on
            case when a.log_offset is not null then r.log = a.log and r.log_offset = a.log_offset
            else r.device_id = a.device_id and r.boot_id = a.boot_id and r.sequence = a.sequence end
        qualify row_number() over (
            partition by a.source, a.alert_id, a.role, a.log, a.log_offset, a.device_id, a.boot_id, a.sequence
            order by r.log, r.log_offset
        ) = 1
        """
    )


def rows(slices: Slices) -> list[Row]:
    """The table ``alert_readings``, alert by alert in order of time."""
    return slices.rows(
        "select * from alert_readings order by source, alert_id, device_date_time nulls last, role, log_offset"
    )


def _of_sites(slices: Slices) -> Iterator[dict[str, Any]]:
    seen = set()
    for row in slices.rows("select alert_id, causes from alerts where problem is null order by log, log_offset"):
        for cause in json.loads(row["causes"] or "[]"):
            offset = cause.get("offset", -1)
            identity = (cause.get("deviceId"), cause.get("bootId"), cause.get("sequence"))
            if (row["alert_id"], identity) in seen:
                continue
            seen.add((row["alert_id"], identity))
            yield {
                "source": "site",
                "alert_id": row["alert_id"],
                "role": "cause",
                "log": cause.get("log"),
                "log_offset": offset if offset >= 0 else None,
                "device_id": identity[0],
                "boot_id": identity[1],
                "sequence": identity[2],
            }


def _of_shore(slices: Slices) -> list[Row]:
    return slices.rows(
        """
        select distinct 'shore' as source, alert_id, role, log, log_offset,
            null::varchar as device_id, null::bigint as boot_id, null::bigint as sequence
        from (
            select alert_id, log, 'first' as role, first_offset as log_offset from alerts_ashore
            union all select alert_id, log, 'worst', arg_max(worst_offset, revision) from alerts_ashore group by all
            union all select alert_id, log, 'newest', arg_max(log_offset, revision) from alerts_ashore group by all
        )
        where log_offset is not null
        order by all
        """
    )
