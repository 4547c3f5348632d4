"""``fairlead devices``: an MQTT user and password for each box, ship and terminal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from acl.devices import sites_of_device
from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, JsonOption, TopologyOption, open_topology
from fairlead.commands.devicesites import by_site, device_book, outside_sites, push
from fairlead.console import console, emit, errors
from fairlead.errors import ConfigurationError, UnknownNameError
from fairlead.local.devices import Device, check_names, device_rules
from fairlead.local.files import write_file
from fairlead.local.lock import locked

app = typer.Typer(
    help="Devices: an MQTT password for each box, ship and terminal, with which it may publish on its own topics only.",
    no_args_is_help=True,
)
NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Container numbers, IMO numbers of ships, terminal-SITE or terminal-SITE-NAME.", metavar="[DEVICE]..."
    ),
]
FromOption = Annotated[Path | None, typer.Option("--from", help="A file with one device on each line.")]


@app.command()
def enrol(
    devices: NamesArgument = None,
    source: FromOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the new passwords to this file, for its owner's eyes only.")
    ] = None,
    renew: Annotated[bool, typer.Option("--renew", help="A new password also for those that have one.")] = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Give devices a random password, and tell every site on this machine where they may be. It is never printed.

    Brokers take them without a restart. Who is enrolled already keeps its password.

    Example: fairlead devices enrol BIGU1000010 BIGU1000026 --out passwords.csv
    """
    context = open_topology(topology)
    names = _names(devices, source)
    check_names(names)
    for name in names:
        sites_of_device(context.topology, name)
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    with locked(context.folder):
        made = device_book(context.folder).enrol(names, now, renew=renew)
        if out is not None:
            write_file(out, _csv(made.values()))
        told = push(context.topology, context.folder)
    body = {"enrolled": sorted(made), "kept": sorted(set(names) - set(made)), **_told(context, told)}

    def render() -> None:
        console.print(f"{len(made)} devices enrolled, {len(set(names)) - len(made)} had a password already")
        if made:
            place = (
                f"their passwords are in {out}" if out else "fairlead devices list --out FILE writes their passwords"
            )
            console.print(escape(place), soft_wrap=True)
        _show_told(context, told)

    emit(body, as_json=as_json, render=render)


@app.command("list")
def show(
    out: Annotated[
        Path | None, typer.Option("--out", help="Write all passwords to this file, for its owner's eyes only.")
    ] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Show the enrolled devices, and how many each site knows.

    Example: fairlead devices list --json
    """
    context = open_topology(topology)
    book = device_book(context.folder).read()
    if out is not None:
        write_file(out, _csv(book.values()))
    sites = by_site(context.topology, book.values())
    body = {
        "devices": [{"device": d.name, "kind": d.kind.value, "enrolled": d.enrolled} for d in book.values()],
        "sites": {site: len(known) for site, known in sites.items()},
        "gateways": [site for site in sites if context.topology.sites[site].mqtt_gateway],
    }

    def render() -> None:
        table = Table("device", "kind", "enrolled (UTC)", box=None, pad_edge=False)
        for device in list(book.values())[:50]:
            table.add_row(device.name, device.kind, device.enrolled.removesuffix("+00:00").replace("T", " "))
        if book:
            console.print(table)
        if len(book) > 50:
            console.print(f"… {len(book) - 50:,} more (--json has all)", style="dim")
        for site, known in sites.items():
            gateway = ", and a gateway may publish for all" if context.topology.sites[site].mqtt_gateway else ""
            console.print(f"{site}: {len(known):,} devices{gateway}")

    emit(body, as_json=as_json, render=render)


@app.command()
def remove(
    devices: NamesArgument = None,
    source: FromOption = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Forget devices: they can log in no more, and sites on this machine that run end their connections at once.

    Example: fairlead devices remove BIGU1000010
    """
    context = open_topology(topology)
    names = _names(devices, source)
    with locked(context.folder):
        book = device_book(context.folder)
        known = book.read()
        for name in names:
            if name not in known:
                raise UnknownNameError("enrolled device", name, known)
        gone = book.remove(names)
        told = push(context.topology, context.folder)

    def render() -> None:
        console.print(f"{len(gone)} devices removed")
        _show_told(context, told)

    emit({"removed": list(gone), **_told(context, told)}, as_json=as_json, render=render)


@app.command()
def export(
    site: Annotated[str, typer.Argument(help="A site whose MQTT broker is not on this machine, or any other.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write to.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Write a site's part of Mosquitto's password file (hashes) and access file, for its operator to add to them.

    Example: fairlead devices export tokyo --out tokyo-mqtt
    """
    context = open_topology(topology)
    known = by_site(context.topology, device_book(context.folder).read().values())
    if site not in known:
        raise UnknownNameError("site with a way in", site, known)
    devices = known[site]
    write_file(out / "passwd.devices", "".join(device.line for device in devices))
    write_file(out / "acl.devices", device_rules(device.name for device in devices))
    files = [str(out / name) for name in ("passwd.devices", "acl.devices")]

    def render() -> None:
        console.print(f"{len(devices):,} devices of {site}: {escape(', '.join(files))}", soft_wrap=True)
        console.print("Add them to the end of the broker's password_file and acl_file, then: kill -HUP its process.")

    emit({"site": site, "devices": len(devices), "files": files}, as_json=as_json, render=render)


def _names(devices: list[str] | None, source: Path | None) -> list[str]:
    names = list(devices or ())
    if source is not None:
        try:
            lines = source.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"{source} cannot be read: {error}", hint="a text file with one device on each line"
            ) from None
        names += [text for line in lines if (text := line.partition("#")[0].strip())]
    if not names:
        raise ConfigurationError("no device was named", hint="name some, or give a file of them: --from FILE")
    return list(dict.fromkeys(names))


def _csv(devices: Iterable[Device]) -> str:
    rows = "".join(f"{device.name},{device.password.get_secret_value()}\n" for device in devices)
    return f"user,password\n{rows}"


def _told(context: Context, told: dict[str, bool]) -> dict[str, object]:
    return {
        "told": [site for site, runs in told.items() if runs],
        "when_started": [site for site, runs in told.items() if not runs],
        "to_export": outside_sites(context.topology),
    }


def _show_told(context: Context, told: dict[str, bool]) -> None:
    running, waiting = ([site for site, runs in told.items() if runs is wanted] for wanted in (True, False))
    if running:
        console.print(f"told: {', '.join(running)}")
    if waiting:
        console.print(f"when they are started: {', '.join(waiting)}")
    for site in outside_sites(context.topology):
        errors.print(f"{site} is not on this machine: fairlead devices export {site} --out FOLDER", style="yellow")
