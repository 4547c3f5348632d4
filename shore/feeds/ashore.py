"""Alerts that only shore has found, for customers' feeds and for the log of shore's alerts.

They have the form of a site's alert (``fairlead.records.alert.Alert``) with ``raisedAt`` ``shore``. Where a site has
raised an alert about the same condition (``condition_id``), that one counts, and shore's is none.

**In a feed** there is one record per alert (``alerts/<container>/<alert id>@0``): its newest state that the customer
may see. Each further state is a revision of the record. It is retracted when a site tells of the condition later.

**The log** ``alerts.shore`` has one record per state (``alerts/<container>/<alert id>@<revision>``) and is only added
to, as the logs of sites' alerts are. An alert that is over before it could be told is not told. One that a site tells
of later ends with the evidence ``told`` (``told/<container>/<alert id>@0``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead.records.alert import RAISED_BY_SHORE
from shore.feeds.coarse import exact_time
from shore.feeds.periods import covered
from shore.feeds.readers import SHORE_LOG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CONTENT: Final = f"""to_json(named_struct(
        'alertID', alert_id,
        'kind', kind,
        'severity', severity,
        'state', state,
        'equipmentReference', equipment_reference,
        'raisedAt', '{RAISED_BY_SHORE}',
        'eventDateTime', {exact_time("event_date_time")},
        'raisedDateTime', {exact_time("event_date_time")},
        'evidence', array(named_struct('name', reason, 'weight', 1.0D, 'detail', coalesce(detail, '')))
    ))"""
"""A state of an alert as its record has it, without the revision."""

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
    {_CONTENT} as content
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


_OF_LOG: Final = f"""
with told as (
    select equipment_reference, alert_id, min(split_part(log, '.', 2)) as told_by, min(event_date_time) as told_at
    from {{alerts}}
    group by all
),
given as (
    select log, max(log_offset) as last from {{feeds}} where customer = '{SHORE_LOG.customer}' group by log
),
states as (
    select a.*, concat(a.equipment_reference, '/', a.alert_id) as name,
        max(struct(a.revision, a.state)) over (partition by a.alert_id).state as newest
    from {{alerts_ashore}} a
),
open as (
    select s.*, g.last, t.told_by, t.told_at
    from states s
    left join given g on g.log = concat('alerts/', s.name)
    left join told t on t.equipment_reference = s.equipment_reference and t.alert_id = s.condition_id
    left anti join given e on e.log = concat('told/', s.name)
),
due as (
    select concat('alerts/', name) as log, cast(revision as bigint) as log_offset, revision,
        alert_id, kind, severity, state, equipment_reference, event_date_time, reason, detail
    from open
    where told_by is null and revision > coalesce(last, -1) and (last is not null or newest <> 'CLEARED')
    union all
    select concat('told/', name), 0L, revision + 1,
        alert_id, kind, severity, 'CLEARED', equipment_reference, greatest(event_date_time, told_at),
        'told', concat(told_by, ' has raised an alert about the same')
    from open
    where told_by is not null and revision = last and state <> 'CLEARED'
)
select '{SHORE_LOG.customer}' as customer, log, log_offset, revision, equipment_reference,
    event_date_time as device_date_time, {_CONTENT} as content
from due
"""  # noqa: S608


def alerts_for_log(alerts_ashore: DataFrame, alerts: DataFrame, feeds: DataFrame) -> DataFrame:
    """Return what the log of shore's alerts lacks: columns ``MADE`` and ``revision``.

    Args:
        alerts_ashore: All rows of some containers.
        alerts: All rows of these containers.
        feeds: All rows of these containers, or of more, of table ``feeds``.
    """
    return alerts_ashore.sparkSession.sql(_OF_LOG, alerts_ashore=alerts_ashore, alerts=alerts, feeds=feeds)


_ODD_IN_LOG: Final = f"""
with given as (
    select log, log_offset, split_part(log, '/', 1) as part, split_part(log, '/', 3) as alert_id, digest
    from {{feeds}} where customer = '{SHORE_LOG.customer}'
),
logs as (
    select alert_id, max(case when part = 'alerts' then log_offset end) as last, bool_or(part = 'told') as ended
    from given group by alert_id
),
states as (
    select a.*, s.condition is not null as by_site, max(a.revision) over (partition by a.alert_id) as newest
    from {{alerts_ashore}} a
    left join (select distinct equipment_reference as box, alert_id as condition from {{alerts}}) s
        on s.box = a.equipment_reference and s.condition = a.condition_id
),
contents as (
    select alert_id, revision, newest, by_site, concat('alerts/', equipment_reference, '/', alert_id) as log,
        {_CONTENT} as content
    from states
)
select 'extra' as what, g.log, g.log_offset
from given g join contents c on c.alert_id = g.alert_id and c.revision = least(g.log_offset, c.newest)
where g.part = 'alerts' and (g.log_offset > c.newest or g.digest <> md5(cast(c.content as binary)))
union all
select 'extra', g.log, g.log_offset
from given g join contents c on c.alert_id = g.alert_id
where g.part = 'told' and c.revision = 0 and not c.by_site
union all
select 'missing', c.log, cast(c.revision as bigint)
from contents c
join logs l on l.alert_id = c.alert_id
left anti join given g on g.alert_id = c.alert_id and g.log_offset = c.revision and g.part = 'alerts'
where c.revision < l.last and not l.ended and not c.by_site
"""  # noqa: S608


def odd_in_log(alerts_ashore: DataFrame, alerts: DataFrame, feeds: DataFrame) -> DataFrame:
    """Return what is wrong in the log of shore's alerts and cannot be put right, as the log is only added to: records
    that the tables give otherwise (``extra``), and states that stand in front of a later one and are not there
    (``missing``). What the tables have no more, by their retention, is right.

    Args:
        alerts_ashore, alerts, feeds: All rows.

    Returns:
        ``what``, ``log``, ``log_offset``.
    """
    return alerts_ashore.sparkSession.sql(_ODD_IN_LOG, alerts_ashore=alerts_ashore, alerts=alerts, feeds=feeds)


def states_of_log(alerts_ashore: DataFrame) -> DataFrame:
    """Return every state that the log of shore's alerts may have, as rows of ``MADE``."""
    return alerts_ashore.selectExpr(
        f"'{SHORE_LOG.customer}' as customer",
        "concat('alerts/', equipment_reference, '/', alert_id) as log",
        "cast(revision as bigint) as log_offset",
        "equipment_reference",
        "event_date_time as device_date_time",
        f"{_CONTENT} as content",
    )
