"""Readers at a site with TLS: shore, and customers with their own clients."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from fairlead.certs.authority import new_authority
from fairlead.jars import ensure_jars
from fairlead.kafka.admin import create_logs
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import AuthenticationFailed
from fairlead.local.passwords import secret_variable
from shore.datasource import FairleadSource
from tests.integration.tls.conftest import Secure
from tests.support.replication.lab import Lab
from tests.support.shells import first_line, shell

pytestmark = [pytest.mark.long, pytest.mark.integration]
FEED = "feeds.ducks"


@pytest.fixture
async def lab(pair: Secure) -> AsyncIterator[Lab]:
    """Provide a lab with the topology's own stream of containers, the only one that users may read."""
    made = Lab(lambda site, user="admin": pair.local.kafka(site, user), stream="containers")
    yield made
    await made.close()


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """Return a certificate authority that has signed none of the sites' certificates."""
    file = tmp_path / "stranger.pem"
    file.write_bytes(new_authority("stranger").certificate)
    return file


def read_as_spark(endpoint: KafkaEndpoint, pattern: str) -> Iterator[int]:
    """Yield the offsets that shore's data source returns. Pickles the reader and its partitions, as Spark does."""
    source = type("Source", (FairleadSource,), {"endpoints": {endpoint.site: endpoint}})({"pattern": pattern})
    reader = source.reader(source.schema())
    for part in pickle.loads(pickle.dumps(reader.partitions())):  # noqa: S301
        for batch in pickle.loads(pickle.dumps(reader)).read(part):  # noqa: S301
            yield from batch.column("offset").to_pylist()


async def test_shores_reader(pair: Secure, lab: Lab, stranger: Path) -> None:
    log = lab.log("BIGU1000010")
    await lab.make("alpha", log)
    end = await lab.write("alpha", log, 100, at=await lab.open_term("alpha", log, term=1, at=0))
    endpoint = lab.kafka("alpha", "shore")

    async def read(there: KafkaEndpoint) -> list[int]:
        return await asyncio.to_thread(lambda: sorted(read_as_spark(there, log)))

    assert await read(endpoint) == list(range(1, end))
    assert (await asyncio.to_thread(pair.run, "certs", "renew", "--yes", "--site", "alpha")).exit_code == 0
    assert await read(endpoint) == list(range(1, end))
    with pytest.raises(AuthenticationFailed, match=r"not signed by the authorities in .*stranger\.pem"):
        await read(dataclasses.replace(endpoint, tls_ca=stranger))


class Feed:
    """The feed of customer ``ducks`` at the site."""

    def __init__(self, kafka: KafkaEndpoint) -> None:
        self._kafka = kafka

    def append(self, value: str, **headers: bytes) -> None:
        producer = Producer({**self._kafka.librdkafka(), "log_level": 0})
        failed: list[KafkaError] = []
        producer.produce(
            FEED, value, headers=list(headers.items()), on_delivery=lambda e, _: failed.append(e) if e else None
        )
        assert (producer.flush(60), failed) == (0, [])


@pytest.fixture
def feed(pair: Secure) -> Feed:
    kafka = pair.local.kafka("alpha", "admin")
    create_logs(kafka, {FEED: {}})
    return Feed(kafka)


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """Return a PATH with the programs that the printed commands call: Apache Kafka's scripts and this environment's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    jars = ":".join(map(str, (*ensure_jars("kafka"), *ensure_jars("console"))))
    console = folder / "kafka-console-consumer.sh"
    console.write_text(f'#!/bin/sh\nexec java -cp "{jars}" org.apache.kafka.tools.consumer.ConsoleConsumer "$@"\n')
    console.chmod(0o755)
    if (kcat := shutil.which("kcat")) is not None:
        _with_a_library_that_is_new_enough(kcat, folder)
    return f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"


def _with_a_library_that_is_new_enough(kcat: str, folder: Path) -> None:
    """Put a kcat into ``folder`` that uses the librdkafka of confluent-kafka: Debian 12's is older than 2.6.1, which
    SCRAM with Kafka 4 needs."""
    (library,) = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka-*.so.1")
    (folder / "lib").mkdir()
    (folder / "lib" / "librdkafka.so.1").symlink_to(library)
    program = folder / "kcat"
    program.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={folder}/lib exec {kcat} "$@"\n')
    program.chmod(0o755)
    shown = subprocess.run([program, "-V"], capture_output=True, text=True, check=False)  # noqa: S603 - our own script
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", shown.stdout + shown.stderr)
    assert found and tuple(map(int, found.groups())) >= (2, 6, 1), shown


@pytest.mark.parametrize("out", [False, True], ids=["printed", "files"])
@pytest.mark.parametrize("client", ["python", "java", "console", "kcat"])
def test_what_feed_prints_for_other_clients_reads(
    client: str, out: bool, pair: Secure, feed: Feed, programs: str, tmp_path: Path
) -> None:
    value = f"reading-{client}-{out}"
    feed.append(value, origin=b"containers.BIGU1234567@3")
    files = tmp_path / "files"
    more = ["--out", str(files)] if out else []
    result = pair.run("feed", "ducks", "--client", client, "--group", f"ducks.{client}-{out}", *more)
    assert result.exit_code == 0, result.output
    environment = {"KAFKA_JARS": ":".join(map(str, ensure_jars("kafka"))), "PATH": programs}
    if not out:
        password = pair.local.kafka("alpha", "ducks").password
        assert password is not None and password.get_secret_value() not in result.output
        environment[secret_variable("alpha", "ducks")] = password.get_secret_value()
    with shell(result.stdout, tmp_path, environment) as process:
        first_line(process, value)
    if out:
        assert (files / "ca.pem").read_bytes() == pair.certificates.trusted.read_bytes()


def test_kcats_settings_trust_that_authority_and_no_other(
    pair: Secure, feed: Feed, stranger: Path, tmp_path: Path
) -> None:
    """The settings for kcat trust that authority only. Tested with kcat's library."""
    feed.append("for kcat")
    assert pair.run("feed", "ducks", "--client", "kcat", "--out", str(tmp_path)).exit_code == 0
    settings = dict(line.split("=", 1) for line in (tmp_path / "kcat.conf").read_text().splitlines())
    assert (settings["security.protocol"], settings["ssl.ca.location"]) == ("SASL_SSL", "ca.pem")
    there = settings | {"ssl.ca.location": str(tmp_path / "ca.pem")}
    consumer = Consumer(there)
    try:
        consumer.subscribe([FEED])
        values: set[bytes | None] = set()
        while b"for kcat" not in values:
            record = consumer.poll(60)
            assert record is not None and record.error() is None
            values.add(record.value())
    finally:
        consumer.close()
    told: list[str] = []
    refused = Consumer(
        settings
        | {"ssl.ca.location": str(stranger), "log_level": "0", "error_cb": lambda e: told.append(e.str())}
    )  # fmt: skip
    try:
        refused.subscribe([FEED])
        while not any("certificate verify failed" in each for each in told):
            record = refused.poll(60)
            assert record is None or record.error() is not None
    finally:
        refused.close()
