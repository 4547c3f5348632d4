"""Operators' work with alerts: read them from a site's logs, acknowledge or clear one, draft the report of losses.

To acknowledge or clear an alert is an order to the bridge that raised it. Mistakes are refused, if possible, before the
order is written; an order that is written stands.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import getpass
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec

from edge.alerts.loss_report import LostContainerReport, ReportType, draft, incident_of
from edge.alerts.rules.bookings import Bookings
from edge.alerts.site_alerts import KINDS as SITE_KINDS
from edge.alerts.state import order_of
from fairlead.errors import ConfigurationError, RefusedError, UnavailableError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import extents, sweep
from fairlead.kafka.convention import is_data
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.order_topic import TIMEOUT, append_records
from fairlead.kafka.protocol.types import TP
from fairlead.records import UNREADABLE, decoder, encode
from fairlead.records.alert import ALERT_ORDERS, OVERBOARD, RAISED_BY_SHORE, Alert, AlertOrder, alert_key, is_own_alert
from fairlead.records.booking import Booking
from fairlead.records.ship import Environment
from topologies.model import SiteKind, Topology

T = TypeVar("T")

_NAMED = 10  # most alerts that an error names


async def read_alerts(cluster: Cluster, raised_at: str | None = None) -> list[Alert]:
    """Return every state of every alert in a site's Kafka, in the order of their logs.

    What a site writes in another's name is left out.

    Args:
        raised_at: Only the alerts that this site raised.
    """
    wanted = f"alerts.{raised_at}" if raised_at is not None else "alerts."
    return await _read(cluster, lambda log: log == wanted or (raised_at is None and log.startswith(wanted)), Alert)


async def make_report(
    cluster: Cluster, topology: Topology, wanted: str, report_type: ReportType
) -> LostContainerReport:
    """Return the report of the incident that an alert belongs to.

    Args:
        wanted: The alert's id, or the number of the container.

    Raises:
        ConfigurationError: this Kafka has no such overboard alert, the alert was cleared, or it was raised ashore.
    """
    alerts = await read_alerts(cluster)
    overboard = [alert for alert in alerts if alert.kind == OVERBOARD]
    found = [alert for alert in overboard if wanted in (alert.alert_id, alert.equipment_reference)]
    if not found:
        ids = sorted({alert.alert_id for alert in overboard})
        raise ConfigurationError(
            f"no overboard alert {wanted!r} here",
            hint=f"known: {', '.join(ids[:_NAMED]) or '(none)'}; another site may know more (--site)",
            alerts=ids,
        )
    # A box may have alerts of several sites: one that is open counts before those that are over, then the newest.
    newest = max(newest_states(found).values(), key=lambda alert: (alert.state != "CLEARED", alert.raised_date_time))
    if newest.state == "CLEARED":
        raise ConfigurationError(
            f"alert {newest.alert_id} was cleared: the container is not lost",
            hint="fairlead alert list --all shows how it ended",
        )
    spec = topology.sites.get(newest.raised_at)
    if spec is not None and spec.kind is not SiteKind.SHIP:
        raise ConfigurationError(
            f"alert {newest.alert_id} was raised ashore, at {newest.raised_at}; SOLAS asks for reports of ships only",
            hint="tell the harbour master; fairlead alert list shows what was seen",
            alert=newest.alert_id,
        )
    opened = next(alert for alert in found if alert_key(alert) == alert_key(newest))
    history = incident_of(opened, alerts)
    imo = next((alert.vessel_imo_number for alert in history if alert.vessel_imo_number), None)
    environment = await _read(cluster, lambda log: log == f"ships.{imo}.environment", Environment)
    bookings = await _read(cluster, lambda log: log.startswith("bookings."), Booking)
    return draft(
        history,
        ship_name=spec.title or newest.raised_at if spec is not None else newest.raised_at,
        environment=environment,
        bookings=_in_force(history, bookings),
        report_type=report_type,
    )


def _in_force(history: Iterable[Alert], changes: Iterable[Booking]) -> dict[str, Booking]:
    """Return the booking of each container of an incident at the time of its loss."""
    known = Bookings()
    for change in changes:
        known.apply(change)
    found: dict[str, Booking] = {}
    for alert in history:
        booking = known.of(alert.equipment_reference, int(alert.event_date_time.timestamp() * 1000))
        if booking is not None:
            found.setdefault(alert.equipment_reference, booking)
    return found


async def _read(cluster: Cluster, wanted: Callable[[str], bool], kind: type[T]) -> list[T]:
    """Return every entry of some logs, each log in order, without entries that this version cannot decode."""
    decode = decoder(kind).decode
    logs = [TP(name) for name in await cluster.topics(refresh=True) if wanted(name)]
    by_log: dict[str, list[T]] = {}
    async for log, records in sweep(cluster, await extents(cluster, logs)):
        entries = by_log.setdefault(log.topic, [])
        for record in records:
            if record.value is None or not is_data(record):
                continue
            try:
                entry = decode(record.value)
            except UNREADABLE:
                continue
            if not isinstance(entry, Alert) or is_own_alert(entry, log.topic):
                entries.append(entry)
    return [entry for name in sorted(by_log) for entry in by_log[name]]


WAIT: Final = 30.0
_PAUSE: Final = 0.3


def newest_states(alerts: Iterable[Alert]) -> dict[tuple[str, str], Alert]:
    """Return the last of these states of each alert, by ``alert_key``; in the order of a log it is the newest."""
    return {alert_key(alert): alert for alert in alerts}


def chosen(alerts: Sequence[Alert], wanted: str, site: str, *, acknowledge: bool = False) -> Alert:
    """Return the open alert, raised at ``site``, that an operator wants to clear or to acknowledge.

    Args:
        wanted: An alert's id, or the number or log of a container with exactly one open alert.

    Raises:
        ConfigurationError: there is no such alert here, or more than one.
        RefusedError: the alert is over, was raised at another site, or is of a kind that only its cause can end; or it
            is acknowledged already.
    """
    # Of alerts of several sites with one id, that of this site counts, else the last one.
    newest = {each.alert_id: each for each in sorted(alerts, key=lambda each: each.raised_at == site)}
    if (named := newest.get(wanted)) is None:
        number = wanted.rpartition(".")[2]
        found = [a for a in newest.values() if a.equipment_reference == number and a.state != "CLEARED" and number]
        if len(found) != 1:
            some = [each.alert_id for each in found] or [a.alert_id for a in newest.values() if a.state != "CLEARED"]
            raise ConfigurationError(
                f"{site} knows {len(found)} open alerts of {wanted!r}" if found else f"no open alert {wanted!r} here",
                hint=f"give the id of one: {', '.join(sorted(some)[:_NAMED]) or '(none is open)'}",
                alerts=sorted(some),
            )
        named = found[0]
    if named.state == "CLEARED":
        why = "; ".join(each.detail for each in named.evidence[:1] if each.detail)
        raise RefusedError(
            f"alert {named.alert_id} was cleared already" + (f": {why}" if why else ""), alert=named.alert_id
        )
    if named.raised_at == RAISED_BY_SHORE:
        raise RefusedError(
            f"shore has found alert {named.alert_id}: it ends when the readings are good again, or when a site raises "
            "an alert about the same",
            hint="orders go to the bridge that raised an alert, and no bridge has raised this one",
            alert=named.alert_id,
        )
    if named.raised_at != site:
        raise RefusedError(
            f"alert {named.alert_id} was raised at {named.raised_at}; only the bridge there can change it",
            hint=f"give --site {named.raised_at}",
            alert=named.alert_id,
            site=named.raised_at,
        )
    if acknowledge:
        if named.acknowledged_by:
            raise RefusedError(
                f"alert {named.alert_id} was acknowledged already, by {named.acknowledged_by}", alert=named.alert_id
            )
        return named
    if named.kind in SITE_KINDS:
        raise RefusedError(
            f"alert {named.alert_id} ends only when its cause is gone",
            hint="fairlead custody strays shows what waits for which log; docs/alerts.md, what ends each kind of alert",
            alert=named.alert_id,
        )
    return named


def order_for(
    alert: Alert, reason: str, now: dt.datetime, *, acknowledge: bool = False, ordered_by: str = ""
) -> AlertOrder:
    """Return the order that clears an alert, or acknowledges it.

    Args:
        ordered_by: Who orders it; the user of this process when empty.

    Raises:
        RefusedError: the reason to clear it is empty.
    """
    if not acknowledge and not reason.strip():
        raise RefusedError(f"cannot clear {alert.alert_id}: a reason is needed", hint="--reason 'gone round to look'")
    return AlertOrder(
        order_id=f"alert-{uuid.uuid4().hex}",
        alert_id="" if acknowledge else alert.alert_id,
        acknowledges=alert.alert_id if acknowledge else "",
        equipment_reference=alert.equipment_reference,
        kind=alert.kind,
        at_site=alert.raised_at,
        ordered_date_time=now,
        ordered_by=ordered_by or getpass.getuser(),
        reason=reason.strip(),
        revision=alert.revision,
    )


async def place_order(cluster: Cluster, endpoint: KafkaEndpoint, order: AlertOrder, wait: float) -> Alert:
    """Write an order, wait for the bridge, and return the alert's last state.

    Raises:
        UnavailableError: the order is written, and the bridge has not answered within ``wait`` seconds; the order
            stands.
        FairleadError: the order could not be written.
    """
    alert_id = order.acknowledges or order.alert_id
    record = alert_id.encode(), encode(order)
    landed = await asyncio.to_thread(
        append_records, endpoint, ALERT_ORDERS, [record], client_id="fairlead-alert", timeout=TIMEOUT
    )
    if not landed:
        raise UnavailableError(f"{endpoint.site}'s Kafka did not confirm the order", hint="fairlead status")
    until = time.monotonic() + wait
    while True:
        newest = newest_states(await read_alerts(cluster, endpoint.site)).get((endpoint.site, alert_id))
        if newest is not None and (newest.state == "CLEARED" or (order.acknowledges and newest.acknowledged_by)):
            return newest
        if time.monotonic() > until:
            raise UnavailableError(
                f"the order is written at {endpoint.site}, but its bridge has not answered within {wait:g} s; the "
                "bridge carries it out when it runs",
                hint=f"fairlead status; fairlead bridge --site {endpoint.site}",
                order_id=order.order_id,
                site=endpoint.site,
            )
        await asyncio.sleep(_PAUSE)


def answer_body(alert: Alert, order: AlertOrder, ended: Alert | None) -> dict[str, Any]:
    """Return the body that ``--json`` prints: the outcome, the alert and the order."""
    outcome: Literal["cleared", "acknowledged", "over", "not done"] = "not done"
    if ended is not None and order.acknowledges:
        outcome = "acknowledged" if ended.acknowledged_date_time == order.ordered_date_time else "over"
    elif ended is not None:
        outcome = "cleared" if order_of(ended) == order.order_id else "over"
    return {
        "outcome": outcome,
        "alert": msgspec.to_builtins(ended or alert),
        "order": msgspec.to_builtins(order),
    }
