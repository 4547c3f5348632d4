"""``fairlead acl audit``: list who can read one container: its log by ACLs, its feed records by bookings.

It asks for the ACLs of every site.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from acl.audit import LogReaders, ReadVerdict, TopicReader, audit_logs, log_of_container
from acl.kafka import admin_stores
from acl.plan import Unread
from fairlead.cli.commands.context import JsonOption, SitesOption, TopologyOption
from fairlead.cli.console import console, emit, uncut
from fairlead.errors import ExitCode
from topologies.context import DEFAULT_TOPOLOGY, open_topology
from topologies.model import check_sites

if TYPE_CHECKING:
    from shore.report.entitled import ContainerFeeds


_DRIFT: Final = frozenset({ReadVerdict.EXTRA, ReadVerdict.MISSING, ReadVerdict.PARTLY})
_STYLES: Final = {
    ReadVerdict.EXTRA: "red",
    ReadVerdict.MISSING: "yellow",
    ReadVerdict.PARTLY: "yellow",
    ReadVerdict.UNCHECKED: "dim",
}
_SAYS: Final = {
    ReadVerdict.AGREED: "as the topology says",
    ReadVerdict.EXTRA: "NOT by the topology; the cluster allows it",
    ReadVerdict.MISSING: "by the topology; the cluster refuses it",
    ReadVerdict.PARTLY: "by the topology; the cluster allows only some hosts",
    ReadVerdict.UNCHECKED: "cluster not asked",
}


def audit(
    container: Annotated[str, typer.Argument(help="A container's number, for example BIGU1000010.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    as_json: JsonOption = False,
) -> None:
    """List who can read a container: its log at every site, and its records in feeds.

    Compares the topology with the ACLs of each cluster. Ends with 1 when a cluster allows or refuses a user to read
    against the topology, and with 4 when a site does not answer.

    Example: fairlead acl audit BIGU1000010
    """
    from shore.report.entitled import feed_logs, feeds_of_container  # imports DuckDB and delta-rs

    context = open_topology(topology)
    log = log_of_container(context.topology, container)
    check_sites(context.topology, site or None)
    feeds = feeds_of_container(context.topology, context.folder, container)
    logs = [log, *feed_logs(context.topology, feeds)]
    found, away = audit_logs(context.topology, admin_stores(context.resolver), logs, site or None)
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


def _show(container: str, log: str, found: Sequence[LogReaders], away: Sequence[Unread], feeds: ContainerFeeds) -> None:
    for name in dict.fromkeys(one.log for one in found):
        console.print(f"[bold]{name}[/]" + ("" if name == log else f", the feed that has records of {container}"))
        table = Table("user", "who", "sites", "", "why", box=None, pad_edge=False)
        for (user, kind, verdict, why), sites in _grouped(one for one in found if one.log == name).items():
            style = _STYLES.get(verdict, "")
            table.add_row(escape(user), kind, ", ".join(sites), _SAYS[verdict], escape(why), style=style)
        console.print(uncut(table, "user"))
    for one in away:
        console.print(f"[yellow]{one.site}: not asked, {escape(one.why)}[/]", soft_wrap=True)
    if feeds.unknown:
        console.print(f"feeds: {escape(feeds.unknown)}", soft_wrap=True)
    if feeds.entitled:
        console.print(f"[bold]in feeds, records of {container}[/]")
        table = Table("customer", "feed", "at", "device times from", "to", box=None, pad_edge=False)
        for each in feeds.entitled:
            times = (_time(each.valid_from), _time(each.valid_to))
            if each.valid_from is None:  # without a booking
                times = ("any, at its port" if each.feed == "movements" else "any", "-")
            table.add_row(escape(each.customer), each.feed or "[dim]has none[/]", each.feed_at or "-", *times)
        console.print(uncut(table, "customer"))
    elif not feeds.unknown:
        console.print(f"{container} is in no feed")
    if feeds.bookings:
        console.print("[bold]from these bookings[/] (what they no longer give is retracted, but can still be read)")
        heads = ("booking", "recorded", "until", "", "for", "device times from", "to")
        table = Table(*heads, box=None, pad_edge=False)
        for state in feeds.bookings:
            party = f"{escape(state.customer)}{' (consignee)' if state.party == 'consignee' else ''}"
            recorded = (_time(state.recorded_from), _time(state.until))
            times = (_time(state.valid_from), _time(state.valid_to))
            table.add_row(escape(state.booking), *recorded, state.status.lower(), party, *times)
        console.print(uncut(table, "booking"))


def _grouped(found: Iterator[LogReaders]) -> dict[tuple[str, str, ReadVerdict, str], list[str]]:
    """Group the sites where a user has the same permission for the same reason."""
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
