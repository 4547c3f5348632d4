"""How a container's health is asked, against servers that answer as the real ones and ones that do not."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from board.server import Listen, serving
from board.service import BoardService
from compose.entry import healthcheck
from fairlead.certs.authority import issue, new_authority
from fairlead.home import private_folder
from topologies.context import open_topology


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that answers whatever it is sent once, then closes; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_an_answering_broker_is_healthy() -> None:
    with answering(b"\0\0\0\4\0\0\0\1") as port:
        assert healthcheck.kafka(port, tls=False) == ""


def test_a_broker_that_closes_is_unhealthy() -> None:
    with answering(b"") as port:
        assert healthcheck.kafka(port, tls=False) == "it closed the connection"


def test_a_mosquitto_that_refuses_is_healthy() -> None:
    with answering(b"\x20\x02\x00\x05") as port:
        assert healthcheck.mqtt(port, tls=False) == ""
    with answering(b"HTTP") as port:
        assert "does not answer" in healthcheck.mqtt(port, tls=False)


def test_a_server_of_ours_that_answers_200_is_healthy() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as port:
        assert healthcheck.answers(port, "/metrics", tls=False) == ""
    with answering(b"HTTP/1.1 500 Internal Server Error\r\n\r\n") as port:
        assert "500" in healthcheck.answers(port, "/metrics", tls=False)


async def test_a_board_is_healthy_whatever_its_certificate_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    pair = issue(new_authority("somebody"), "board.example.com", ["board.example.com"])
    pem = tmp_path / "board.pem"
    pem.write_bytes(pair.key + pair.certificate)
    listen = Listen(host="0.0.0.0", port=0, names=("board.example.com",), certificate=pem, key=pem)  # noqa: S104
    async with serving(BoardService(open_topology("minimal"), "tokyo"), listen) as address:
        monkeypatch.setattr(healthcheck, "BOARD", int(address.rpartition(":")[2]))
        assert await asyncio.to_thread(healthcheck.check, "board") == ""
    assert "refused" in healthcheck.check("board")


def test_a_closed_port_is_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setitem(healthcheck.PAGES, "spark-master", port)
    assert "refused" in healthcheck.check("spark-master")


@pytest.mark.parametrize(
    ("body", "age", "why"),
    [
        ({"ready": True}, 0, ""),
        ({"ready": False}, 0, "not ready"),
        ({"target": {"state": "up"}}, 0, ""),
        ({"target": {"state": "down"}}, 0, "not ready"),
        ({"ready": True}, 600, r"\b6\d\d s ago"),
    ],
)
def test_a_status_file_must_be_fresh_and_healthy(
    body: object, age: float, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = status_file(tmp_path, monkeypatch)
    file.write_text(json.dumps(body))
    written = file.stat().st_mtime - age
    os.utime(file, (written, written))
    said = healthcheck.check("bridge", "tokyo")
    assert re.search(why, said) if why else said == ""


def test_a_missing_or_broken_status_file_is_unhealthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = status_file(tmp_path, monkeypatch)
    assert healthcheck.check("bridge", "tokyo")
    file.write_text('{"target": ')
    assert healthcheck.check("bridge", "tokyo")


def status_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", "minimal.yaml")
    return private_folder(tmp_path / "minimal" / "run") / "bridge.tokyo.json"
