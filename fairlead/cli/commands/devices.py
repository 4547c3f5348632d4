"""``fairlead devices``: an MQTT user and password for each container, ship, terminal and booking office."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from acl.devices import by_site, device_book, local_sites, outside_sites, push, sites_of_device
from fairlead.cli.commands.context import (
    DryRunOption,
    JsonOption,
    TopologyOption,
    YesOption,
    require_writable,
    site_option,
    writing,
)
from fairlead.cli.console import Consent, console, emit, errors
from fairlead.errors import ConfigurationError, OptionError, UnknownNameError
from fairlead.local.devices import MqttDevice, check_names, device_rules
from fairlead.local.files import write_file
from fairlead.local.state import locked
from shore.report.wording import count
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology

app = typer.Typer(
    help="Give each container, ship, terminal and booking office an MQTT password.",
    epilog="Example: fairlead devices enrol BIGU1000010 --out passwords.csv",
    no_args_is_help=True,
)
NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Container numbers, IMO numbers of ships, terminal-SITE or terminal-SITE-NAME for a gate or a quay, "
        "office-SITE or office-SITE-NAME for a booking office.",
        metavar="[DEVICE]...",
    ),
]
FromOption = Annotated[Path | None, typer.Option("--file", help="A file with one device on each line.")]


@app.command()
def enrol(
    devices: NamesArgument = None,
    source: FromOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the new passwords to this file (mode 0600).")] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Also give new passwords to devices that have one.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Give each device a random MQTT password, which is never printed.

    Running sites on this machine accept it without a restart. An enrolled device keeps its password; when all of them
    have one, no file is written.

    Example: fairlead devices enrol BIGU1000010 BIGU1000026 --out passwords.csv --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    context = open_topology(topology)
    names = _names(devices, source)
    check_names(names)
    for name in names:
        sites_of_device(context.topology, name)
    known = device_book(context.folder).read()
    plan = [
        f"give {name} {'another' if name in known else 'a'} password" for name in names if renew or name not in known
    ]
    plan += [f"put their passwords into {out}"] if plan and out is not None else []
    here = local_sites(context.topology)
    plan += [f"pass them on to {', '.join(here)}"] if plan and here else []
    plan = plan or ["nothing to do: all of them have a password"]
    if not consent.agreed(plan):
        return
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    with locked(context.folder):
        if out is not None:
            require_writable(out)
        made = device_book(context.folder).enrol(names, now, renew=renew)
        if out is not None and made:
            with writing(out, "file"):
                write_file(out, _csv(made.values()))
        told = push(context.topology, context.folder)
    body = {"enrolled": sorted(made), "kept": sorted(set(names) - set(made)), **_told(context, told)}

    def render() -> None:
        console.print(f"{count(len(made), 'device')} enrolled, {len(set(names)) - len(made)} had a password already")
        if made:
            place = (
                f"their passwords are in {out}" if out else "fairlead devices list --out FILE writes their passwords"
            )
            console.print(escape(place), soft_wrap=True)
        elif out is not None:
            place = f"{out} is not written; fairlead devices list --out FILE writes all passwords"
            console.print(escape(place), soft_wrap=True)
        _show_told(context, told)

    emit(body, as_json=as_json, render=render)


@app.command("list")
def show(
    out: Annotated[Path | None, typer.Option("--out", help="Write all passwords to this file (mode 0600).")] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """List enrolled devices, and how many each site knows.

    Example: fairlead devices list --json
    """
    context = open_topology(topology)
    book = device_book(context.folder).read()
    if out is not None:
        with writing(out, "file"):
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
            console.print(f"{site}: {count(len(known), 'device')}{gateway}")

    emit(body, as_json=as_json, render=render)


@app.command()
def remove(
    devices: NamesArgument = None,
    source: FromOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Remove devices: they cannot log in, and running sites end their connections at once.

    Example: fairlead devices remove BIGU1000010 --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    context = open_topology(topology)
    names = _names(devices, source)
    book = device_book(context.folder)
    known = book.read()
    for name in names:
        if name not in known:
            raise UnknownNameError("enrolled device", name, known)
    plan = [f"forget {name}: it can log in no more, and running sites end its connection" for name in names]
    if not consent.agreed(plan):
        return
    with locked(context.folder):
        gone = book.remove(names)
        told = push(context.topology, context.folder)

    def render() -> None:
        console.print(f"{count(len(gone), 'device')} removed")
        _show_told(context, told)

    emit({"removed": list(gone), **_told(context, told)}, as_json=as_json, render=render)


@app.command()
def export(
    site: Annotated[str, site_option("The site of the broker.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write to.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Write a site's Mosquitto password and access files, for a broker that is not on this machine.

    Example: fairlead devices export --site tokyo --out tokyo-mqtt
    """
    context = open_topology(topology)
    known = by_site(context.topology, device_book(context.folder).read().values())
    if site not in known:
        raise UnknownNameError("site with a bridge", site, known)
    devices = known[site]
    with writing(out, "folder"):
        write_file(out / "passwd.devices", "".join(device.line for device in devices))
        write_file(out / "acl.devices", device_rules(device.name for device in devices))
    files = [str(out / name) for name in ("passwd.devices", "acl.devices")]

    def render() -> None:
        console.print(f"{count(len(devices), 'device')} of {site}: {escape(', '.join(files))}", soft_wrap=True)
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
        raise OptionError("no device was named", hint="name some, or give a file of them: --file FILE")
    return list(dict.fromkeys(names))


def _csv(devices: Iterable[MqttDevice]) -> str:
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
        console.print(f"in effect now at {', '.join(running)}")
    if waiting:
        console.print(f"in effect at the next start of {', '.join(waiting)}")
    for site in outside_sites(context.topology):
        errors.print(
            f"{site} is not on this machine: fairlead devices export --site {site} --out FOLDER", style="yellow"
        )
