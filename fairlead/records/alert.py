"""An alert raised by a site's detection, stored in ``alerts.<site>`` and replicated before bulk."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from fairlead.records.reading import Base, Dated, GeoLocation, Time

# A pattern and not a fixed list: a site with an older version than the one that raised an alert must still be able to
# read it. docs/alerts.md has every kind; the bridge itself raises STRAYS_WAITING, the rules of edge/alerts the others.
AlertKind = Annotated[str, msgspec.Meta(pattern="^[A-Z][A-Z0-9_]{0,63}$")]
ALERT_ORDERS: Final = "fairlead.alerts"
"""Topic of ``AlertOrder`` at each site. It is not the log of any stream; the site's administrators write it."""

RAISED_BY_SHORE: Final = "shore"
"""``raised_at`` of the alerts that shore finds. Shore may move to another site, and its alerts stay the same."""

KINDS: Final = (
    *("OVERBOARD", "POWER_LOST", "SETPOINT", "TEMPERATURE", "HUMIDITY", "O2", "CO2", "UNIT_ALARM", "DOOR_OPEN"),
    *("INSPECTION", "SILENCE", "NOT_HEARD_SINCE_DEPARTURE", "CLOCK", "DEVICE_CONFLICT", "DEVICE_MOVED"),
    *("STRAYS_WAITING", "DEVICE_FLOOD", "BOOKING_REUSED", "LOG_BLOCKED", "LEDGER_NOT_BELIEVED"),
)
"""The kinds that this version's bridges raise, for checking what people write. A reader accepts others, too."""

OVERBOARD: Final = "OVERBOARD"
"""The kind of the alert about a box that has fallen into the sea. While it is open, the box is no cargo of its ship."""

NOT_HEARD: Final = "NOT_HEARD_SINCE_DEPARTURE"
"""The kind of the alert about a box that is aboard by custody and was not heard since its ship left a port."""
LEFT_PORT: Final = "left-port"
"""The evidence of such an alert whose detail is the UN/LOCODE of that port."""

Severity = Literal["CRITICAL", "ALARM", "WARNING"]  # DCSA RMO alarmSeverity, without LOG
SEVERITIES: Final[tuple[Severity, ...]] = ("WARNING", "ALARM", "CRITICAL")  # in rising order
AlertState = Literal["OPENED", "UPDATED", "CLEARED"]


class Evidence(Base, frozen=True, kw_only=True):
    """One reason for an alert: the observation and its weight."""

    name: str
    weight: float
    detail: str = ""


class Cause(Base, frozen=True, kw_only=True):
    """The reading that caused the alert: the log and offset where it is stored, and its device identity.

    ``offset`` is -1 when the alert was sent before its reading was stored; the identity never changes.
    """

    log: str
    offset: int
    device_id: str
    boot_id: int
    sequence: int


class Alert(Dated, frozen=True, kw_only=True):
    """One state of one alert.

    ``alert_id`` is the same for OPENED, UPDATED and CLEARED. It is made of the kind, the container and the first
    reading of the condition, so every site with the same readings gives the alert the same id. ``revision`` is 0 when
    the alert opens and counts its states; (``alert_id``, ``revision``) identifies this record. ``equipment_reference``
    is empty for an alert about all containers of a site. ``acknowledged_by`` is who has said that the alert is seen to,
    with ``acknowledgement``, if the person gave one; all later states have them too.
    """

    alert_id: str = msgspec.field(name="alertID")
    kind: AlertKind
    severity: Severity
    state: AlertState
    equipment_reference: str
    raised_at: str  # the site that raised it
    event_date_time: Time  # device time of the reading that caused this state
    raised_date_time: Time  # wall time at the site
    vessel_imo_number: str | None = msgspec.field(default=None, name="vesselIMONumber")
    geo_location: GeoLocation | None = None
    evidence: tuple[Evidence, ...] = ()
    causes: tuple[Cause, ...] = ()
    revision: int = 0
    acknowledged_by: str = ""
    acknowledged_date_time: Time | None = None
    acknowledgement: str = ""


def alert_key(alert: Alert) -> tuple[str, str]:
    """Return what tells an alert from all others: the site that raised it, and its id there."""
    return alert.raised_at, alert.alert_id


def is_own_alert(alert: Alert, log: str) -> bool:
    """Return whether an alert stands in the log of the site that it names.

    A site writes only alerts of its own. Another's name in its log is a forgery, which readers leave out.
    """
    return log == f"alerts.{alert.raised_at}"


class AlertOrder(Dated, frozen=True, kw_only=True):
    """An operator's order to a site's bridge to end an alert that no reading ends or that was a mistake, or to
    acknowledge an alert.

    It is a record of ``ALERT_ORDERS`` at the site that raised the alert, keyed by the alert's id. The answer is the
    ``CLEARED`` state in ``alerts.<site>``, whose evidence ``by-hand`` has the operator, the reason and the
    ``order_id``.

    Args:
        acknowledges: Id of the alert, if the order acknowledges it. ``alert_id`` is empty then, so that a bridge of an
            earlier version does not clear the alert. The answer is an ``UPDATED`` state with ``acknowledged_by``.
        revision: The alert's newest revision that the operator saw.
    """

    order_id: str
    alert_id: str = msgspec.field(name="alertID")
    equipment_reference: str
    kind: AlertKind
    at_site: str
    ordered_date_time: Time
    ordered_by: str
    reason: str
    revision: int = 0
    acknowledges: str = ""
