"""What ``fairlead alert`` reads out of a site's logs: alerts, and what a report of lost containers is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from edge.detection.bookings import Bookings
from edge.detection.lost import LostContainerReport, ReportType, draft, incident_of
from fairlead.errors import ConfigurationError
from fairlead.records import UNREADABLE, decoder
from fairlead.records.alert import Alert
from fairlead.records.booking import Booking
from fairlead.records.ship import Environment
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import is_data
from fairlead.wire.sweep import extents, sweep
from fairlead.wire.types import TP
from topologies.model import Topology

T = TypeVar("T")

_NAMED = 10  # alerts that an error names


async def read_alerts(cluster: Cluster, raised_at: str | None = None) -> list[Alert]:
    """Every state of every alert that a site has, or of those raised at one site; each site's in their order."""
    wanted = f"alerts.{raised_at}" if raised_at is not None else "alerts."
    return await _read(cluster, lambda log: log == wanted or (raised_at is None and log.startswith(wanted)), Alert)


async def make_report(
    cluster: Cluster, topology: Topology, wanted: str, report_type: ReportType
) -> LostContainerReport:
    """The report of the incident that an alert belongs to.

    Args:
        wanted: The alert's id, or the number of the container.

    Raises:
        ConfigurationError: there is no such overboard alert here, or it has been cleared.
    """
    alerts = await read_alerts(cluster)
    overboard = [alert for alert in alerts if alert.kind == "OVERBOARD"]
    found = [alert for alert in overboard if wanted in (alert.alert_id, alert.equipment_reference)]
    if not found:
        ids = sorted({alert.alert_id for alert in overboard})
        raise ConfigurationError(
            f"no overboard alert is {wanted!r} here",
            hint=f"there are: {', '.join(ids[:_NAMED]) or '(none)'}; another site may know more (--at)",
            alerts=ids,
        )
    newest = found[-1]
    if newest.state == "CLEARED":
        raise ConfigurationError(
            f"alert {newest.alert_id} has been cleared: the container is not lost",
            hint="fairlead alert list --all shows how it ended",
        )
    opened = next(alert for alert in found if alert.alert_id == newest.alert_id)
    history = incident_of(opened, alerts)
    imo = next((alert.vessel_imo_number for alert in history if alert.vessel_imo_number), None)
    environment = await _read(cluster, lambda log: log == f"ships.{imo}.environment", Environment)
    bookings = await _read(cluster, lambda log: log.startswith("bookings."), Booking)
    spec = topology.sites.get(newest.raised_at)
    return draft(
        history,
        ship_name=spec.title or newest.raised_at if spec is not None else newest.raised_at,
        environment=environment,
        bookings=_in_force(history, bookings),
        report_type=report_type,
    )


def _in_force(history: Iterable[Alert], changes: Iterable[Booking]) -> dict[str, Booking]:
    """The booking under which each container of an incident travelled when it was lost."""
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
    """Every entry of some logs, each log in its order; what another version wrote and this one cannot read is left."""
    decode = decoder(kind).decode
    logs = [TP(name) for name in await cluster.topics(refresh=True) if wanted(name)]
    by_log: dict[str, list[T]] = {}
    async for log, records in sweep(cluster, await extents(cluster, logs)):
        entries = by_log.setdefault(log.topic, [])
        for record in records:
            if record.value is None or not is_data(record):
                continue
            try:
                entries.append(decode(record.value))
            except UNREADABLE:
                continue
    return [entry for name in sorted(by_log) for entry in by_log[name]]
