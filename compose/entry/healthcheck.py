"""Check the health of a container: exit code 0, or 1 with the reason in one line.

Each check is as cheap as possible: an unauthenticated ApiVersions request to a broker, which answers it once it is
ready for requests (KIP-511); a CONNECT that Mosquitto refuses; the file that a bridge or replicator writes every
second. Uses the standard library only, because it runs every few seconds in every container.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import sys
from pathlib import Path

from fairlead.health import health_problem

_PATIENCE = 3.0  # seconds
_FRESH = 30.0  # seconds; status files are written every second, and the machine may be busy
_API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)
_CONNECT = bytes.fromhex("101000044d5154540402003c0004") + b"live"  # MQTT 3.1.1, no user
BOARD, METRICS = 8470, 9404  # as in compose.fleet
PAGES = {"spark-master": 8080, "spark-worker": 8081}


def kafka(port: int, *, tls: bool) -> str:
    """Return "" if the broker answers requests, else the reason why it is not healthy."""
    with _connected(port, tls=tls) as connection:
        connection.sendall(struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS)
        answer = connection.recv(8)
    return "" if len(answer) >= 4 else "it closed the connection"


def mqtt(port: int, *, tls: bool) -> str:
    """Return "" if Mosquitto refuses a login, which proves that it answers; else the reason."""
    with _connected(port, tls=tls) as connection:
        connection.sendall(_CONNECT)
        answer = connection.recv(4)
    return "" if answer[:1] == b"\x20" else "it does not answer a login"


def answers(port: int, path: str, *, tls: bool, host: str = "127.0.0.1") -> str:
    """Return "" if an HTTP server of this container answers a request with 200, else the reason.

    A certificate is not checked: nobody is between this container and itself, and it may be of any authority.
    """
    with socket.create_connection((host, port), _PATIENCE) as plain:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain) if tls else plain as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            answer = connection.recv(64)
    return "" if b" 200 " in answer else f"it answers {answer[:40]!r}"


def lines(at: str) -> str:
    """Return "" if the proxies' server answers an empty command, else the reason."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE)
        connection.connect(at)
        connection.sendall(b"{}\n")
        answer = connection.recv(8)
    return "" if answer else "it closed the connection"


def _connected(port: int, *, tls: bool) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), _PATIENCE)
    if not tls:
        return connection
    context = ssl.create_default_context(cafile="/run/certificates/ca.pem")
    return context.wrap_socket(connection, server_hostname=socket.gethostname())


def _status_file(kind: str, site: str) -> Path:
    """Return the service's file; of a replicator in a group, whose file has the process's name too, the newest."""
    folder = Path(os.environ["FAIRLEAD_HOME"]) / Path(os.environ["FAIRLEAD_TOPOLOGY"]).stem / "run"
    usual = folder / f"{kind}.{site}.json"
    found = [file for file in (usual, *folder.glob(f"{kind}.{site}.*.json")) if file.exists()]
    return max(found, key=lambda file: file.stat().st_mtime, default=usual)


def check(what: str, *further: str) -> str:
    """Return the reason why a container is not healthy, "" if it is."""
    tls = "tls" in further
    try:
        match what:
            case "kafka":
                return kafka(9092, tls=tls)
            case "mqtt":
                return mqtt(8883 if tls else 1883, tls=tls)
            case "bridge" | "replicator":
                return health_problem(_status_file(what, further[0]), fresh=_FRESH)
            case "board":
                return answers(BOARD, "/healthz", tls=True)
            case "metrics":
                return answers(METRICS, "/metrics", tls=False)
            case "links":
                return lines(further[0])
            case _:
                return answers(PAGES[what], "/json/", tls=False, host=socket.gethostname())  # where Spark listens
    except OSError as error:
        return str(error)


if __name__ == "__main__":
    why = check(*sys.argv[1:])
    if why:
        sys.stderr.write(why + "\n")
    raise SystemExit(1 if why else 0)
