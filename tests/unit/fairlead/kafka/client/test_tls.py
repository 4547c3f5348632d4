"""TLS: certificates are verified, and a mistake is said at once. Needs the ``openssl`` command for a certificate."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import AuthenticationFailed
from fairlead.kafka.protocol.types import TP, Appended
from tests.support.kafka.fake_broker import FakeCluster, running
from tests.support.kafka.fake_log import marker, record

USERS = {"bridge": "right"}


@dataclasses.dataclass(frozen=True)
class Certificate:
    file: Path
    context: ssl.SSLContext


def make(folder: Path, names: str) -> Certificate:
    """A self-signed certificate for ``names``, and the server's context."""
    key, file = folder / "key.pem", folder / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test".split()
    command += ["-keyout", str(key), "-out", str(file), "-addext", f"subjectAltName={names}"]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    return Certificate(file, context)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1,DNS:localhost")


def endpoint(fake: FakeCluster, authority: Path | None, *, verify: bool = True) -> KafkaEndpoint:
    plain = fake.endpoint(user="bridge", password="right")
    return dataclasses.replace(plain, tls=True, tls_ca=authority, tls_verify_hostname=verify)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_append_over_tls(run: Callable[[Coroutine[Any, Any, None]], None], certificate: Certificate) -> None:
    async def scenario() -> None:
        async with running(users=USERS, tls=certificate.context) as fake:
            fake.log("log.a")
            async with await Cluster.open(endpoint(fake, certificate.file), client_id="test") as cluster:
                appender = Appender(cluster, linger=0.0)
                await appender.open_term(TP("log.a"), 1, marker("m"))
                records = [record(str(index), 5000) for index in range(100)]
                assert await appender.append(TP("log.a"), records) == Appended(1, 100)
                content = (await cluster.fetch({TP("log.a"): 0}))[TP("log.a")]
                assert len(content.records) > 500_000
                await appender.close()

    run(scenario())


async def test_unknown_authority_is_refused(certificate: Certificate, tmp_path: Path) -> None:
    other = make(tmp_path, "IP:127.0.0.1")
    async with running(users=USERS, tls=certificate.context) as fake:
        for authority in (other.file, None):
            with pytest.raises(AuthenticationFailed, match="CERTIFICATE_VERIFY_FAILED"):
                await Cluster.open(endpoint(fake, authority), client_id="test")


async def test_wrong_host_name_is_refused_unless_told_otherwise(tmp_path: Path) -> None:
    elsewhere = make(tmp_path, "DNS:broker.example")
    async with running(users=USERS, tls=elsewhere.context) as fake:
        with pytest.raises(AuthenticationFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await Cluster.open(endpoint(fake, elsewhere.file), client_id="test")
        async with await Cluster.open(endpoint(fake, elsewhere.file, verify=False), client_id="test") as cluster:
            assert await cluster.topics() == {}
