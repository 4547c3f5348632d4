"""``fairlead up``, ``down`` and ``status``: start, stop and show the local sites of a topology."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from acl.apply import apply_topology
from acl.devices import place_devices
from fairlead.cli.commands.context import (
    DryRunOption,
    JsonOption,
    TopologyOption,
    YesOption,
    complete_site,
    shared_data,
)
from fairlead.cli.commands.sites.status import show
from fairlead.cli.console import Consent, console, emit, errors
from fairlead.errors import ConfigurationError, ExitCode, UnknownNameError
from fairlead.fleet_status import fleet_status, loses
from fairlead.local.processes import interruptible
from fairlead.local.registry import LocalSiteRegistry
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.local.sites import Progress as Tell
from fairlead.local.state import Profile, all_states
from fairlead.local.tls import OwnCertificate, Wanted
from fairlead.local.workers import Workers
from shore.report.wording import count
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology
from topologies.loader.load import shipped
from topologies.model import Topology
from topologies.users import mqtt_users, service_users

SitesArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Only these sites. Default: all.", metavar="[SITE]...", autocompletion=complete_site),
]


def up(
    sites: SitesArgument = None,
    mqtt_profile: Annotated[
        Profile | None,
        typer.Option(
            help="What Mosquitto may lose when it is killed: nothing (durable) or the last seconds (fast). "
            "Kept until changed; new sites are durable."
        ),
    ] = None,
    tls: Annotated[
        bool | None,
        typer.Option(
            "--tls/--no-tls",
            help="Use TLS only, or none, for all clients. Kept until changed; new sites follow the topology. "
            "Stop running sites first.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Start sites: a Kafka and a Mosquitto each, on this machine.

    Creates their users and ACLs. Sites that run are left alone. If one cannot be started, or on Ctrl-C, those that this
    call started are stopped.

    Example: fairlead up tokyo duck-star
    """
    context = open_topology(topology)
    names = _named(context, sites)
    _warn(context, quiet=as_json)
    if dry_run:
        Consent(yes=False, dry_run=True, as_json=as_json).agreed(_up_plan(context, names))
        return
    began = time.monotonic()
    local = bring_up(context, names, quiet=as_json, mqtt_profile=mqtt_profile, tls=tls)
    seconds = time.monotonic() - began
    found = context.local.status()
    body = {
        "topology": context.topology.name,
        "folder": str(context.folder),
        "seconds": round(seconds, 1),
        "sites": [
            {"site": name, "kafka": f"127.0.0.1:{found[name].kafka_port}", "mqtt": f"127.0.0.1:{found[name].mqtt_port}"}
            for name in local
        ],
    }

    def render() -> None:
        elsewhere = f", {len(names) - len(local)} elsewhere" if len(local) < len(names) else ""
        console.print(
            f"{count(len(local), 'site')} ready in {seconds:.1f} s{elsewhere}; "
            f"the data is in {escape(str(context.folder))}",
            soft_wrap=True,
        )

    emit(body, as_json=as_json, render=render)


def _up_plan(context: Context, names: Sequence[str]) -> list[str]:
    runs = {name for name, found in context.local.status().items() if found.kafka_up and found.mqtt_up}
    local = [name for name in names if context.topology.sites[name].is_local]
    plan = [f"start {name}: Kafka and Mosquitto" for name in local if name not in runs]
    plan += [f"leave {name} alone: it runs" for name in local if name in runs]
    return [*plan, f"make the ACLs of {', '.join(names)} what the topology says"]


def bring_up(
    context: Context,
    names: Sequence[str],
    *,
    quiet: bool,
    mqtt_profile: Profile | None = None,
    tls: bool | None = None,
) -> list[str]:
    """Start these sites, with users and access rules, and wait until they serve; return the names of the local ones.

    On Ctrl-C, stop those of which nothing ran before.
    """
    topology = context.topology
    local = [name for name in names if topology.sites[name].is_local]
    specs = [
        SiteSpec(
            name,
            tuple(service_users(topology, name)),
            mqtt_users(topology, name),
            mqtt_profile=mqtt_profile or topology.sites[name].mqtt_profile,
            tls=_tls(topology, name, tls),
        )
        for name in local
    ]
    with _ending_is_interrupting(), _progress(local, quiet=quiet) as tell:
        place_devices(topology, context.folder, local)
        ran = {name for name, found in context.local.status().items() if found.pids}
        sites = LocalSites(context.folder)
        sites.up(specs, on_progress=tell)
        try:
            apply_topology(context.topology, context.resolver, names, tell)
        except KeyboardInterrupt:
            if started := [name for name in local if name not in ran]:
                tell("", f"stopping {', '.join(started)}")
                with interruptible(threading.Event()):  # an impatient second Ctrl-C does not leave some of them
                    sites.down(started)
            raise
    return local


def _tls(topology: Topology, site: str, told: bool | None) -> Wanted:
    """Return a site's TLS: off if ``told`` is False, else its own certificate, if any; None leaves it as it is."""
    own = topology.sites[site].certificate
    if told is False:
        return False
    if own is not None:
        return OwnCertificate(Path(own.file), Path(own.key), Path(own.ca))
    return told or topology.tls or None


def down(
    sites: SitesArgument = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete the data: logs, tables, ports and passwords. Asks first.")
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stop sites and their workers. Data and ports are kept unless --purge is given.

    Asks only with --purge.

    Example: fairlead down --purge
    """
    consent = Consent(yes=yes or not purge, dry_run=dry_run, as_json=as_json)
    context = open_topology(topology)
    _warn(context, quiet=as_json or not purge)
    workers = Workers(context.folder)
    names = [*_named(context, sites, also=context.local.status())] if sites else None
    plan = _down_plan(context, names, purge=purge)
    if not consent.agreed(plan):
        return
    workers.stop([name for site in names for name in workers.of_site(site)] if names is not None else None)
    LocalSites(context.folder).down(names, purge=purge)
    what = ", ".join(names) if names is not None else "all sites"
    emit(
        {"applied": True, "plan": plan},
        as_json=as_json,
        render=lambda: console.print(f"{context.topology.name}: {what} stopped{' and forgotten' if purge else ''}"),
    )


def _down_plan(context: Context, names: Sequence[str] | None, *, purge: bool) -> list[str]:
    plan = [f"stop {'all sites' if names is None else ', '.join(names)} of {context.topology.name}, and their workers"]
    if purge and names is None:
        plan.append(f"delete everything in {context.folder}: logs, tables, reports, passwords, certificates, devices")
    elif purge:
        plan += [
            f"delete {context.folder / 'sites' / name}: its logs, and its ports and passwords" for name in names or ()
        ]
    return plan


def status(
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="End with 1 when a log's state means loss, a source has deleted what a site lacks, or a bridge has an "
            "alarm.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show sites, links, lag, logs in trouble, and workers.

    Example: fairlead status --json
    """
    context = open_topology(topology)
    found = fleet_status(context.topology, context.folder, context.local, context.resolver)

    def render() -> None:
        show(found, console)
        for name in _running_instead(context, found):
            known = name in shipped()
            where = f"--topology {name}" if known else f"--topology FILE, with the file of {name}"
            console.print(escape(f"{name} runs: fairlead status {where}"), soft_wrap=True)

    emit(found, as_json=as_json, render=render)
    if check and loses(found):
        raise typer.Exit(ExitCode.FAILED)


def _running_instead(context: Context, found: Mapping[str, Any]) -> list[str]:
    """Return other topologies of this FAIRLEAD_HOME that run; none if anything of this one may run, as ``found`` by
    ``fleet_status`` or beside it."""
    if not all(site["local"] and not (site["kafka"]["up"] or site["mqtt"]["up"]) for site in found["sites"]):
        return []
    if _runs(context.local):  # a site that the topology has no more
        return []
    folders = [folder for folder, _ in all_states() if folder != context.folder]
    return [folder.name for folder in folders if _runs(LocalSiteRegistry(folder))]


def _runs(local: LocalSiteRegistry) -> bool:
    return any(each.kafka_up or each.mqtt_up for each in local.status().values())


def _warn(context: Context, *, quiet: bool) -> None:
    for each in () if quiet else shared_data(context.topology, context.source):
        errors.print(f"[yellow]warning:[/] {escape(each)}", soft_wrap=True)


def _named(context: Context, sites: Sequence[str] | None, also: Iterable[str] = ()) -> list[str]:
    valid = [*context.topology.sites, *(name for name in also if name not in context.topology.sites)]
    for name in sites or ():
        if name not in valid:
            if name in shipped():
                raise ConfigurationError(f"{name} is a topology, not a site", hint=f"choose it so: --topology {name}")
            raise UnknownNameError("site", name, valid)
    return [name for name in valid if not sites or name in sites]


@contextmanager
def _progress(names: Sequence[str], *, quiet: bool) -> Iterator[Tell]:
    """Yield a function that shows each site's progress on its line; without a terminal it prints plain lines."""
    if not errors.is_terminal or quiet:
        yield lambda name, text: None if quiet else errors.print(escape(f"{name}: {text}" if name else text))
        return
    columns = (SpinnerColumn(finished_text="[green]✓[/]"), TextColumn("{task.fields[site]:<16}"))
    with Progress(*columns, TextColumn("{task.description}"), TimeElapsedColumn(), console=errors) as progress:
        general = progress.add_task("looking for Java, Mosquitto and jars", site="", total=1)
        tasks = {name: progress.add_task("waiting", site=name, total=1, start=False) for name in names}

        def tell(name: str, text: str) -> None:
            if name in tasks:
                progress.update(general, completed=1, visible=False)
                progress.start_task(tasks[name])
                progress.update(tasks[name], description=escape(text), completed=int(text == "ready"))
            else:
                progress.update(general, description=escape(f"{name} {text}".strip()), visible=True)

        yield tell


@contextmanager
def _ending_is_interrupting() -> Iterator[None]:
    """Treat SIGTERM and a closed terminal as Ctrl-C, so that whatever a start has half started is stopped."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
