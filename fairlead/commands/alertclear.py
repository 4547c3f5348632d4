"""``fairlead alert clear``: an order to the bridge that raised an alert, and its answer in the site's own alerts.

What can be seen to be wrong is refused before anything is written. The order stands, whatever comes after.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import getpass
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

from edge.detection.stating import order_of
from edge.strayage import KIND as STRAYS_WAITING
from fairlead.commands.alertlogs import read_alerts
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import ConfigurationError, RefusedError, UnavailableError
from fairlead.order_topic import TIMEOUT, append_records
from fairlead.records import encode
from fairlead.records.alert import ALERT_ORDERS, Alert, AlertOrder
from fairlead.wire.cluster import Cluster

WAIT: Final = 30.0
_PAUSE: Final = 0.3
_NAMED: Final = 10  # alerts that an error names


def newest_states(alerts: Iterable[Alert]) -> dict[str, Alert]:
    """The newest state of each alert, by its id."""
    return {alert.alert_id: alert for alert in alerts}


def chosen(alerts: Sequence[Alert], wanted: str, site: str) -> Alert:
    """The alert that a person means, open and raised at ``site``.

    Args:
        wanted: An alert's id, a container's number, or a container's log; the last two where one alert of it is open.

    Raises:
        ConfigurationError: there is no such alert here, or more than one.
        RefusedError: it is over, was raised elsewhere, or is of a kind that ends by itself only.
    """
    newest = newest_states(alerts)
    if (named := newest.get(wanted)) is None:
        number = wanted.rpartition(".")[2]
        found = [a for a in newest.values() if a.equipment_reference == number and a.state != "CLEARED" and number]
        if len(found) != 1:
            some = [each.alert_id for each in found] or [a.alert_id for a in newest.values() if a.state != "CLEARED"]
            raise ConfigurationError(
                f"{len(found)} open alerts of {wanted!r} are known at {site}"
                if found
                else f"no alert is {wanted!r} here",
                hint=f"give the id of one: {', '.join(sorted(some)[:_NAMED]) or '(none is open)'}",
                alerts=sorted(some),
            )
        named = found[0]
    if named.state == "CLEARED":
        why = "; ".join(each.detail for each in named.evidence[:1] if each.detail)
        raise RefusedError(
            f"alert {named.alert_id} is over already" + (f": {why}" if why else ""), alert=named.alert_id
        )
    if named.raised_at != site:
        raise RefusedError(
            f"alert {named.alert_id} was raised at {named.raised_at}; only the bridge there can end it",
            hint=f"fairlead alert clear {named.alert_id} --at {named.raised_at} --reason TEXT",
            alert=named.alert_id,
            site=named.raised_at,
        )
    if named.kind == STRAYS_WAITING:
        raise RefusedError(
            f"alert {named.alert_id} ends when the readings are in their log, and only then",
            hint="fairlead custody strays tells what waits for what",
            alert=named.alert_id,
        )
    return named


def order_for(alert: Alert, reason: str, now: dt.datetime) -> AlertOrder:
    """The order that ends an alert.

    Raises:
        RefusedError: there is no reason.
    """
    if not reason.strip():
        raise RefusedError(f"cannot clear {alert.alert_id}: a reason is needed", hint="--reason 'gone round to look'")
    return AlertOrder(
        order_id=f"alert-{uuid.uuid4().hex}",
        alert_id=alert.alert_id,
        equipment_reference=alert.equipment_reference,
        kind=alert.kind,
        at_site=alert.raised_at,
        ordered_date_time=now,
        ordered_by=getpass.getuser(),
        reason=reason.strip(),
        revision=alert.revision,
    )


async def give(cluster: Cluster, endpoint: KafkaEndpoint, order: AlertOrder, wait: float) -> Alert:
    """Write an order and return the alert's last state.

    Raises:
        UnavailableError: the order is written, and its bridge has not answered within ``wait`` seconds; it stands.
        FairleadError: the order could not be written.
    """
    record = order.alert_id.encode(), encode(order)
    landed = await asyncio.to_thread(
        append_records, endpoint, ALERT_ORDERS, [record], client_id="fairlead-alert", timeout=TIMEOUT
    )
    if not landed:
        raise UnavailableError(f"{endpoint.site}'s Kafka did not confirm the order", hint="fairlead status")
    until = time.monotonic() + wait
    while True:
        newest = newest_states(await read_alerts(cluster, endpoint.site)).get(order.alert_id)
        if newest is not None and newest.state == "CLEARED":
            return newest
        if time.monotonic() > until:
            raise UnavailableError(
                f"the order is written at {endpoint.site}, but its bridge has not answered within {wait:g} s; it "
                "stands, and will be carried out when the bridge runs",
                hint=f"fairlead status; fairlead bridge --at {endpoint.site}",
                order_id=order.order_id,
                site=endpoint.site,
            )
        await asyncio.sleep(_PAUSE)


def clear_body(alert: Alert, order: AlertOrder, ended: Alert | None) -> dict[str, Any]:
    """What ``--json`` prints: the alert, the order, and what became of it."""
    outcome: Literal["cleared", "over", "not done"] = "not done"
    if ended is not None:
        outcome = "cleared" if order_of(ended) == order.order_id else "over"
    return {
        "outcome": outcome,
        "alert": msgspec.to_builtins(ended or alert),
        "order": msgspec.to_builtins(order),
    }
