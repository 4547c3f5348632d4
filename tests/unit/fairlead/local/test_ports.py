"""Ports: free ones are found, and who holds one is said."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from fairlead.errors import UnavailableError
from fairlead.local import ports


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.socket() as server:
        server.bind((ports.HOST, 0))
        server.listen()
        yield server.getsockname()[1]


def test_chosen_ports_are_free_and_different() -> None:
    first = ports.choose_ports(30)
    assert len(set(first)) == 30
    assert all(ports.FIRST <= port < ports.LAST and ports.is_free(port) for port in first)
    assert not set(ports.choose_ports(30, taken=first)) & set(first)


def test_a_port_in_use_is_not_free(listener: int) -> None:
    assert not ports.is_free(listener)
    assert ports.accepts(listener)
    assert f"(pid {os.getpid()})" in ports.holder(listener)


def test_a_port_whose_last_connections_are_closing_is_free(listener: int) -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((ports.HOST, 0))
        server.listen()
        port = server.getsockname()[1]
        client = socket.create_connection((ports.HOST, port))
        accepted, _ = server.accept()
        accepted.close()  # the server's side closes first: it is the one that waits (TIME_WAIT)
        client.close()
    assert ports.is_free(port)
    assert not ports.accepts(port)


def test_no_free_port_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LAST", ports.FIRST + 3)
    with pytest.raises(UnavailableError, match="no free port"):
        ports.choose_ports(4)
