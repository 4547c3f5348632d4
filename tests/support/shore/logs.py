"""Readings of one log for tests of alert detection ashore: built by hand, or drawn by Hypothesis."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from hypothesis import strategies as st

from shore.alerts.rules import DAY_MS, HOUR_MS, MINUTE_MS, AlertReading

BOX: Final = "BIGU0000016"
LOG: Final = f"containers.{BOX}"
T0: Final = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
T0_MS: Final = 1_772_323_200_000


def at(reading: AlertReading) -> dt.datetime:
    return T0 + dt.timedelta(milliseconds=reading.at_ms - T0_MS)


def reading(minute: float, **more: Any) -> AlertReading:
    """Return a reading in order, so many minutes after ``T0``; offset and sequence default to the minute plus one."""
    values: dict[str, Any] = {
        "offset": int(minute) + 1,
        "term": 1,
        "device": "d",
        "boot": 1,
        "sequence": int(minute) + 1,
        "at_ms": T0_MS + int(minute * MINUTE_MS),
        "supply_temperature": 4.0,
        "return_temperature": 4.5,
        "relative_humidity": 85.0,
        "setpoint_temperature": 4.0,
        "setpoint_relative_humidity": 85.0,
        "is_defrosting": False,
        "is_pre_trip_inspection": False,
        "is_connected_to_power_source": True,
        "is_powered": True,
        "latitude": 35.5,
        "longitude": 139.75,
    }
    return AlertReading(**(values | more))


def every(minutes: int, until: int, *, since: int = 0, **more: Any) -> list[AlertReading]:
    """Return a reading every so many minutes, from ``since`` to before ``until``."""
    return [reading(minute, **more) for minute in range(since, until, minutes)]


_GAPS = st.one_of(
    st.integers(1, 20).map(lambda n: n * MINUTE_MS),
    st.integers(1, 8).map(lambda n: n * 15 * MINUTE_MS),
    st.sampled_from([-3 * HOUR_MS, -5 * MINUTE_MS, 0, 5 * HOUR_MS, 30 * HOUR_MS, 179 * DAY_MS, 200 * DAY_MS]),
)
_AIR = st.sampled_from([None, 4.0, 5.9, 6.5, 10.0, -1.0, -18.0])
_STEPS = st.fixed_dictionaries(
    {
        "gap": _GAPS,
        "device": st.sampled_from(["d", "d", "d", "d", "e"]),
        "reboot": st.sampled_from([False] * 9 + [True]),
        "late": st.sampled_from([0] * 8 + [1, 3]),
        "values": st.fixed_dictionaries(
            {
                "supply_temperature": _AIR,
                "return_temperature": _AIR,
                "relative_humidity": st.sampled_from([None, 85.0, 65.0, 20.0]),
                "setpoint_temperature": st.sampled_from([4.0, 4.0, 4.0, -18.0, None]),
                "setpoint_relative_humidity": st.sampled_from([85.0, None]),
                "is_defrosting": st.sampled_from([False] * 5 + [True]),
                "is_pre_trip_inspection": st.sampled_from([False] * 5 + [True]),
                "is_connected_to_power_source": st.sampled_from([True, True, False]),
                "is_powered": st.sampled_from([True, True, False]),
                "latitude": st.sampled_from([None, 1.25]),
                "longitude": st.sampled_from([None, 103.75]),
                "o2": st.sampled_from([None, 2.5, 9.0, 21.0]),
                "co2": st.sampled_from([None, 2.5, 0.0]),
                "setpoint_o2": st.sampled_from([2.5, None]),
                "setpoint_co2": st.sampled_from([2.5, None]),
            }
        ),
    }
)


def _log(steps: list[dict[str, Any]]) -> list[AlertReading]:
    now, boot, sequence = T0_MS, 1, 10
    found = []
    for offset, step in enumerate(steps, 1):
        now += step["gap"]
        boot += step["reboot"]
        sequence += 1
        found.append(
            AlertReading(
                offset=offset * 2,
                term=offset // 5 if offset % 7 else offset,  # jumps now and then
                device=step["device"],
                boot=boot,
                sequence=sequence - step["late"],
                at_ms=now - step["late"] * 10 * MINUTE_MS,
                **step["values"],
            )
        )
    return found


logs: st.SearchStrategy[list[AlertReading]] = st.lists(_STEPS, min_size=1, max_size=40).map(_log)
"""Any log: several devices, repeats, readings that come late, clocks set back, silences of hours and of months."""
