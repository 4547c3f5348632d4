"""One connection against a scripted broker: login, timeouts, lost connections, garbage."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time

import pytest
from pydantic import SecretStr

from fairlead.errors import ExitCode
from fairlead.kafka.client.connection import HELD_UP, MAX_FRAME, Connection, connect
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import AuthenticationFailed, ConnectionLost, RequestTimeout, UnsupportedBroker
from fairlead.kafka.protocol.metadata_codec import metadata_request
from fairlead.kafka.protocol.offsets_codec import producers_request
from fairlead.kafka.protocol.types import TP
from tests.support.kafka.fake_broker import (
    DESCRIBE_PRODUCERS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    FakeCluster,
    Fault,
    running,
)

USERS = {"bridge": "right"}


async def open_connection(
    cluster: FakeCluster, *, user: str | None = None, password: str = "", seconds: float = 5.0
) -> Connection:
    endpoint = cluster.endpoint(user=user, password=password)
    host, port = endpoint.bootstrap[0]
    return await connect(host, port, endpoint, client_id="test", request_timeout=seconds)


async def test_answers_go_to_their_requests_in_a_pipeline() -> None:
    async with running() as cluster:
        for index in range(20):
            cluster.log(f"log.{index}")
        connection = await open_connection(cluster)
        calls = [connection.call(metadata_request([f"log.{index}"])) for index in range(20)]
        answers = await asyncio.gather(*calls)
        assert [next(answer.topics).name for answer in answers] == [f"log.{index}" for index in range(20)]
        connection.close()


async def test_right_password_logs_in() -> None:
    async with running(users=USERS) as cluster:
        connection = await open_connection(cluster, user="bridge", password="right")
        assert not connection.closed
        connection.close()


@pytest.mark.parametrize(("user", "password"), [("bridge", "wrong"), ("stranger", "right")])
async def test_refused_login_says_who_where_and_not_the_password(user: str, password: str) -> None:
    async with running(users=USERS) as cluster:
        with pytest.raises(AuthenticationFailed) as caught:
            await open_connection(cluster, user=user, password=f"{password}-secret")
    error = caught.value
    assert error.exit_code == ExitCode.REFUSED and not error.retriable
    assert user in error.what and "fake" in error.what and "FAIRLEAD_SECRET_FAKE_" in error.hint
    assert "secret" not in repr(error.fields) and f"{password}-secret" not in str(error)


async def test_server_that_does_not_know_the_password_is_refused() -> None:
    async with running(users=USERS) as cluster:
        cluster.lying = True
        with pytest.raises(AuthenticationFailed, match="could not prove"):
            await open_connection(cluster, user="bridge", password="right")


async def test_broker_without_scram_is_refused() -> None:
    async with running(users=USERS) as cluster:
        cluster.fault(SASL_HANDSHAKE, Fault(code=33))
        with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-512"):
            await open_connection(cluster, user="bridge", password="right")


async def test_too_old_broker_is_named_with_what_it_lacks() -> None:
    async with running() as cluster:
        cluster.offered[1] = 11
        del cluster.offered[61]
        with pytest.raises(UnsupportedBroker, match=r"Fetch v13, DescribeProducers v0"):
            await open_connection(cluster)


async def test_login_is_renewed_in_time_and_keeps_the_order_of_requests() -> None:
    async with running(users=USERS) as cluster:
        cluster.log("log.a")
        cluster.lifetime_ms = 1200
        # The second login's first step is slow, so that requests are made while it is under way.
        gate = asyncio.Event()
        cluster.fault(SASL_AUTHENTICATE, Fault(), Fault(), Fault(first=gate.set))
        connection = await open_connection(cluster, user="bridge", password="right")
        async with asyncio.timeout(5):
            await gate.wait()
        await asyncio.gather(*(connection.call(metadata_request(["log.a"])) for _ in range(5)))
        keys = [key for _, key, _ in cluster.requests]
        assert keys.count(SASL_HANDSHAKE) == 2
        second = len(keys) - 1 - keys[::-1].index(SASL_HANDSHAKE)
        assert keys[second:] == [SASL_HANDSHAKE, SASL_AUTHENTICATE, SASL_AUTHENTICATE, *[METADATA] * 5]
        connection.close()


async def test_user_removed_meanwhile_loses_the_connection_at_the_renewal() -> None:
    users = dict(USERS)
    async with running(users=users) as cluster:
        cluster.lifetime_ms = 1200
        connection = await open_connection(cluster, user="bridge", password="right")
        users.clear()
        async with asyncio.timeout(5):
            await connection.wait_closed()
        with pytest.raises(AuthenticationFailed, match="bridge"):
            await connection.call(metadata_request(()))


async def test_late_answer_fails_all_requests_and_closes() -> None:
    async with running() as cluster:
        connection = await open_connection(cluster, seconds=0.2)
        cluster.fault(METADATA, Fault(hang=True))
        late = asyncio.ensure_future(connection.call(metadata_request(())))
        behind = asyncio.ensure_future(connection.call(metadata_request(()), seconds=30))
        with pytest.raises(RequestTimeout, match="Metadata") as caught:
            await late
        with pytest.raises(RequestTimeout):
            await behind
        assert connection.closed and caught.value.retriable
        assert caught.value.fields["address"] == connection.address


async def test_a_machine_that_was_held_up_listens_before_it_says_that_nothing_came() -> None:
    async with running() as cluster:
        connection = await open_connection(cluster, seconds=0.3)
        answer = asyncio.ensure_future(connection.call(metadata_request(())))
        await asyncio.sleep(0)
        time.sleep(0.3 + HELD_UP + 0.1)  # noqa: ASYNC251 - neither side gets a turn
        assert await answer
        cluster.fault(METADATA, Fault(hang=True))
        with pytest.raises(RequestTimeout):
            await connection.call(metadata_request(()))


async def test_requests_wait_while_a_broker_throttles_their_user(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fairlead.kafka.client.connection")
    async with running() as cluster:
        connection = await open_connection(cluster, seconds=0.3)
        cluster.fault(METADATA, Fault(throttle_ms=900), Fault(throttle_ms=900))
        for _ in range(3):
            assert await connection.call(metadata_request(()))
        cluster.fault(METADATA, Fault(hang=True))
        with pytest.raises(RequestTimeout):
            await connection.call(metadata_request(()))
    assert len(caplog.messages) == 1 and "is above its quota" in caplog.messages[0]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_lost_connection_fails_what_waits(when: str) -> None:
    async with running() as cluster:
        connection = await open_connection(cluster)
        cluster.fault(METADATA, Fault(lose=when))
        with pytest.raises(ConnectionLost) as caught:
            await connection.call(metadata_request(()))
        assert caught.value.fields["address"] == connection.address
        with pytest.raises(ConnectionLost):
            await connection.call(metadata_request(()))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(struct.pack(">i", MAX_FRAME + 1), id="too long"),
        pytest.param(struct.pack(">i", -1), id="negative length"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
        pytest.param(struct.pack(">ii", 4, 4711), id="unknown correlation"),
    ],
)
async def test_garbage_closes_the_connection(raw: bytes) -> None:
    async with running() as cluster:
        connection = await open_connection(cluster)
        cluster.fault(METADATA, Fault(raw=raw))
        with pytest.raises(ConnectionLost, match="no Kafka broker"):
            await connection.call(metadata_request(()))
        assert connection.closed


async def test_unreachable_address_is_retriable_and_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        endpoint = KafkaEndpoint("nowhere", (("127.0.0.1", port),), user="bridge", password=SecretStr("pw"))
        with pytest.raises(ConnectionLost) as caught:
            await connect("127.0.0.1", port, endpoint, client_id="test", request_timeout=2)
    assert caught.value.retriable and caught.value.exit_code == ExitCode.UNAVAILABLE
    assert caught.value.fields["address"] == f"127.0.0.1:{port}" and "nowhere" in caught.value.what


async def test_plain_listener_behind_a_tls_endpoint_is_refused_at_once() -> None:
    async with running() as cluster:
        port = cluster.ports[0]
        endpoint = KafkaEndpoint("fake", (("127.0.0.1", port),), tls=True)
        cluster.fault(-1)
        with pytest.raises((AuthenticationFailed, ConnectionLost)) as caught:
            await connect("127.0.0.1", port, endpoint, client_id="test", request_timeout=0.3)
        assert f"127.0.0.1:{port}" in caught.value.what
        cluster.errors.clear()  # the fake cannot read a TLS greeting


@pytest.mark.parametrize("cut", [0, 6, 9])
async def test_an_answer_that_cannot_be_decoded_is_a_lost_connection(cut: int) -> None:
    async with running() as cluster:
        cluster.log("log.a")
        connection = await open_connection(cluster)
        cluster.fault(DESCRIBE_PRODUCERS, Fault(cut=cut))
        with pytest.raises(ConnectionLost, match="cannot be decoded") as caught:
            await connection.call(producers_request([TP("log.a")]))
        assert caught.value.fields["address"] == connection.address
        assert connection.closed


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("a" * 70, 9092), ("a\0b", 9092)])
async def test_an_address_that_is_none_cannot_be_reached(host: str, port: int) -> None:
    """A broker says where the others are."""
    endpoint = KafkaEndpoint("fake", (("127.0.0.1", 9092),))
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        await connect(host, port, endpoint, client_id="test", request_timeout=2.0)
