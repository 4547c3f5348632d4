"""``fairlead acl audit``: who can read one container, at every site: its log by rules, its feed records by bookings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from acl.apply import admin_stores
from acl.audit import Reader, Verdict, readers
from acl.held import Held, read_held
from acl.plan import Unread
from fairlead.commands.aclshared import SitesOption, named
from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, JsonOption, TopologyOption, open_topology
from fairlead.console import console, emit
from fairlead.errors import ConfigurationError, ExitCode, FairleadError, UnknownNameError
from fairlead.names import container_check_digit, is_container_number, owner_code
from topologies.model import Topology

_DRIFT: Final = frozenset({Verdict.EXTRA, Verdict.MISSING, Verdict.PARTLY})
_STYLES: Final = {Verdict.EXTRA: "red", Verdict.MISSING: "yellow", Verdict.PARTLY: "yellow", Verdict.UNCHECKED: "dim"}
_SAYS: Final = {
    Verdict.AGREED: "as the topology says",
    Verdict.EXTRA: "NOT by the topology; the cluster lets it",
    Verdict.MISSING: "by the topology; the cluster refuses it",
    Verdict.PARTLY: "by the topology; the cluster lets it from some hosts only",
    Verdict.UNCHECKED: "cluster not asked",
}


@dataclass(frozen=True, slots=True)
class Booked:
    """A booking's state that gives, or has given, a customer the container's feed records of these device times.

    ``until`` is when another state took its place, or it was cancelled: what was delivered by then stays delivered.
    """

    customer: str
    feed_at: str | None
    booking: str
    status: str
    valid_from: dt.datetime
    valid_to: dt.datetime | None
    recorded_from: dt.datetime | None
    until: dt.datetime | None


@dataclass(frozen=True, slots=True)
class LogAt:
    """Who can read one log at one site."""

    log: str
    site: str
    readers: tuple[Reader, ...]


def audit(
    container: Annotated[str, typer.Argument(help="A container's number, for example BIGU1000010.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say who can read a container: its log at every site, and its records in customers' feeds by its bookings.

    What the topology says is compared with the rules that each cluster really holds. Ends with 1 when a cluster lets
    somebody read, or refuses somebody, against the topology; with 4 when a site could not be asked.

    Example: fairlead acl audit BIGU1000010
    """
    context = open_topology(topology)
    log = _log(context.topology, container)
    held = read_held(admin_stores(context.directory), named(context, site))
    booked, unknown = _bookings(context, container)
    feeds = [name for name in dict.fromkeys(b.customer for b in booked) if name in context.topology.customers]
    logs = [log, *(f"feeds.{name}" for name in feeds if context.topology.customers[name].feed_at)]
    found = [LogAt(one, at, _readers(context.topology, at, one, held[at])) for one in logs for at in held]
    away = [one for one in held.values() if isinstance(one, Unread)]
    body = {
        "container": container,
        "log": log,
        "sites": msgspec.to_builtins(found),
        "unread": msgspec.to_builtins(away),
        "bookings": msgspec.to_builtins(booked),
        "bookings_unknown": unknown,
    }
    emit(body, as_json=as_json, render=lambda: _show(container, log, found, away, booked, unknown))
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
    stream = topology.container_stream(container)
    if stream is None:
        owners = [owner for each in topology.streams.values() for owner in each.owners]
        raise UnknownNameError("owner code with a stream in this topology", owner_code(container), owners)
    return f"{stream}.{container}"


def _readers(topology: Topology, site: str, log: str, held: Held) -> tuple[Reader, ...]:
    return readers(topology, site, log, None if isinstance(held, Unread) else held)


def _bookings(context: Context, container: str) -> tuple[list[Booked], str]:
    """The states of the container's bookings, and why they are not known when they are not."""
    from shore.read import rows, sql  # loads DuckDB and delta-rs, which the other commands of acl do without
    from shore.tables.bookings import STATES

    where = context.topology.shore
    if where is None:
        return [], "this topology does not say where shore runs, so it has no feeds"
    states = STATES.format(booking_changes="booking_changes")
    query = f"""
        select customer, booking_reference, status, valid_from, valid_to, recorded_from, recorded_to
        from ({states}) where equipment_reference = '{container}' and customer is not null and status <> 'CANCELLED'
        order by valid_from, customer, recorded_from
    """  # noqa: S608  # a number with a check digit
    try:
        found = rows(sql(context.folder, query, storage=where.storage))
    except FairleadError as error:
        return [], f"{error.what}, so nobody here knows the bookings ({error.hint})"
    customers = context.topology.customers
    return [
        Booked(
            row["customer"],
            customers[row["customer"]].feed_at if row["customer"] in customers else None,
            row["booking_reference"],
            row["status"],
            row["valid_from"],
            row["valid_to"],
            row["recorded_from"],
            row["recorded_to"],
        )
        for row in found
    ], ""


def _show(container: str, log: str, found: list[LogAt], away: list[Unread], booked: list[Booked], unknown: str) -> None:
    for name in dict.fromkeys(one.log for one in found):
        console.print(f"[bold]{name}[/]" + ("" if name == log else f", the feed that has records of {container}"))
        table = Table("user", "who", "sites", "", "why", box=None, pad_edge=False)
        for (user, kind, verdict, why), sites in _grouped(one for one in found if one.log == name).items():
            style = _STYLES.get(verdict, "")
            table.add_row(escape(user), kind, ", ".join(sites), _SAYS[verdict], escape(why), style=style)
        console.print(table)
    for one in away:
        console.print(f"[yellow]{one.site}: not asked, {escape(one.why)}[/]", soft_wrap=True)
    if unknown:
        console.print(f"feeds: {escape(unknown)}", soft_wrap=True)
        return
    console.print(f"[bold]bookings of {container}[/]" + ("" if booked else ": none, so it is in no feed"))
    if booked:
        table = Table("customer", "feed at", "device times from", "to", "booking", "", box=None, pad_edge=False)
        for each in booked:
            note = each.status.lower() if each.until is None else f"until {_time(each.until)}; what it gave stays"
            place = each.feed_at or "[dim]has no feed[/]"
            table.add_row(
                escape(each.customer), place, _time(each.valid_from), _time(each.valid_to), each.booking, escape(note)
            )
        console.print(table)


def _grouped(found: Iterator[LogAt]) -> dict[tuple[str, str, Verdict, str], list[str]]:
    """Sites by what is the same at each of them."""
    out: dict[tuple[str, str, Verdict, str], list[str]] = {}
    for one in found:
        for reader in one.readers:
            user = "everybody" if reader.kind == "everybody" else reader.user
            why = _why(reader).replace(f"site {one.site}", "this site")
            out.setdefault((user, reader.kind.value, reader.verdict, why), []).append(one.site)
    return out


def _why(reader: Reader) -> str:
    texts = list(reader.because)
    if reader.verdict in _DRIFT:
        texts = [f"rule: {rule}" for rule in (*reader.held, *reader.against)] or [f"no rule; {'; '.join(texts)}"]
        if reader.hosts:
            texts.append(f"{'not ' if reader.anywhere else 'only '}from {', '.join(reader.hosts)}")
    return "; ".join(texts)


def _time(moment: dt.datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment is not None else "-"
