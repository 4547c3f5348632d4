"""Turn the readings of one log into the states of its alerts. Pure.

``advance`` takes the next readings of a log, ``expire`` the passing of time. The result of ``advance`` does not depend
on how a log is cut into calls. It depends on calls of ``expire`` between them in one way only: the next reading ends an
alert SILENCE that ``expire`` has opened. If that reading shows the gap, the states have the same content and revision
as without ``expire``. If it shows none (the readings were only delayed, or the box was in others' care), the alert ends
with reason ``delayed`` or ``left`` and never was one; ``shore.tables.alerts_ashore.compared`` leaves those out.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from fairlead.detection import Deviation, Good
from fairlead.names import parse_log
from fairlead.records.alert import SEVERITIES, AlertKind, AlertState, Severity
from shore.alerts.rules import (
    DAY_MS,
    FORGET_MS,
    LOOK_AGAIN_MS,
    MINUTE_MS,
    RULES,
    AlertReading,
    BoxState,
    Condition,
    Named,
    ShoreRule,
    named,
    new_box,
)

SILENCE: Final[AlertKind] = "SILENCE"
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_MS: Final = -62_135_596_800_000  # 0001-01-01
_LAST_MS: Final = 253_402_300_799_999  # 9999-12-31
_RANK: Final = {severity: rank for rank, severity in enumerate(SEVERITIES)}


class State(NamedTuple):
    """One state of one alert: a row of ``alerts_ashore``, in the order of its columns."""

    alert_id: str
    revision: int
    kind: AlertKind
    severity: Severity
    state: AlertState
    equipment_reference: str
    log: str
    first_offset: int
    worst_offset: int
    log_offset: int
    term: int | None
    since_date_time: dt.datetime
    event_date_time: dt.datetime
    lasted_minutes: float
    latitude: float | None
    longitude: float | None
    reason: str
    detail: str
    condition_id: str


class Expiry(NamedTuple):
    """The result of the passing of time: states, and what is remembered from now on (None: the box is forgotten)."""

    states: list[State]
    box: BoxState | None
    look_again_ms: int = 0


def advance(
    log: str,
    box: BoxState | None,
    readings: Iterable[AlertReading],
    *,
    now_ms: int = 0,
    rules: Sequence[ShoreRule] = RULES,
) -> tuple[BoxState | None, list[State]]:
    """Judge the next readings of a log. Return what is remembered of the box, and the new states of alerts.

    Args:
        box: What is remembered of the readings before; None for the first. It is changed.
        readings: In the order of the log.
        now_ms: Time of the watermark; it only affects when ``expire`` is due.
    """
    states: list[State] = []
    for reading in readings:
        if box is None:
            box = new_box(reading)
        elif not box.is_newer(reading):
            continue
        else:
            states += _resumed(log, box, reading)
            if reading.at_ms - box.at_ms > FORGET_MS:
                box = new_box(reading)
            else:
                box.silent = False
                box.take_reading(reading)
        box.heard_ms = now_ms
        for rule in rules:
            found = rule.judge(box, reading)
            if isinstance(found, Good):
                states += _good(log, box, rule, found)
            elif found is not None:
                states += _fault(log, box, rule, found, reading)
    return box, states


def expire(log: str, box: BoxState, now_ms: int, *, watched: bool) -> Expiry:
    """Return what follows from the watermark having reached ``now_ms``.

    Args:
        watched: Whether shore reports a silence of this box now (``shore.alerts.processor``).
    """
    if now_ms >= max(box.at_ms, box.heard_ms) + FORGET_MS:
        return Expiry(_forgotten(log, box), None)
    if now_ms < box.due_ms:
        return Expiry([], box, box.due_ms)
    if not watched:
        return Expiry([], box, now_ms + LOOK_AGAIN_MS)
    opened = _silence_opened(log, box)
    box.silent = True
    return Expiry([opened], box, box.due_ms)


def told_by_time(log: str, readings: Iterable[AlertReading]) -> Iterator[State]:
    """Yield every state of a silence that ``expire`` may have caused between any two of these readings, and after the
    last: how it opens, how the next reading ends it, and how forgetting the box ends it."""
    box: BoxState | None = None
    for reading in readings:
        if box is not None and box.is_newer(reading):
            yield from (state for state in _resumed(log, _silent(box), reading) if state.kind == SILENCE)
        box, _ = advance(log, box, [reading])
        if box is not None:
            yield _silence_opened(log, box)
            yield from (state for state in _forgotten(log, _silent(box)) if state.kind == SILENCE)


def _silent(box: BoxState) -> BoxState:
    """The box as ``expire`` leaves it after opening a silence."""
    found = copy.copy(box)
    found.silent = True
    return found


def _resumed(log: str, box: BoxState, reading: AlertReading) -> list[State]:
    """What a reading shows about the time since the one before it, which ``box`` still has."""
    gap = reading.at_ms - box.at_ms
    if gap > FORGET_MS:
        return _forgotten(log, box)
    if gap <= box.allowed_ms:
        return [_silence_over(log, box, reading, "delayed", "its news was under way")] if box.silent else []
    if _was_elsewhere(box, reading):
        return [_silence_over(log, box, reading, "left", "it was in others' care meanwhile")] if box.silent else []
    opened = [] if box.silent else [_silence_opened(log, box)]
    return [*opened, _silence_over(log, box, reading, "gap", f"nothing for {gap // MINUTE_MS} min")]


def _was_elsewhere(box: BoxState, reading: AlertReading) -> bool:
    """Whether a whole term of custody lies between two readings, most often from a gate-out to the next gate-in."""
    return box.term is not None and reading.term is not None and reading.term - box.term > 1


def _forgotten(log: str, box: BoxState) -> list[State]:
    """The ends of all open alerts of a box that sent nothing for ``FORGET_MS``."""
    at_ms = box.at_ms + FORGET_MS
    detail = f"nothing for {FORGET_MS // DAY_MS} days"
    states = []
    if box.silent:
        silence = _Alert(SILENCE, box.newest, box.newest.offset, box.at_ms)
        states.append(_state(log, box, silence, 1, "WARNING", "CLEARED", at_ms, "forgotten", detail))
    for kind, condition in sorted(box.conditions.items()):
        if condition.revision >= 0:
            states.append(_ended(log, box, kind, condition, at_ms, "forgotten", detail))
    return states


def _good(log: str, box: BoxState, rule: ShoreRule, found: Good) -> list[State]:
    condition, at_ms = box.conditions.get(rule.kind), box.at_ms
    if condition is None:
        return []
    if condition.revision < 0:
        del box.conditions[rule.kind]
        return []
    if condition.good_since_ms is None or at_ms < condition.good_since_ms:
        condition.good_since_ms = at_ms
    if at_ms - condition.good_since_ms < found.recovery_ms:
        return []
    del box.conditions[rule.kind]
    lasted = max(0, condition.good_since_ms - condition.since_ms) // MINUTE_MS
    return [_ended(log, box, rule.kind, condition, at_ms, "recovered", f"in order again; it lasted {lasted} min")]


def _fault(log: str, box: BoxState, rule: ShoreRule, found: Deviation, reading: AlertReading) -> list[State]:
    condition, at_ms = box.conditions.get(rule.kind), box.at_ms
    if condition is None:
        condition = box.conditions[rule.kind] = Condition(
            at_ms, named(reading), reading.offset, found.size, found.severity
        )
    else:
        condition.good_since_ms = None
        condition.since_ms = min(condition.since_ms, at_ms)  # the clock may have been set back
        if found.size > condition.size:
            condition.size, condition.worst_offset = found.size, reading.offset
        if _RANK[found.severity] > _RANK[condition.severity]:
            condition.severity = found.severity
    reason = "fault"
    if condition.revision >= 0:
        if _RANK[found.severity] <= _RANK[condition.said]:
            return []
        reason = "worse"
    elif at_ms - condition.since_ms < found.dwell_ms:
        return []
    condition.revision += 1
    condition.said = condition.severity
    minutes = (at_ms - condition.since_ms) // MINUTE_MS
    detail = rule.describe(reading) + (f", for {minutes} min" if minutes else "")
    alert = _Alert(rule.kind, condition.first, condition.worst_offset, condition.since_ms)
    state: AlertState = "UPDATED" if condition.revision else "OPENED"
    return [_state(log, box, alert, condition.revision, condition.said, state, at_ms, reason, detail)]


class _Alert(NamedTuple):
    kind: AlertKind
    first: Named
    worst_offset: int
    since_ms: int


def _ended(
    log: str, box: BoxState, kind: AlertKind, condition: Condition, at_ms: int, reason: str, detail: str
) -> State:
    alert = _Alert(kind, condition.first, condition.worst_offset, condition.since_ms)
    return _state(log, box, alert, condition.revision + 1, condition.said, "CLEARED", at_ms, reason, detail)


def _silence_opened(log: str, box: BoxState) -> State:
    """The silence opens when the next reading was due. It depends only on earlier readings, so all callers get the
    same."""
    usual = box.interval_ms // MINUTE_MS
    detail = f"nothing for {box.allowed_ms // MINUTE_MS} min" + (f", usually every {usual} min" if usual else "")
    alert = _Alert(SILENCE, box.newest, box.newest.offset, box.at_ms)
    return _state(log, box, alert, 0, "WARNING", "OPENED", box.at_ms + box.allowed_ms, "fault", detail)


def _silence_over(log: str, box: BoxState, reading: AlertReading, reason: str, detail: str) -> State:
    alert = _Alert(SILENCE, box.newest, box.newest.offset, box.at_ms)
    ended = _state(log, box, alert, 1, "WARNING", "CLEARED", reading.at_ms, reason, detail)
    return ended._replace(
        log_offset=reading.offset, term=reading.term, latitude=reading.latitude, longitude=reading.longitude
    )


def _state(
    log: str,
    box: BoxState,
    alert: _Alert,
    revision: int,
    severity: Severity,
    state: AlertState,
    at_ms: int,
    reason: str,
    detail: str,
) -> State:
    number = number_of(log)
    first = alert.first
    return State(
        alert_id=f"{alert.kind}.{number}@{first.offset}",
        revision=revision,
        kind=alert.kind,
        severity=severity,
        state=state,
        equipment_reference=number,
        log=log,
        first_offset=first.offset,
        worst_offset=alert.worst_offset,
        log_offset=box.newest.offset,
        term=box.term,
        since_date_time=_time(alert.since_ms),
        event_date_time=_time(at_ms),
        lasted_minutes=(at_ms - alert.since_ms) / MINUTE_MS,
        latitude=box.latitude,
        longitude=box.longitude,
        reason=reason,
        detail=detail,
        condition_id=f"{alert.kind}.{number}.{first.device}.{first.boot}.{first.sequence}",
    )


def number_of(log: str) -> str:
    """Return the container number in a log's name; the name itself where it has none."""
    name = parse_log(log)
    return name.key if name is not None else log


def _time(at_ms: int) -> dt.datetime:
    """A device's clock may say anything. Clamp it to the years 1 to 9999, which ``datetime`` can hold."""
    return _EPOCH + dt.timedelta(milliseconds=max(_FIRST_MS, min(at_ms, _LAST_MS)))
