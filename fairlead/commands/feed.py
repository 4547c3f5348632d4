"""``fairlead feed``: read as a customer, with the customer's own user and nothing else."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from acl.probe import entitlement, sites_of
from acl.reader import Reader, Received, Start
from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, JsonOption, TopologyOption, open_topology
from fairlead.commands.feedclients import CA_FILE, ClientKind, recipe, script
from fairlead.console import console, emit, errors
from fairlead.errors import ConfigurationError, UnavailableError, UnknownNameError
from fairlead.local.files import write_file
from fairlead.records import decoder
from fairlead.records.alert import Alert
from fairlead.records.headers import ORIGIN
from fairlead.records.reading import Reading
from topologies.model import Topology

_readings = decoder(Reading)
_alerts = decoder(Alert)
_HEADING = (
    f"{'offset':>8}  {'device time (UTC)':<19}  {'container':<11}  {'supply':>7}  {'set':>6}  {'power':<5}  position"
)


def feed(
    customer: Annotated[str, typer.Argument(help="A customer of the topology.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    at: Annotated[
        str | None, typer.Option("--at", help="Site to read at. Default: where the customer's feed is.")
    ] = None,
    from_start: Annotated[
        bool | None,
        typer.Option("--from-start/--from-end", help="Where to begin. Default: the start, or where --group stopped."),
    ] = None,
    maximum: Annotated[int | None, typer.Option("--max", min=1, help="Stop after this many records.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop at the present end instead of waiting for more.")] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", help="Remember in this consumer group what was read; begins with CUSTOMER and a dot."),
    ] = None,
    client: Annotated[
        ClientKind | None,
        typer.Option("--client", help="Read nothing: print what another Kafka client needs to read the same."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="With --client: write its files to this folder, the password in them, for their owner's eyes only.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read as a customer: its feed, or the streams of its own boxes when it has no feed. Ctrl-C stops.

    With --json each record is one line. Nothing is remembered without --group. With --client a shell script is
    printed that configures kcat, Kafka's console consumer, a Java or a Python program, and reads.

    Example: fairlead feed ducks --once --max 20
    """
    context = open_topology(topology)
    site = _site(context.topology, customer, at)
    if group is not None and not group.startswith(f"{customer}."):
        raise ConfigurationError(
            f"{customer} may not use the consumer group {group!r}", hint=f"its groups begin with '{customer}.'"
        )
    if client is not None:
        _configure(context, customer, site, client, group or f"{customer}.{client}", out, as_json=as_json)
        return
    if out is not None:
        raise ConfigurationError("--out is for the files of another client", hint="add --client kcat, java, …")
    start = {True: Start.BEGINNING, False: Start.END, None: Start.GROUP if group else Start.BEGINNING}[from_start]
    seen = 0
    with Reader(context.directory.kafka(site, customer), group=group or f"{customer}.cli") as reader:
        topics = _topics(context.topology, customer, site, reader)
        if not as_json:
            errors.print(f"{customer} at {site}: {', '.join(topics[:5])}{' …' if len(topics) > 5 else ''}", style="dim")
            console.print(_HEADING, style="bold", soft_wrap=True)
        done: dict[str, int] = {}  # offsets to remember, by topic
        try:
            for record in reader.read(topics, start=start, follow=not once):
                if record is None:
                    reader.commit(done)
                    done.clear()
                    continue
                if record.is_data:
                    _print(record, as_json=as_json)
                    seen += 1
                if group is not None:
                    done[record.topic] = record.offset + 1
                if seen == maximum:
                    break
        finally:
            reader.commit(done)
    if not as_json:
        errors.print(f"{seen} records", style="dim")


def _configure(
    context: Context, customer: str, site: str, kind: ClientKind, group: str, out: Path | None, *, as_json: bool
) -> None:
    """Print what another client needs, or write it to a folder."""
    endpoint = context.directory.kafka(site, customer)
    topics = entitlement(context.topology, customer)
    if not topics:
        raise ConfigurationError(
            f"customer {customer} may read no topic", hint=f"fairlead acl explain {customer} feeds.{customer}"
        )
    ca = None if endpoint.tls_ca is None else str(endpoint.tls_ca.resolve())
    if out is None:
        one = recipe(kind, endpoint, topics, group=group, ca=ca)
        text = script(customer, site, kind, one)
    else:
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        if ca is not None:
            write_file(out / CA_FILE, Path(ca).read_text(encoding="utf-8"))
        one = recipe(kind, endpoint, topics, group=group, ca=CA_FILE if ca else None, password=endpoint.password)
        for name, content in one.files.items():
            write_file(out / name, content)
        text = f"cd {shlex.quote(str(out))} && {one.command}\n"
    body = {
        "customer": customer,
        "site": site,
        "client": kind.value,
        "bootstrap": endpoint.bootstrap_servers,
        "topics": topics,
        "group": group,
        "command": one.command,
        "password_variable": one.variable or None,
        "files": one.files if out is None else [str(out / name) for name in one.files],
        "notes": one.notes,
    }
    emit(body, as_json=as_json, render=lambda: typer.echo(text, nl=False))


def _site(topology: Topology, customer: str, at: str | None) -> str:
    if customer not in topology.customers:
        raise UnknownNameError("customer", customer, topology.customers)
    sites = sites_of(topology, customer)
    if not sites:
        raise ConfigurationError(
            f"customer {customer} reads nowhere yet",
            hint=f"give customers.{customer} a feed_at, or reads_at with the streams it may consume",
        )
    if at is None:
        return sites[0]
    if at not in sites:
        raise UnknownNameError(f"site of customer {customer}", at, sites)
    return at


def _topics(topology: Topology, customer: str, site: str, reader: Reader) -> tuple[str, ...]:
    if topology.customers[customer].feed_at is not None:
        return (f"feeds.{customer}",)
    topics = reader.visible()
    if not topics:
        raise UnavailableError(
            f"{customer} sees no topic at site {site}",
            hint=f"either nothing is there yet, or rules were never applied: fairlead acl explain {customer} TOPIC",
        )
    return topics


def _print(record: Received, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(_as_json(record)) + "\n")
        sys.stdout.flush()
    else:
        console.print(escape(as_line(record)), soft_wrap=True)


def _as_json(record: Received) -> dict[str, Any]:
    headers = {name: value.decode(errors="replace") if value is not None else None for name, value in record.headers}
    value: Any = None
    if record.value is not None:
        try:
            value = msgspec.json.decode(record.value)
        except msgspec.DecodeError:
            value = record.value.decode(errors="replace")
    key = record.key.decode(errors="replace") if record.key is not None else None
    return {
        "topic": record.topic,
        "offset": record.offset,
        "timestamp": _time(record.timestamp_ms).isoformat(),
        "key": key,
        "origin": headers.get(ORIGIN),
        "headers": headers,
        "value": value,
    }


def as_line(record: Received) -> str:
    """A record on one line for a person: a reading in columns, an alert in words, anything else as it is."""
    try:
        reading = _readings.decode(record.value or b"")
    except msgspec.DecodeError:
        key = (record.key or b"").decode(errors="replace")
        return f"{record.offset:>8}  {_time(record.timestamp_ms):%Y-%m-%d %H:%M:%S}  {key:<11}  {_words(record)}"
    supply, wanted = reading.measurements.supply_temperature, reading.setpoints.temperature
    place = reading.geo_location
    return "  ".join(
        (
            f"{record.offset:>8}",
            f"{reading.device.device_date_time.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}",
            f"{reading.equipment_reference:<11}",
            f"{supply:7.1f}" if supply is not None else f"{'-':>7}",
            f"{wanted:6.1f}" if wanted is not None else f"{'-':>6}",
            f"{'on' if reading.is_powered else 'OFF':<5}",
            f"{place.latitude:.3f} {place.longitude:.3f}" if place else "-",
        )
    )


def _words(record: Received) -> str:
    try:
        alert = _alerts.decode(record.value or b"")
    except msgspec.DecodeError:
        return (record.value or b"").decode(errors="replace")
    evidence = ", ".join(f"{one.name} ({one.detail})" if one.detail else one.name for one in alert.evidence)
    return f"{alert.severity} {alert.kind} {alert.state.lower()} by {alert.raised_at}: {evidence}"


def _time(milliseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=max(0, milliseconds))
