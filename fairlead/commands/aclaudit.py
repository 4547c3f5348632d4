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
from fairlead.commands.aclauditfeeds import Feeds, feed_of, feeds_of
from fairlead.commands.aclshared import SitesOption, named
from fairlead.commands.context import DEFAULT_TOPOLOGY, JsonOption, TopologyOption, open_topology
from fairlead.console import console, emit
from fairlead.errors import ConfigurationError, ExitCode
from fairlead.names import container_check_digit, is_container_number
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


def _readers(topology: Topology, site: str, log: str, held: Held) -> tuple[Reader, ...]:
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
