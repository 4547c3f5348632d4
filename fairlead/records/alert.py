"""An alert raised by a site's on-board detection, stored in ``alerts.<site>`` and replicated before bulk."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from fairlead.records.reading import Base, Dated, GeoLocation, Time

# Not a fixed list: a site that is older than the one that raised an alert must still be able to read it.
# docs/alerts.md has every kind; STRAYS_WAITING is raised by the bridge itself, the others by rules of edge/alerts.
AlertKind = Annotated[str, msgspec.Meta(pattern="^[A-Z][A-Z0-9_]{0,63}$")]
ALERT_ORDERS: Final = "fairlead.alerts"
"""Topic of ``AlertOrder`` at each site; no log of any stream, written by whoever administers the site."""

Severity = Literal["CRITICAL", "ALARM", "WARNING"]  # DCSA RMO alarmSeverity, without LOG
SEVERITIES: Final[tuple[Severity, ...]] = ("WARNING", "ALARM", "CRITICAL")  # rising
AlertState = Literal["OPENED", "UPDATED", "CLEARED"]


class Evidence(Base, frozen=True, kw_only=True):
    """One reason for an alert: what was seen and how much it counts."""

    name: str
    weight: float
    detail: str = ""


class Cause(Base, frozen=True, kw_only=True):
    """The reading that led to the alert: its log and offset where it is stored, and its device identity.

    ``offset`` is -1 when the alert left before its reading was stored; the identity names the reading for ever.
    """

    log: str
    offset: int
    device_id: str
    boot_id: int
    sequence: int


class Alert(Dated, frozen=True, kw_only=True):
    """One state of one alert. ``alert_id`` is stable over OPENED, UPDATED and CLEARED. ``equipment_reference`` is empty
    where it is about all containers of a ship.

    It names kind, container and the first reading of the condition, so every site that has the same readings
    gives it the same id. ``revision`` is 0 when the alert opens and counts its states; (``alert_id``, ``revision``)
    names this record.
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


class AlertOrder(Dated, frozen=True, kw_only=True):
    """What an operator asks of the bridge of a site: to end an alert that no reading ends, or that was a mistake.

    A record of ``ALERT_ORDERS`` at the site that raised it, keyed by the alert's id. The answer is the
    ``CLEARED`` state in ``alerts.<site>``, whose evidence ``by-hand`` says who, why, and the ``order_id``.

    Args:
        revision: The alert's newest one that the operator saw.
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
