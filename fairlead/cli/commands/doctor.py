"""``fairlead doctor``: check whether this machine can run a topology's sites, before anything is started.

Checks what fails in practice: Java, Mosquitto, jars, ports, open files, disk. Starts only ``mosquitto`` and ``java``,
to ask for their versions, and changes nothing except for a temporary file in the state folder.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.markup import escape
from rich.table import Table

from fairlead import home
from fairlead.cli.commands.context import JsonOption, TopologyOption
from fairlead.cli.console import console, emit
from fairlead.errors import ExitCode, UnavailableError
from fairlead.jars import ensure_jars, find_java, jar_set
from fairlead.jars.java import OLDEST, java_version
from fairlead.jars.store import missing_jars
from fairlead.local import ports
from fairlead.local.files import nearest_existing, require_room
from fairlead.local.mosquitto import find_mosquitto
from fairlead.local.registry import LocalSite
from fairlead.local.state import SiteState, read_state
from topologies.context import DEFAULT_TOPOLOGY, open_topology

JAR_SETS: Final = ("kafka", "delta")
# Measured with Kafka 4.3.1, KRaft, one broker. With 20,000 open files a broker stopped at 18,400 logs.
FILES_EMPTY, FILES_PER_LOG = 140, 1.08
DISK_EMPTY, DISK_PER_LOG = 100 << 20, 24 << 10  # bytes; a new log has two small files and a few records
PORTS_PER_SITE = 3


class CheckResult(StrEnum):
    """``FAILED``: something will not work. ``WARNING``: it will work if the advice is followed."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


_COLOURS: Final = {CheckResult.OK: "green", CheckResult.WARNING: "yellow", CheckResult.FAILED: "bold red"}


@dataclass(frozen=True, slots=True)
class Check:
    """A check's result, the requirement, and the remedy (empty if none is needed)."""

    name: str
    verdict: CheckResult
    found: str
    needed: str
    todo: str = ""


def doctor(
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    logs: Annotated[
        int, typer.Option("--logs", min=1, help="How many logs each broker is to hold: one for each box and ship.")
    ] = 1_000,
    download: Annotated[bool, typer.Option("--download", help="Download missing jars now.")] = False,
    json: JsonOption = False,
) -> None:
    """Check that this machine has the Java, Mosquitto, jars, ports, open files and disk that a topology needs.

    Exits with 1 if a check fails; a warning is not a failure. Starts no sites and changes nothing.

    Example: fairlead doctor --topology big-blue --logs 20000
    """
    context = open_topology(topology)
    sites = [name for name, site in context.topology.sites.items() if site.is_local]
    checks = examine(context.folder, sites, logs, download=download)
    data = {"topology": context.topology.name, "checks": [asdict(each) for each in checks]}
    emit(data, as_json=json, render=lambda: _show(checks))
    if any(each.verdict is CheckResult.FAILED for each in checks):
        raise typer.Exit(ExitCode.FAILED)


def examine(folder: Path, sites: Sequence[str], logs: int, *, download: bool = False) -> list[Check]:
    """Run all checks.

    Args:
        folder: The topology's state folder; need not exist.
        sites: The topology's sites on this machine.
        logs: How many logs each broker must hold.
        download: Download missing jars first.
    """
    states = read_state(folder / "state.json").sites
    brokers = sum(len(states[name].brokers) if name in states else 1 for name in sites)
    return [
        java(),
        mosquitto(),
        jars(download=download),
        free_ports(folder, states, PORTS_PER_SITE * sum(name not in states for name in sites)),
        open_files(resource.getrlimit(resource.RLIMIT_NOFILE), logs),
        disk(folder, brokers, logs),
    ]


def java() -> Check:
    needed = f"{OLDEST} or later, for Kafka's brokers and Spark"
    try:
        path = find_java()
    except UnavailableError as error:
        return _failed("java", error, needed)
    return Check("java", CheckResult.OK, f"{java_version(path)} at {path}", needed)


def mosquitto() -> Check:
    needed = "2.0 or later with mosquitto_passwd, for each site's devices"
    try:
        found = find_mosquitto()
    except UnavailableError as error:
        return _failed("mosquitto", error, needed)
    return Check("mosquitto", CheckResult.OK, f"{found.version} at {found.broker}", needed)


def jars(*, download: bool = False) -> Check:
    """Check that the locked jars of Kafka and Delta are in the cache and verified."""
    store = home.cache() / "jars"
    total = sum(len(jar_set(name).jars) for name in JAR_SETS)
    needed = f"{total} jars with the SHA-256 of jars.lock"
    try:
        for name in JAR_SETS if download else ():
            ensure_jars(name)
    except UnavailableError as error:
        return _failed("jars", error, needed)
    missing = sum(len(missing_jars(name)) for name in JAR_SETS)
    if not missing:
        return Check("jars", CheckResult.OK, f"{total} in {store}", needed)
    found = f"{missing} of {total} are missing from {store} or not verified"
    if not os.access(nearest_existing(store), os.W_OK):
        todo = "make that folder writable, or set FAIRLEAD_CACHE to one that is"
        return Check("jars", CheckResult.FAILED, f"{found}, which cannot be written", needed, todo)
    todo = "fairlead doctor --download downloads them now; else fairlead up does when it needs them"
    return Check("jars", CheckResult.WARNING, found, needed, todo)


def free_ports(folder: Path, states: Mapping[str, SiteState], wanted: int) -> Check:
    """Check that known sites can have their ports again, and that ``wanted`` others are free for new sites."""
    needed = f"the ports that known sites had, and {wanted} others between {ports.FIRST} and {ports.LAST}"
    taken = [
        f"{name}'s {what}, {port}, is held by {ports.holder(port)}"
        for name, state in states.items()
        for what, port in LocalSite(folder, name).taken_ports(state).items()
    ]
    if taken:
        todo = "end that process; or fairlead down SITE --purge forgets the site's data and ports"
        return Check("ports", CheckResult.FAILED, "; ".join(taken), needed, todo)
    try:
        ports.choose_ports(max(1, wanted), taken=[port for state in states.values() for port in state.ports])
    except UnavailableError as error:
        return _failed("ports", error, needed)
    return Check("ports", CheckResult.OK, "free", needed)


def open_files(limit: tuple[int, int], logs: int) -> Check:
    """Check that a broker may open a file for each log.

    Args:
        limit: Soft and hard limit. Only the hard one counts: a JVM raises its soft limit by itself.
        logs: How many logs each broker must hold.
    """
    soft, hard = limit
    wanted = round(FILES_EMPTY + logs * FILES_PER_LOG)
    needed = f"{wanted:,} for a broker of {logs:,} logs"
    if hard in (resource.RLIM_INFINITY, -1):
        return Check("open files", CheckResult.OK, "no limit", needed)
    room = max(0, int((hard - FILES_EMPTY) / FILES_PER_LOG))
    found = f"{hard:,} (soft {soft:,}): at most {room:,} logs a broker"
    if hard >= wanted * 1.25:
        return Check("open files", CheckResult.OK, found, needed)
    todo = "raise the hard limit: ulimit -Hn, LimitNOFILE= of systemd, nofile in /etc/security/limits.conf"
    return Check("open files", CheckResult.FAILED if hard < wanted else CheckResult.WARNING, found, needed, todo)


def disk(folder: Path, brokers: int, logs: int) -> Check:
    """Check that the state folder can be written and has room for the brokers' logs."""
    wanted = brokers * (DISK_EMPTY + logs * DISK_PER_LOG)
    needed = f"{wanted >> 20:,} MB for {brokers} brokers of {logs:,} logs, writable"
    existing = nearest_existing(folder)
    try:
        require_room(folder, wanted)
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(bytes(4096))
    except UnavailableError as error:
        return _failed("disk", error, needed)
    except OSError as error:
        todo = "make it writable, or set FAIRLEAD_HOME to a folder that is"
        return Check("disk", CheckResult.FAILED, f"{existing} cannot be written: {error.strerror}", needed, todo)
    return Check("disk", CheckResult.OK, f"{folder}: {shutil.disk_usage(existing).free >> 20:,} MB free", needed)


def _failed(name: str, error: UnavailableError, needed: str) -> Check:
    return Check(name, CheckResult.FAILED, error.what, needed, error.hint)


def _show(checks: Sequence[Check]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("", "Check", "Found", "Needed"):
        table.add_column(column, overflow="fold")
    for each in checks:
        verdict = f"[{_COLOURS[each.verdict]}]{each.verdict}[/]"
        table.add_row(verdict, f"[bold]{each.name}[/]", escape(each.found), escape(each.needed))
    console.print(table)
    for each in checks:
        if each.todo:
            console.print(f"\n[{_COLOURS[each.verdict]}]{each.name}[/]  {escape(each.todo)}", soft_wrap=True)
