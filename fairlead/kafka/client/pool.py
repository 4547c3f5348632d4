"""The connections of one cluster: one per broker and role, opened when needed, and again when lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from pydantic import SecretStr

from fairlead.errors import FairleadError
from fairlead.kafka.client.connection import Connection, connect
from fairlead.kafka.endpoint import Endpoint, KafkaEndpoint, with_each_password
from fairlead.kafka.protocol.errors import AuthenticationFailed, ConnectionLost, RequestTimeout

log = logging.getLogger(__name__)

Key = tuple[str, int]

REFUSED_SECONDS: Final = 30.0
"""Seconds for which a refused login is retried if a broker accepted it before.

A broker that was killed opens its port before it has read its users again (seen on 4.3.1, up to some seconds on a busy
machine).
"""


class Pool:
    """Connections by (role, node id). Bootstrap addresses have node ids -1, -2, ... until metadata names brokers."""

    def __init__(self, endpoint: Endpoint, client_id: str, request_timeout: float) -> None:
        """Prepare to connect; a callable ``endpoint`` is called at every connect."""
        self._ask = endpoint if callable(endpoint) else None
        self._endpoint = endpoint() if callable(endpoint) else endpoint
        self._client_id = client_id
        self.request_timeout = request_timeout
        self._bootstrap = {-1 - index: address for index, address in enumerate(self._endpoint.bootstrap)}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._open: dict[Key, Connection] = {}
        self._opening: dict[Key, asyncio.Task[Connection]] = {}
        self._incarnations: dict[Key, int] = {}
        self._closed = False
        self._was_taken = False  # whether a broker has accepted the login before
        self._refused_since: float | None = None
        self.certificate_ends: float | None = None
        """When the certificate of the broker that was connected to last expires, Unix time; None without TLS."""

    def endpoint(self) -> KafkaEndpoint:
        """Return the cluster's current endpoint, or the last known one when reading it fails."""
        if self._ask is not None:
            try:
                self._endpoint = self._ask()
            except FairleadError as error:
                log.warning("%s: the endpoint cannot be read: %s", self._endpoint.site, error.what)
        return self._endpoint

    def set_brokers(self, brokers: dict[int, tuple[str, int]]) -> None:
        """Set the brokers' addresses from metadata; a bootstrap connection to one of them becomes that broker's."""
        by_address = {f"{host}:{port}": node for node, (host, port) in brokers.items()}
        for key, connection in list(self._open.items()):
            role, node = key
            known = by_address.get(connection.address)
            if known == node:
                continue
            del self._open[key]
            if node < 0 and known is not None and (role, known) not in self._open:
                self._open[role, known] = connection
            elif node < 0 and known is None:
                self._open[key] = connection  # reached under another name than the advertised one: keep it
            else:
                connection.close()
        self._brokers = dict(brokers)

    @property
    def connected(self) -> bool:
        """Whether any connection is up."""
        return any(not connection.closed for connection in self._open.values())

    def ready(self, role: str, node: int) -> Connection | None:
        """Return the connection if it is up, else None."""
        connection = self._open.get((role, node))
        return None if connection is None or connection.closed else connection

    def incarnation(self, role: str, node: int) -> int:
        """Return a number that changes with every new connection; 0 while there is none."""
        return self._incarnations.get((role, node), 0) if self.ready(role, node) is not None else 0

    async def get(self, role: str, node: int) -> Connection:
        """Return the connection; open it if needed. Concurrent callers resume in the order of their calls.

        Raises:
            ConnectionLost, AuthenticationFailed, UnsupportedBroker: see ``connect``. A refused login raises
                ``ConnectionLost`` for ``REFUSED_SECONDS`` if a broker accepted it before.
        """
        connection = self.ready(role, node)
        if connection is not None:
            return connection
        if self._closed:
            raise self._was_closed()
        key = role, node
        task = self._opening.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._connect(key))
            self._opening[key] = task
            task.add_done_callback(lambda done: self._opened(key, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            mine = asyncio.current_task()
            if not task.cancelled() or (mine is not None and mine.cancelling()):
                raise
            # ``close`` cancelled the connection's task, not the caller's.
            raise self._was_closed() from None

    def _was_closed(self) -> ConnectionLost:
        return ConnectionLost(f"the client of site {self._endpoint.site!r} was closed", site=self._endpoint.site)

    async def _connect(self, key: Key) -> Connection:
        address = self._brokers.get(key[1]) or self._bootstrap.get(key[1])
        if address is None:
            raise ConnectionLost(
                f"broker {key[1]} of site {self._endpoint.site!r} is gone from the cluster's metadata",
                site=self._endpoint.site,
                address="",
            )
        try:
            connection = await self._log_in(*address)
        except AuthenticationFailed as error:
            if not self._may_pass():
                raise
            raise ConnectionLost(error.what, hint=error.hint, **error.fields) from error
        self._was_taken, self._refused_since = True, None
        self._open[key] = connection
        self.certificate_ends = connection.certificate_ends
        self._incarnations[key] = self._incarnations.get(key, 0) + 1
        return connection

    async def _log_in(self, host: str, port: int) -> Connection:
        """Connect with the password or, while the password is being changed, with each candidate that may count.

        Reads the candidates twice, because the change may have begun after the first read.
        """
        tried: list[SecretStr | None] = []
        refusal: AuthenticationFailed | None = None
        for _ in range(2):
            for endpoint in with_each_password(self.endpoint()):
                if endpoint.password in tried:
                    continue
                tried.append(endpoint.password)
                later: Endpoint = self.endpoint if self._ask is not None else endpoint
                try:
                    return await connect(
                        host,
                        port,
                        endpoint,
                        client_id=self._client_id,
                        request_timeout=self.request_timeout,
                        later=later,
                    )
                except AuthenticationFailed as error:
                    refusal = refusal or error
        raise refusal or AssertionError("there is one password at least")

    def _may_pass(self) -> bool:
        """Whether the refusal may come from a broker that has just started."""
        now = asyncio.get_running_loop().time()
        if self._refused_since is None:
            self._refused_since = now
        return self._was_taken and now - self._refused_since < REFUSED_SECONDS

    def _opened(self, key: Key, task: asyncio.Task[Connection]) -> None:
        self._opening.pop(key, None)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: no caller may be left

    async def any(self, role: str) -> Connection:
        """Return a connection to any broker: an open one, else the first that can be reached.

        Raises:
            ConnectionLost: none can be reached.
        """
        for node in self._candidates():
            connection = self.ready(role, node)
            if connection is not None:
                return connection
        last: ConnectionLost | RequestTimeout | None = None
        for node in self._candidates():
            try:
                return await self.get(role, node)
            except (ConnectionLost, RequestTimeout) as error:
                last = error
        raise last or ConnectionLost("the endpoint has no bootstrap address", site=self._endpoint.site, address="")

    def _candidates(self) -> Iterator[int]:
        yield from self._brokers
        yield from self._bootstrap

    def drop(self, role: str, node: int) -> None:
        """Close one connection; the next ``get`` opens another."""
        connection = self._open.pop((role, node), None)
        if connection is not None:
            connection.close()

    def close_role(self, role: str) -> None:
        """Close the connections of one role."""
        for key in [key for key in self._open if key[0] == role]:
            self._open.pop(key).close()
        for key in [key for key in self._opening if key[0] == role]:
            self._opening[key].cancel()

    async def close(self) -> None:
        """Close all connections for good."""
        self._closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        connections, self._open = list(self._open.values()), {}
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.wait_closed() for connection in connections))
