"""Options that many commands share, what they mean, and names for shell completion.

Every command parses times and durations here, so that ``24h`` and ``2026-03-01`` mean the same everywhere. A time
without a zone is UTC.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from fairlead.cli.console import errors
from fairlead.errors import ConfigurationError, FairleadError, OptionError, UnavailableError
from fairlead.home import private_folder, topology_folder
from fairlead.local.state import read_state
from fairlead.scrape import MetricsServer, serving
from topologies.context import DEFAULT_TOPOLOGY
from topologies.loader.load import load, locate, shipped
from topologies.model import Topology
from topologies.values import parse_duration


def complete_topology(incomplete: str) -> list[str]:
    """Return names of shipped topologies for shell completion; the shell itself adds files."""
    return [name for name in shipped() if name.startswith(incomplete)]


def complete_site(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the sites of the topology named before the cursor; none if it cannot be loaded."""
    try:
        topology = load(ctx.params.get("topology") or DEFAULT_TOPOLOGY)
    except FairleadError:
        return []
    return [site for site in topology.sites if site.startswith(incomplete)]


TopologyOption = Annotated[
    str,
    typer.Option(
        "--topology",
        "-t",
        envvar="FAIRLEAD_TOPOLOGY",
        autocompletion=complete_topology,
        help="A shipped topology's name or a YAML file.",
        show_default=True,
    ),
]


def site_option(what: str, **settings: Any) -> Any:
    """Return the option ``--site``, with its help."""
    return typer.Option("--site", "-s", help=what, metavar="SITE", autocompletion=complete_site, **settings)


SiteOption = Annotated[str | None, site_option("Ask this site.")]
SitesOption = Annotated[list[str] | None, site_option("Only this site; may be repeated. Default: all.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for another program.")]
WaitOption = Annotated[
    float,
    typer.Option("--wait", help="Wait this many seconds for the change to take effect.", metavar="SECONDS", min=0),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Carry the plan out without asking.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the plan; change nothing.")]
MetricsPortOption = Annotated[
    int | None,
    typer.Option("--metrics-port", help="Serve Prometheus metrics at this port; 0: any free one.", min=0, max=65535),
]
MetricsHostOption = Annotated[
    str,
    typer.Option("--metrics-host", help="Listen on this address for metrics. They contain names of logs."),
]


@contextlib.asynccontextmanager
async def metrics_page(start: Callable[[int, str], MetricsServer], port: int | None, host: str) -> AsyncIterator[None]:
    """Serve metrics inside the context, if there is a port; print the address.

    Raises:
        UnavailableError: the address or port cannot be used.
    """
    server = start(port, host) if port is not None else None
    if server is not None:
        errors.print(f"metrics at http://{host}:{server.port}/metrics")
    async with serving(server):
        yield


@contextlib.contextmanager
def writing(where: Path, what: Literal["file", "folder"], option: str = "--out") -> Iterator[None]:
    """Turn an OSError while writing into an error that names the option."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"{where} cannot be written: {error.strerror or error}", hint=f"name another {what} with {option}"
        ) from error


def require_writable(file: Path) -> None:
    """Check that a file can be written, before anything else is done. Creates missing folders above it.

    Raises:
        UnavailableError: it is a folder, or its folder cannot be created or written.
    """
    with writing(file, "file"):
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=private_folder(file.parent)):
            pass


def shared_data(topology: Topology, source: str) -> list[str]:
    """Return warnings that a topology's state folder seems to be another one's, because both have one name."""
    folder = topology_folder(topology.name)
    try:
        sites = read_state(folder / "state.json").sites
    except ConfigurationError:
        return []  # damaged: purging it must work
    found = []
    if others := [name for name in sites if name not in topology.sites]:
        found.append(
            f"{folder} has data of {', '.join(others)}, which {source} does not have; if it is another topology's, "
            "rename this one"
        )
    ours = shipped().get(topology.name)
    if sites and ours is not None and not locate(source).samefile(ours):
        found.append(
            f"{source} and the shipped topology {topology.name} have one name, and so share the data in {folder}; "
            "rename this one"
        )
    return found


_HINT: Final = (
    "a day like 2026-03-01, a time like 2026-03-01T06:00Z (UTC without a zone), or how long ago: 30m, 24h, 7d"
)


def parse_span(option: str, text: str) -> dt.timedelta:
    """Parse a duration: ``90s``, ``30m``, ``24h``, ``7d``, or ``forever``.

    Raises:
        OptionError: it is none of these.
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise OptionError(f"{option} {text}: {error}", hint="a time like 90s, 30m, 24h or 7d") from error


def parse_moment(option: str, text: str | None) -> dt.datetime | None:
    """Parse a day, a time, or how long ago: ``2026-03-01``, ``2026-03-01T06:00Z``, ``24h``; return None for None.

    Raises:
        OptionError: it is none of these, or too long ago to be a date.
    """
    if text is None:
        return None
    try:
        ago = parse_duration(text)
    except ValueError:
        return _written(option, text)
    try:
        return dt.datetime.now(dt.UTC) - ago
    except OverflowError:
        raise OptionError(f"{option} {text}: no date is so long ago", hint=_HINT) from None


def check_order(first: dt.datetime | None, end: dt.datetime | None, options: tuple[str, str]) -> None:
    """Raise OptionError unless the first moment is before the other; None means no limit."""
    if first is not None and end is not None and first >= end:
        one, other = options
        raise OptionError(f"{one} is not before {other}: no time is left between them", hint=f"{other} is exclusive")


def _written(option: str, text: str) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(text)
        return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise OptionError(f"{option} {text}: this is no time", hint=_HINT) from None
