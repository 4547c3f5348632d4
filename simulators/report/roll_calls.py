"""Compare the ships' roll calls, as their logs have them ashore, with what was published. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from edge.alerts.thresholds import default_thresholds
from fairlead.records.alert import NOT_HEARD, Alert, alert_key
from fairlead.records.ship import RollCall, unpack_numbers
from simulators.report.model import RollCallFigures
from simulators.voyage.truth import DepartureTruth, OverboardLoss

_NEVER: Final = dt.datetime.max.replace(tzinfo=dt.UTC)
_LATEST: Final = dt.timedelta(milliseconds=default_thresholds().default.roll_call.at_most)


def roll_call_figures(
    departures: Sequence[DepartureTruth],
    lost: Sequence[OverboardLoss],
    records: Iterable[RollCall],
    alerts: Mapping[str, Sequence[Alert]],
    sunk: Collection[str] = (),
) -> tuple[RollCallFigures, ...]:
    """Return the figures of each departure, in order.

    Args:
        records: The roll calls of all ships, each ship's in the order of its log.
        alerts: By UN/LOCODE, the alerts that the sites there have; those of headquarters under "".
        sunk: Ships that were lost, perhaps with a roll call that had not come ashore.
    """
    of_departure: dict[str, list[RollCall]] = {}
    for record in records:
        of_departure.setdefault(record.departure_id, []).append(record)
    found = []
    for each in departures:
        later = [other.time for other in departures if other.ship == each.ship and other.time > each.time]
        told = of_departure.get(each.event_id, [])
        found.append(_figures(each, min(later, default=_NEVER), lost, told, alerts, sunk))
    return tuple(found)


def _figures(
    sailing: DepartureTruth,
    sails_again: dt.datetime,
    lost: Sequence[OverboardLoss],
    records: Sequence[RollCall],
    alerts: Mapping[str, Sequence[Alert]],
    sunk: Collection[str],
) -> RollCallFigures:
    due = sailing.until >= sailing.time + _LATEST and sailing.ship not in sunk
    if not records:
        return RollCallFigures(ship=sailing.ship, port=sailing.port, departed=sailing.time, due=due)
    first, newest = records[0], records[-1]
    missing = unpack_numbers(first.missing)
    complete = newest.complete_date_time
    at_port, at_headquarters = (
        set(_alerted(alerts.get(where, ()), sailing, sails_again)) for where in (sailing.port, "")
    )
    return RollCallFigures(
        ship=sailing.ship,
        port=sailing.port,
        departed=sailing.time,
        state=newest.state,
        aboard=first.aboard,
        heard=first.heard,
        overboard=first.overboard,
        unlisted=tuple(sorted(unpack_numbers(first.unlisted))),
        missing=tuple(sorted(missing)),
        truly_missing=tuple(sorted(sailing.missing(first.called_date_time, lost))),
        alerted=len(missing & at_port & at_headquarters),
        minutes=None if complete is None else (complete - sailing.time) / dt.timedelta(minutes=1),
    )


def _alerted(alerts: Sequence[Alert], sailing: DepartureTruth, sails_again: dt.datetime) -> Iterable[str]:
    """Yield the boxes with an alert of the ship, open during this sailing, that says that they are not heard; all of
    them for one about all."""
    over = {alert_key(each) for each in alerts if each.state == "CLEARED" and each.event_date_time < sailing.time}
    for alert in alerts:
        if alert.raised_at != sailing.ship or alert.kind not in (NOT_HEARD, "SILENCE"):
            continue
        if alert.event_date_time < sails_again and alert_key(alert) not in over:
            yield from [alert.equipment_reference] if alert.equipment_reference else sailing.aboard
