"""In whose feeds a container's records are, and by which bookings: out of table ``booking_changes``."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from fairlead.commands.context import Context
from fairlead.errors import FairleadError
from topologies.model import Topology


@dataclass(frozen=True, slots=True)
class Entitled:
    """A customer in whose feed the container's records are, of these device times (null: open).

    ``feed`` is what it gets: detailed, coarse, or movements, which need no booking; null: it has no feed.
    """

    customer: str
    feed: str | None
    feed_at: str | None
    valid_from: dt.datetime | None
    valid_to: dt.datetime | None


@dataclass(frozen=True, slots=True)
class Booked:
    """What a booking says, or has said until ``until``, of its customer (``party``: customer) or its consignee.

    What is entitled no more was taken back in the feed, by records that say so; what was delivered is still there.
    """

    customer: str
    party: str
    booking: str
    status: str
    valid_from: dt.datetime
    valid_to: dt.datetime | None
    recorded_from: dt.datetime | None
    until: dt.datetime | None


@dataclass(frozen=True, slots=True)
class Feeds:
    """Who has the container's records in a feed. ``unknown`` says why the bookings are not known, if they are not."""

    entitled: tuple[Entitled, ...]
    bookings: tuple[Booked, ...]
    unknown: str = ""


def feeds_of(context: Context, container: str) -> Feeds:
    """The feeds that have the container's records, and the bookings that it follows from."""
    from shore.feeds.periods import PERIODS
    from shore.read import rows, sql  # loads DuckDB and delta-rs, which the other commands of acl do without
    from shore.tables.bookings import STATES

    topology = context.topology
    authorities = tuple(
        Entitled(name, each.feed, each.feed_at, None, None)
        for name, each in topology.customers.items()
        if each.feed == "movements" and each.feed_at
    )
    if topology.shore is None:
        return Feeds(authorities, (), "this topology does not say where shore runs, so it has no feeds")
    # A number with a check digit, and constants of shore.
    states = STATES.format(booking_changes="booking_changes")
    periods = PERIODS.format(bookings=f"({states})")
    entitled = f"""
        select * from ({periods}) where equipment_reference = '{container}' order by valid_from, customer
    """  # noqa: S608
    booked = f"""
        select p.*, s.* from ({states}) s,
            lateral (values ('customer', s.customer), ('consignee', s.consignee)) p(party, name)
        where s.equipment_reference = '{container}' and coalesce(p.name, '') <> ''
        order by s.recorded_from, s.log_offset, p.party desc
    """  # noqa: S608
    try:
        now, history = (
            rows(sql(context.folder, query, storage=topology.shore.storage)) for query in (entitled, booked)
        )
    except FairleadError as error:
        return Feeds(authorities, (), f"{error.what}, so nobody here knows the bookings ({error.hint})")
    here = tuple(
        Entitled(row["customer"], *feed_of(topology, row["customer"]), row["valid_from"], row["valid_to"])
        for row in now
    )
    bookings = tuple(
        Booked(
            row["name"],
            row["party"],
            row["booking_reference"],
            row["status"],
            row["valid_from"],
            row["valid_to"],
            row["recorded_from"],
            row["recorded_to"],
        )
        for row in history
    )
    return Feeds((*here, *authorities), bookings)


def feed_of(topology: Topology, customer: str) -> tuple[str | None, str | None]:
    """What a customer gets in its feed and where; nothing where it has none."""
    found = topology.customers.get(customer)
    return (found.feed, found.feed_at) if found is not None and found.feed_at else (None, None)
