"""The options by which services serve their metrics, and the metrics page while they run."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Annotated

import typer

from fairlead.cli.console import errors
from fairlead.scrape import MetricsServer, serving

MetricsPortOption = Annotated[
    int | None,
    typer.Option("--metrics-port", help="Serve Prometheus metrics at this port; 0: any free one.", min=0, max=65535),
]
MetricsHostOption = Annotated[
    str,
    typer.Option("--metrics-host", help="Listen on this address for metrics. They contain names of topics."),
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
