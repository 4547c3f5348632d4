"""Who may see which record: SQL that Spark and DuckDB both run, over tables and views of these names:

``readings``, ``alerts``, ``bookings``, ``feeds`` (the tables), ``customers`` (customer: those with a feed here) and
``touched`` (equipment_reference, log, first_offset: what to look at; a null log means all of that container's).
"""

from __future__ import annotations

ENTITLED = """
with records as (
    select log, log_offset, equipment_reference, device_date_time, received_date_time, late, payload
    from {readings}
    union all
    select log, log_offset, equipment_reference, event_date_time, cast(null as timestamp), false, payload
    from {alerts}
),
candidates as (
    select r.* from records r
    where exists (
        select 1 from {touched} t
        where t.equipment_reference = r.equipment_reference
            and (t.log is null or (t.log = r.log and r.log_offset >= t.first_offset))
    )
),
newest as (
    select * from (
        select *, row_number() over (
            partition by booking_reference, equipment_reference order by log_offset desc, log
        ) as age
        from {bookings}
        where problem is null
    ) where age = 1 and status <> 'CANCELLED'
),
boxes as (
    select distinct b.customer, b.equipment_reference
    from newest b join {customers} c on c.customer = b.customer
)
select
    x.customer, r.log, r.log_offset, r.equipment_reference, r.device_date_time, r.received_date_time, r.late, r.payload
from candidates r
join boxes x on x.equipment_reference = r.equipment_reference
where exists (
        select 1 from newest b
        where b.customer = x.customer and b.equipment_reference = r.equipment_reference
            and r.device_date_time >= b.valid_from
            and (b.valid_to is null or r.device_date_time < b.valid_to)
    )
    and not exists (
        select 1 from {feeds} f where f.customer = x.customer and f.log = r.log and f.log_offset = r.log_offset
    )
order by x.customer, r.log, r.log_offset
"""
