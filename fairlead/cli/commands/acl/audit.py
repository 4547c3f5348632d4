"""``fairlead acl audit``: who can read one container: its topic by ACLs at every site, its feed records by bookings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from acl.audit import ReadVerdict, TopicReader, readers
from acl.plan import CurrentAcls, Unread, check_sites, read_current_acls
from acl.store import admin_stores
from fairlead.cli.commands.context import (
    DEFAULT_TOPOLOGY,
    Context,
    JsonOption,
    SitesOption,
    TopologyOption,
    open_topology,
)
from fairlead.cli.console import console, emit
from fairlead.errors import ConfigurationError, ExitCode, FairleadError
from fairlead.names import container_check_digit, is_container_number
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


_DRIFT: Final = frozenset({ReadVerdict.EXTRA, ReadVerdict.MISSING, ReadVerdict.PARTLY})
_STYLES: Final = {
    ReadVerdict.EXTRA: "red",
    ReadVerdict.MISSING: "yellow",
    ReadVerdict.PARTLY: "yellow",
    ReadVerdict.UNCHECKED: "dim",
}
_SAYS: Final = {
    ReadVerdict.AGREED: "as the topology says",
    ReadVerdict.EXTRA: "NOT by the topology; the cluster lets it",
    ReadVerdict.MISSING: "by the topology; the cluster refuses it",
    ReadVerdict.PARTLY: "by the topology; the cluster lets it from some hosts only",
    ReadVerdict.UNCHECKED: "cluster not asked",
}


@dataclass(frozen=True, slots=True)
class LogAt:
    """Who can read one log at one site."""

    log: str
    site: str
    readers: tuple[TopicReader, ...]


def audit(
    container: Annotated[str, typer.Argument(help="A container's number, for example BIGU1000010.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    as_json: JsonOption = False,
) -> None:
    """List who can read a container: its topic at every site, and its records in feeds.

    What the topology says is compared with the rules that each cluster really holds. Ends with 1 when a cluster lets
    somebody read, or refuses somebody, against the topology; with 4 when a site could not be asked.

    Example: fairlead acl audit BIGU1000010
    """
    context = open_topology(topology)
    log = _log(context.topology, container)
    held = read_current_acls(admin_stores(context.resolver), check_sites(context.topology, site or None))
    feeds = feeds_of(context, container)
    with_feed = {each.customer: None for each in feeds.entitled if each.feed_at}
    with_feed |= {each.customer: None for each in feeds.bookings if feed_of(context.topology, each.customer)[1]}
    logs = [log, *(f"feeds.{name}" for name in with_feed)]
    found = [LogAt(one, at, _readers(context.topology, at, one, held[at])) for one in logs for at in held]
    away = [one for one in held.values() if isinstance(one, Unread)]
    body = {
        "container": container,
        "log": log,
        "sites": msgspec.to_builtins(found),
        "unread": msgspec.to_builtins(away),
        "feeds": msgspec.to_builtins(feeds.entitled),
        "bookings": msgspec.to_builtins(feeds.bookings),
        "bookings_unknown": feeds.unknown,
    }
    emit(body, as_json=as_json, render=lambda: _show(container, log, found, away, feeds))
    if any(reader.verdict in _DRIFT for one in found for reader in one.readers):
        raise typer.Exit(ExitCode.FAILED)
    if away:
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _log(topology: Topology, container: str) -> str:
    if not is_container_number(container):
        right = len(container) == 11 and container[:10].isalnum() and container.isupper() and container.isascii()
        raise ConfigurationError(
            f"{container!r} is no container number (ISO 6346)",
            hint=f"its check digit would be {container_check_digit(container[:10])}"
            if right
            else "four letters and seven digits, upper case: BIGU1000010",
        )
    return f"{topology.stream_of_container(container)}.{container}"


def _readers(topology: Topology, site: str, log: str, held: CurrentAcls) -> tuple[TopicReader, ...]:
    return readers(topology, site, log, None if isinstance(held, Unread) else held)


def _show(container: str, log: str, found: list[LogAt], away: list[Unread], feeds: Feeds) -> None:
    for name in dict.fromkeys(one.log for one in found):
        console.print(f"[bold]{name}[/]" + ("" if name == log else f", the feed that has records of {container}"))
        table = Table("user", "who", "sites", "", "why", box=None, pad_edge=False)
        for (user, kind, verdict, why), sites in _grouped(one for one in found if one.log == name).items():
            style = _STYLES.get(verdict, "")
            table.add_row(escape(user), kind, ", ".join(sites), _SAYS[verdict], escape(why), style=style)
        console.print(table)
    for one in away:
        console.print(f"[yellow]{one.site}: not asked, {escape(one.why)}[/]", soft_wrap=True)
    if feeds.unknown:
        console.print(f"feeds: {escape(feeds.unknown)}", soft_wrap=True)
    if feeds.entitled:
        console.print(f"[bold]in feeds, records of {container}[/]")
        table = Table("customer", "feed", "at", "device times from", "to", box=None, pad_edge=False)
        for each in feeds.entitled:
            movements = each.valid_from is None
            times = ("any, at its port", "-") if movements else (_time(each.valid_from), _time(each.valid_to))
            table.add_row(escape(each.customer), each.feed or "[dim]has none[/]", each.feed_at or "-", *times)
        console.print(table)
    elif not feeds.unknown:
        console.print(f"{container} is in no feed")
    if feeds.bookings:
        console.print("[bold]from these bookings[/] (what they give no more is taken back, and still there to be read)")
        heads = ("booking", "recorded", "until", "", "for", "device times from", "to")
        table = Table(*heads, box=None, pad_edge=False)
        for state in feeds.bookings:
            party = f"{escape(state.customer)}{' (consignee)' if state.party == 'consignee' else ''}"
            recorded = (_time(state.recorded_from), _time(state.until))
            times = (_time(state.valid_from), _time(state.valid_to))
            table.add_row(escape(state.booking), *recorded, state.status.lower(), party, *times)
        console.print(table)


def _grouped(found: Iterator[LogAt]) -> dict[tuple[str, str, ReadVerdict, str], list[str]]:
    """Sites by what is the same at each of them."""
    out: dict[tuple[str, str, ReadVerdict, str], list[str]] = {}
    for one in found:
        for reader in one.readers:
            user = "everybody" if reader.kind == "everybody" else reader.user
            why = _why(reader).replace(f"site {one.site}", "this site")
            out.setdefault((user, reader.kind.value, reader.verdict, why), []).append(one.site)
    return out


def _why(reader: TopicReader) -> str:
    texts = list(reader.because)
    if reader.verdict in _DRIFT:
        texts = [f"rule: {rule}" for rule in (*reader.held, *reader.against)] or [f"no rule; {'; '.join(texts)}"]
        if reader.hosts:
            texts.append(f"{'not ' if reader.anywhere else 'only '}from {', '.join(reader.hosts)}")
    return "; ".join(texts)


def _time(moment: dt.datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment is not None else "-"
