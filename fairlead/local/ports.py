"""Find free loopback ports, and name the process that uses a port."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Collection

import psutil

from fairlead.errors import UnavailableError

HOST = "127.0.0.1"
# Below the source ports of outgoing connections (from 32768 on Linux, 49152 on macOS), so that no client takes a
# site's port while the site is down.
FIRST, LAST = 20000, 32000


def choose_ports(count: int, *, taken: Collection[int] = ()) -> list[int]:
    """Choose ports that are free now and not in ``taken``. Another process may still bind one before the caller does.

    Raises:
        UnavailableError: every port of the range is in use.
    """
    chosen: list[int] = []
    start = secrets.randbelow(LAST - FIRST)
    for step in range(LAST - FIRST):
        port = FIRST + (start + step) % (LAST - FIRST)
        if port not in taken and is_free(port):
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    raise UnavailableError(f"no free port between {FIRST} and {LAST} on {HOST}", hint="stop something that listens")


def is_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port now."""
    with socket.socket() as server:
        # Brokers set this too: connections of an earlier run that are still closing do not block the port.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((HOST, port))
            server.listen(1)
        except OSError:
            return False
    return True


def accepts(port: int, timeout: float = 0.5) -> bool:
    """Return whether something accepts connections on this loopback port within ``timeout`` seconds."""
    try:
        socket.create_connection((HOST, port), timeout).close()
    except OSError:
        return False
    return True


def holder(port: int) -> str:
    """Return the process that listens on a port: ``nginx (pid 812)``, or ``another user's process``."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:  # macOS, without root
        return "another process"
    for connection in connections:
        if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
            if connection.pid is None:
                return "another user's process"
            try:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
            except psutil.Error:
                return f"pid {connection.pid}"
    return "another process"
