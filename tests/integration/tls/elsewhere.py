"""Reach sites at an address that their certificates do not contain."""

from __future__ import annotations

from fairlead.kafka.endpoint import Address
from simulators.network.proxy import HOST, TcpProxy

ELSEWHERE = "127.0.0.2"  # another address of this machine, which no certificate has


def relay(port: int) -> TcpProxy:
    """Return a proxy that listens at ``ELSEWHERE`` for a port of this machine."""
    server: Address = (HOST, port)
    return TcpProxy([server], at={server: (ELSEWHERE, 0)})
