"""``fairlead board``: serve the pages for a browser, until Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from board import PORT
from fairlead.cli.commands.context import (
    MetricsHostOption,
    MetricsPortOption,
    TopologyOption,
    metrics_page,
    site_option,
)
from fairlead.cli.console import console
from fairlead.errors import ConfigurationError
from fairlead.local.workers import Workers
from fairlead.scrape import ADDRESS, serve
from fairlead.waiting import stopped_by_signals
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology
from topologies.model import check_sites

if TYPE_CHECKING:  # imports the web server and the tables' readers
    from board.server import Listen

_ADDRESSES = re.compile(r"https?://\S+")


def board(
    site: Annotated[str | None, site_option("Whose Kafka it reads.", show_default=False)] = None,
    host: Annotated[str, typer.Option("--host", help="Listen on this address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Listen on this port; 0: any free one.", min=0, max=65535)] = PORT,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Another name under which browsers reach it; may be repeated.", metavar="NAME"),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="PEM file with its certificate, for TLS.", metavar="FILE")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", help="PEM file with the key.", metavar="FILE")] = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = ADDRESS,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
) -> None:
    """Serve pages for a browser: the fleet, ports, containers, and each customer's own containers.

    Runs until Ctrl-C. People sign in with the name and password of their Kafka user. The printed link signs in whoever
    starts the board, once, within ten minutes; a board that others reach, also by a proxy (--name), prints it on a
    terminal only. Without --certificate it listens on this machine only.

    Example: fairlead board --site los-angeles
    """
    leave_out_pandas()
    from board.server import Listen

    context = open_topology(topology)
    listen = Listen(host, port, tuple(name or ()), certificate, key)
    listen.check()
    asyncio.run(_serve(context, site_of_board(context, site), listen, metrics_host, metrics_port))


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("no page needs pandas", name=name)


def leave_out_pandas() -> None:
    """Let this process not find pandas, which pyarrow loads wherever it can: 37 MB, which no page needs."""
    sys.meta_path.insert(0, _NoPandas())


async def _serve(context: Context, site: str, listen: Listen, metrics_host: str, metrics_port: int | None) -> None:
    from board.prometheus import board_metrics
    from board.server import serving
    from board.service import BoardService
    from board.viewer import LOCAL

    ended = stopped_by_signals()
    service = BoardService(context, site)
    metrics = metrics_page(lambda port, host: serve(board_metrics, [service], port, host), metrics_port, metrics_host)
    async with serving(service, listen) as address, metrics:
        # What is loaded now stays. A port's report makes 100,000 objects, and Python would look through everything else
        # for garbage as well: that took a quarter of the report's time.
        gc.freeze()
        console.print(f"The board of {site} is at {address}", soft_wrap=True, highlight=False)
        if listen.is_private or console.is_terminal:  # else a log of a service would have the link
            link = f"{address}/local/{service.sessions.link_for(LOCAL.name)}"
            console.print(
                f"Sign in as the operator of this machine, once, within ten minutes: {link}",
                soft_wrap=True,
                highlight=False,
            )
        await ended.wait()
        gc.unfreeze()  # else DuckDB's module names at the end what it takes for leaks


def start_in_background(context: Context, page: str = "") -> str:
    """Start the board as a worker; return the link that signs in and leads to a page (the first one, where none is
    given), or the page's address where the board runs already.

    Raises:
        UnavailableError: it has not started within a minute; with the last lines of its log.
    """
    site = site_of_board(context)
    workers, name = Workers(context.folder), f"board.{site}"
    known = {each.name: each for each in workers.all()}
    if name in known and known[name].running:
        return _printed(known[name].log)[-1].partition("/local/")[0] + page
    log = context.folder / "run" / f"{name}.log"
    before = len(_printed(log))
    arguments = ["board", "--site", site, "--port", "0", "--topology", context.source]
    workers.start(name, arguments, ready=lambda: len(_printed(log)) > before)
    return _printed(log)[-1] + (f"?next={page}" if page else "")


def _printed(log: Path) -> list[str]:
    """Return the links that boards have printed into a worker's log, each start one."""
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    return [each for each in _ADDRESSES.findall(text) if "/local/" in each]


def site_of_board(context: Context, asked: str | None = None) -> str:
    """Return the site of the board: the one asked for, else the first of ``board.at``, else shore's.

    Raises:
        UnknownNameError, ConfigurationError: there is no such site; none was asked for, and the topology names none.
    """
    topology = context.topology
    if asked is not None:
        check_sites(topology, [asked])
    usual = topology.board.at[0] if topology.board else topology.shore.at if topology.shore else None
    found = asked or usual
    if found is None:
        raise ConfigurationError(
            f"topology {topology.name} says neither where the board runs nor where shore runs",
            hint=f"give --site: {', '.join(topology.sites)}",
        )
    return found


def usual_site(context: Context) -> str:
    """Return the site at which everything of a fleet arrives: shore's, else the topology's first."""
    topology = context.topology
    return topology.shore.at if topology.shore else next(iter(topology.sites))
