"""A Kafka broker that knows nothing but a group's coordinator, which is itself and is not ready."""

from __future__ import annotations

import contextlib
import socketserver
import struct
import threading
from collections.abc import Iterator
from typing import Any

from kafka.protocol.api_key import ApiKey

from tests.support.handshakes import read_frame
from tests.support.kafka_requests import classes, filled

NOT_COORDINATOR = 16
_VERSIONS = {"ApiVersions": 0, "Metadata": 4, "FindCoordinator": 2, "DescribeGroups": 4, "OffsetFetch": 7}
_SIZE = struct.Struct(">i")
_NO_RIGHTS = -(2**31)


@contextlib.contextmanager
def loading_coordinator() -> Iterator[int]:
    """Run the broker on a port of this machine, without a login."""

    class Answering(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while frame := read_frame(self.rfile):
                answer = _answer(frame[_SIZE.size :], port)
                self.wfile.write(_SIZE.pack(len(answer)) + answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        port = server.server_address[1]
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield port
        finally:
            server.shutdown()
            serving.join()


def _answer(frame: bytes, port: int) -> bytes:
    key, version, correlation, name_length = struct.unpack_from(">hhih", frame)
    name, known = ApiKey(key).name, classes()
    request, response = known[f"{name}Request"], known[f"{name}Response"]
    flexible = request.flexible_version_q(version)
    at = 10 + max(name_length, 0) + (1 if flexible else 0)
    asked = request.decode(frame[at:], version=version).to_dict()
    body = filled(response, _values(name, asked, port), version).encode(version=version)
    return struct.pack(">i", correlation) + (b"\0" if flexible and name != "ApiVersions" else b"") + bytes(body)


def _values(name: str, asked: dict[str, Any], port: int) -> dict[str, Any]:
    here = {"node_id": 1, "host": "127.0.0.1", "port": port}
    match name:
        case "ApiVersions":
            keys = [
                {"api_key": ApiKey[one].value, "min_version": 0, "max_version": version}
                for one, version in _VERSIONS.items()
            ]
            return {"error_code": 0, "api_keys": keys}
        case "Metadata":
            return {"throttle_time_ms": 0, "brokers": [{**here, "rack": None}], "cluster_id": "loading",
                    "controller_id": 1, "topics": []}  # fmt: skip
        case "FindCoordinator":
            return {"throttle_time_ms": 0, "error_code": 0, "error_message": None, **here}
        case "DescribeGroups":
            return {"throttle_time_ms": 0, "groups": [
                {"error_code": NOT_COORDINATOR, "group_id": group, "group_state": "", "protocol_type": "",
                 "protocol_data": "", "members": [], "authorized_operations": _NO_RIGHTS}
                for group in asked["groups"]]}  # fmt: skip
        case "OffsetFetch":
            return {"throttle_time_ms": 0, "topics": [], "error_code": NOT_COORDINATOR}
    raise AssertionError(f"not prepared for {name}")
