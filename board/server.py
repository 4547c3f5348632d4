"""Serve the board over HTTP until stopped."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
from starlette.routing import BaseRoute

from board import PORT
from board.app import create_app
from board.security import host_of
from board.service import BoardService
from board.sharing.routes import routes
from board.sharing.service import SharingService
from fairlead.errors import ConfigurationError, OptionError, UnavailableError
from topologies.values import LOOPBACK

_TURN: Final = 0.0002
"""Seconds after which a thread that computes lets another one run; Python's own are 0.005.

A page asks some 45 questions of the tables and waits for its turn after each. Beside a port's page that is made, a
container's page took 1.4 s instead of 0.3 s, and takes 0.65 s so; the port's page takes as long as before.
"""
_GRACE: Final = 1  # seconds for requests under way when the board ends; open event streams are cut


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the board listens.

    Args:
        port: 0 for any free one.
        names: Further names under which browsers reach it, such as that of a proxy.
        certificate, key: PEM files for TLS; None without TLS.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None

    @property
    def tls(self) -> bool:
        return self.certificate is not None

    @property
    def is_private(self) -> bool:
        """Whether only browsers of this machine reach it: no network and no proxy."""
        return self.host in LOOPBACK and not self.names

    def check(self) -> None:
        """Check that passwords never cross a network in clear text.

        Raises:
            ConfigurationError: it would listen beyond this machine without TLS, or half of the TLS files is missing.
        """
        if (self.certificate is None) != (self.key is None):
            raise OptionError("TLS needs a certificate and its key", hint="give --certificate and --key")
        if not self.tls and self.host not in LOOPBACK:
            raise OptionError(
                f"{self.host} without TLS: passwords would cross the network in clear text",
                hint="give --certificate and --key, or let a proxy with TLS on this machine pass requests to 127.0.0.1",
                host=self.host,
            )


@contextlib.asynccontextmanager
async def serving(board: BoardService, listen: Listen) -> AsyncIterator[str]:
    """Serve inside the context; give the address for a browser.

    Raises:
        ConfigurationError: see ``Listen.check``; or the files for TLS cannot be used.
        UnavailableError: the address or port cannot be used.
    """
    listen.check()
    _allow_many_connections()
    sys.setswitchinterval(_TURN)
    names = {*LOOPBACK, host_of(listen.host) or listen.host, *(host_of(name) for name in listen.names)}
    app = create_app(board, hosts=names, further=shares(board))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE,
        ssl_certfile=str(listen.certificate) if listen.certificate else None,
        ssl_keyfile=str(listen.key) if listen.key else None,
    )
    _load(config, listen)
    with _bound(listen) as listener:
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await _started(server, task)
            host = f"[{listen.host}]" if ":" in listen.host else listen.host
            yield f"{'https' if listen.tls else 'http'}://{host}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


def shares(board: BoardService) -> list[BaseRoute]:
    """Return the routes of customers' shares, for the customers that the topology has now."""
    folder = board.context.folder
    return routes(SharingService(board.topology, folder, board.paths, folder / "sharing" / "files"))


class _Server(uvicorn.Server):
    """Says when it serves, and leaves signals to the command, which ends the context."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serves = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.serves.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _started(server: _Server, task: asyncio.Task[None]) -> None:
    serves = asyncio.create_task(server.serves.wait())
    await asyncio.wait({serves, task}, return_when=asyncio.FIRST_COMPLETED)
    serves.cancel()
    if not server.started:
        await task
        raise UnavailableError("the board could not start", hint="its log has the reason")


def _load(config: uvicorn.Config, listen: Listen) -> None:
    files = [file for file in (listen.certificate, listen.key) if file is not None]
    try:
        for file in files:
            file.open("rb").close()  # an error of the TLS library does not say which one it means
        config.load()
    except OSError as error:
        if not files:
            raise
        named = error.filename or " with ".join(map(str, files))
        raise ConfigurationError(
            f"{named} cannot be used for TLS: {error.strerror or error}",
            hint="--certificate and --key are PEM files that belong together",
        ) from error


@contextlib.contextmanager
def _bound(listen: Listen) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((listen.host, listen.port))
        except OSError as error:
            raise UnavailableError(
                f"the board cannot listen on {listen.host}:{listen.port}: {error.strerror}",
                hint="choose another port with --port; 0 takes any free one",
                host=listen.host,
                port=listen.port,
            ) from error
        yield listener


def _allow_many_connections() -> None:
    """Allow as many open files as the system lets this process have: each open page is a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65_536)), hard))
