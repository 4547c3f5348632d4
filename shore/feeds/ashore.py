"""Alerts that only shore has found, for customers' feeds.

One record per alert (``alerts/<container>/<alert id>@0``): its newest state that the customer may see, in the form of a
site's alert (``fairlead.records.alert.Alert``) with ``raisedAt`` ``shore``. Each further state is a revision of the
record. Where a site has told the same condition (``condition_id``), its alert is in the feed, and shore's is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shore.feeds.coarse import exact_time
from shore.feeds.periods import covered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RAISED_AT: Final = "shore"
"""The site that such an alert names. Shore may move, and its alerts stay the same."""


_FOUND: Final = f"""
with found as (
    select a.* from {{alerts_ashore}} a
    left anti join {{alerts}} s
        on s.equipment_reference = a.equipment_reference and s.alert_id = a.condition_id
),
seen as (
    select p.customer, a.* from found a join {{periods}} p on p.equipment_reference = a.equipment_reference
    where {covered("a.event_date_time")}
    union all
    select o.customer, a.* from found a
    join (select customer, explode(owners) as owner from {{customers}} where grain = 'alerts') o
        on o.owner = left(a.equipment_reference, 4)
),
newest as (
    select *, row_number() over (partition by customer, alert_id order by revision desc) as place from seen
)
select
    customer,
    concat('alerts/', equipment_reference, '/', alert_id) as log,
    0L as log_offset,
    equipment_reference,
    event_date_time as device_date_time,
    to_json(named_struct(
        'alertID', alert_id,
        'kind', kind,
        'severity', severity,
        'state', state,
        'equipmentReference', equipment_reference,
        'raisedAt', '{RAISED_AT}',
        'eventDateTime', {exact_time("event_date_time")},
        'raisedDateTime', {exact_time("event_date_time")},
        'evidence', array(named_struct('name', reason, 'weight', 1.0D, 'detail', coalesce(detail, '')))
    )) as content
from newest
where place = 1
"""  # noqa: S608  # our own names


_STANDING: Final = f"""
select g.* from {{given}} g
left join (select distinct alert_id from {{alerts_ashore}}) a on a.alert_id = split_part(g.log, '/', 3)
left join {{periods}} p on p.customer = g.customer and p.equipment_reference = g.equipment_reference
left join {{customers}} c on c.customer = g.customer
where not (
    g.log like 'alerts/%' and a.alert_id is null and (
        coalesce({covered("g.device_date_time")}, false)
        or coalesce(array_contains(c.owners, left(g.equipment_reference, 4)), false)
    )
)
"""  # noqa: S608


def without_deleted_alerts(
    given: DataFrame, alerts_ashore: DataFrame, periods: DataFrame, customers: DataFrame
) -> DataFrame:
    """Return what feeds have (rows of ``newest_rows``) without alerts that the table has no more, by its retention, and
    that their customers may see. These stay in the feeds as they are.

    Args:
        alerts_ashore, periods, customers: As in ``alerts_found_ashore``.
    """
    return given.sparkSession.sql(
        _STANDING, given=given, alerts_ashore=alerts_ashore, periods=periods, customers=customers
    )


def alerts_found_ashore(
    alerts_ashore: DataFrame, alerts: DataFrame, periods: DataFrame, customers: DataFrame
) -> DataFrame:
    """Compute the alerts of all customers, as rows of ``shore.feeds.coarse.MADE``.

    Args:
        alerts_ashore: All rows of each of their containers.
        alerts: All rows of each of these containers.
        periods: From ``shore.feeds.periods.periods``.
        customers: ``customer``, ``grain`` and ``owners``, for those who get the alerts about containers of their own.
    """
    return alerts_ashore.sparkSession.sql(
        _FOUND, alerts_ashore=alerts_ashore, alerts=alerts, periods=periods, customers=customers
    )
