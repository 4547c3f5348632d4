"""Find the feeds that have the records of one container, and the bookings that entitle to them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairlead.errors import FairleadError
from shore.delta.table_errors import missing_table_error
from shore.feeds.periods import PERIODS
from shore.paths import TablePaths
from shore.report.slices import Row, of_container, open_slices
from shore.storage import open_paths
from shore.tables import TABLES
from shore.tables.bookings import STATES
from topologies.model import Topology


@dataclass(frozen=True, slots=True)
class FeedEntitlement:
    """A customer that gets the container's records of these device times (None: open) in its feed.

    Args:
        feed: The kind of feed: detailed, coarse, or movements and alerts, which need no booking. None: the customer has
            no feed.
    """

    customer: str
    feed: str | None
    feed_at: str | None
    valid_from: dt.datetime | None
    valid_to: dt.datetime | None


@dataclass(frozen=True, slots=True)
class EntitlingBooking:
    """One state of a booking that entitles a customer to the container's records.

    When a booking no longer holds, the feed retracts its records by further records; what was delivered stays there.

    Args:
        party: ``customer`` or ``consignee`` of the booking.
        until: When the next state of the booking was recorded; None while this one holds.
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
class ContainerFeeds:
    """The customers that get the container's records in a feed.

    Args:
        unknown: Why the bookings could not be read; empty where they were.
    """

    entitled: tuple[FeedEntitlement, ...]
    bookings: tuple[EntitlingBooking, ...]
    unknown: str = ""


def feeds_of_container(topology: Topology, folder: Path, container: str) -> ContainerFeeds:
    """Return the feeds that have the container's records, and the bookings that entitle to them.

    Args:
        folder: The topology's state folder.
        container: A container number; its check digit is not checked here.
    """
    authorities = tuple(
        FeedEntitlement(name, each.feed, each.feed_at, None, None)
        for name, each in topology.customers.items()
        if each.feed_at and (each.feed == "movements" or (each.feed == "alerts" and container[:4] in each.owners))
    )
    if topology.shore is None:
        return ContainerFeeds(authorities, (), "this topology does not say where shore runs, so it has no feeds")
    try:
        now, history = _entitling(open_paths(topology.shore, folder), container)
    except FairleadError as error:
        return ContainerFeeds(authorities, (), f"{error.what}, so nobody here knows the bookings ({error.hint})")
    here = tuple(
        FeedEntitlement(row["customer"], *feed_of(topology, row["customer"]), row["valid_from"], row["valid_to"])
        for row in now
    )
    bookings = tuple(
        EntitlingBooking(
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
    return ContainerFeeds((*here, *authorities), bookings)


def _entitling(paths: TablePaths, container: str) -> tuple[list[Row], list[Row]]:
    """The times for which customers may see the container, and the states of its bookings that say so.

    The states of a container's bookings follow from its own changes alone, so only these are read.
    """
    with open_slices(paths) as found:
        found.add("booking_changes", of_container(container))
        if found.missing:
            for name in TABLES:  # is shore not there, or this table alone?
                found.add(name)
            found.check_any()
            raise missing_table_error("booking_changes")
        found.run(f"create temp table states as {STATES.format(booking_changes='booking_changes')}")
        periods = found.rows(f"select * from ({PERIODS.format(bookings='states')}) order by valid_from, customer")  # noqa: S608
        return periods, found.rows(_BOOKED)


_BOOKED: Final = """
select p.*, s.* from states s, lateral (values ('customer', s.customer), ('consignee', s.consignee)) p(party, name)
where coalesce(p.name, '') <> ''
order by s.recorded_from, s.log_offset, p.party desc
"""


def feed_of(topology: Topology, customer: str) -> tuple[str | None, str | None]:
    """Return the kind of a customer's feed and its site; None for both where it has no feed."""
    found = topology.customers.get(customer)
    return (found.feed, found.feed_at) if found is not None and found.feed_at else (None, None)


def feed_logs(topology: Topology, feeds: ContainerFeeds) -> list[str]:
    """Return the logs of the feeds that have, or had, the container's records."""
    customers = [each.customer for each in feeds.entitled if each.feed_at]
    customers += [each.customer for each in feeds.bookings if feed_of(topology, each.customer)[1]]
    return [f"feeds.{name}" for name in dict.fromkeys(customers)]
