"""A customer attacks: with its own valid password and a plain socket it sends requests that it has no right to."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from confluent_kafka import Consumer
from pydantic import SecretStr

from acl import probe as attempts
from acl.kafka import Client, StartAt, UserConsumer, WrongPassword
from fairlead.kafka.client.connection import Connection, connect
from fairlead.kafka.credentials import give_password
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import AuthenticationFailed, ConnectionLost, RequestTimeout
from tests.integration.acl.conftest import PORT, RED_BOX, Append, World
from tests.support.kafka_requests import (
    REFUSALS,
    SWITCHED_OFF,
    Answer,
    Request,
    advertised,
    listings,
    requests,
    schema_request,
)
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration

ATTACKER, VICTIM, STRANGER = "ducks", "red", "nobody-here"
OWN, FOREIGN = f"feeds.{ATTACKER}", RED_BOX
TRIED = requests(topic=FOREIGN, own=OWN, group=f"{VICTIM}.cli", user=STRANGER)


@asynccontextmanager
async def connected(endpoint: KafkaEndpoint, seconds: float = PATIENCE) -> AsyncIterator[Connection]:
    host, port = endpoint.bootstrap[0]
    connection = await connect(host, port, endpoint, client_id="attack", request_timeout=seconds)
    try:
        yield connection
    finally:
        connection.close()


def answers(endpoint: KafkaEndpoint, tried: list[Request]) -> dict[str, Answer]:
    """Return the broker's answer to each of the requests, over one connection."""

    async def ask() -> dict[str, Answer]:
        async with connected(endpoint) as connection:
            return {request.label: await request.ask(connection) for request in tried}

    return asyncio.run(ask())


def test_every_kind_of_request_about_others_is_refused_to_a_customer_and_understood_of_the_administrator(
    world: World,
) -> None:
    """The broker refuses a customer every kind of request about others, and accepts each from the administrator."""
    refused = answers(world.kafka(PORT, ATTACKER), TRIED)
    allowed = answers(world.kafka(PORT), TRIED)
    assert len(refused) == len(TRIED), "labels are unique"
    off = {label for label, answer in allowed.items() if answer.errors == (SWITCHED_OFF,)}
    assert {label for label, answer in refused.items() if answer.errors == (SWITCHED_OFF,)} == off
    assert {label: answer for label, answer in refused.items() if not answer.refused and label not in off} == {}
    assert {label: answer for label, answer in allowed.items() if REFUSALS.keys() & set(answer.errors)} == {}
    assert off == {"making a token", "renewing a token", "ending a token", "reading tokens"}


def test_no_kind_of_request_that_the_broker_takes_is_left_out(world: World) -> None:
    """The test covers every kind of request that the broker accepts."""

    async def told() -> dict[int, str]:
        async with connected(world.kafka(PORT, ATTACKER)) as connection:
            return await advertised(connection)

    known = {request.key for request in [*TRIED, *listings()]}
    assert {name for key, name in asyncio.run(told()).items() if key not in known} == {
        "ApiVersions",
        "SaslHandshake",
        "SaslAuthenticate",
    }


def test_lists_show_a_customer_its_own_only(world: World, append: Append) -> None:
    """Requests that list resources show a customer only its own."""
    append(PORT, FOREIGN, b"x")
    commit(world, VICTIM, FOREIGN)
    with Client(world.kafka(PORT)) as admin:
        attempts.begin_transaction(admin, f"{STRANGER}.tx")  # waits for the coordinator, which a first use starts
    seen, all_there_is = answers(world.kafka(PORT, ATTACKER), listings()), answers(world.kafka(PORT), listings())

    def names(found: dict[str, Answer], label: str, part: str, key: str) -> set[str]:
        return {one[key] for one in found[label].told[part]}

    assert names(seen, "listing topics", "topics", "name") == {OWN}
    assert FOREIGN in names(all_there_is, "listing topics", "topics", "name")
    groups = names(seen, "listing groups", "groups", "group_id")
    assert all(group.startswith(f"{ATTACKER}.") for group in groups)
    assert f"{VICTIM}.program" in names(all_there_is, "listing groups", "groups", "group_id")
    assert names(seen, "listing transactions", "transaction_states", "transactional_id") == set()
    assert f"{STRANGER}.tx" in names(all_there_is, "listing transactions", "transaction_states", "transactional_id")
    assert seen["asking for the cluster"].told["authorized_operations"] == []
    assert all_there_is["asking for the cluster"].told["authorized_operations"] != []


def commit(world: World, user: str, topic: str) -> None:
    """Read one record in a consumer group of the user's own, and commit."""
    conf = {**world.kafka(PORT, user).librdkafka(), "log_level": 0, "auto.offset.reset": "earliest"}
    consumer = Consumer({**conf, "group.id": f"{user}.program", "enable.auto.commit": False})
    consumer.subscribe([topic])
    record = consumer.poll(PATIENCE)
    assert record is not None and record.error() is None
    consumer.commit(message=record, asynchronous=False)
    consumer.close()


def test_who_has_passwords_is_told_to_nobody_who_asks_for_all(world: World) -> None:
    """A customer who asks for all users with passwords is refused or gets no answer; the administrator gets the list.

    To a refused request for "all users" Kafka 4.3.1 sends no answer at all: it fails while building one.
    """
    everyone = schema_request("reading who has passwords", "DescribeUserScramCredentials", 0, {"users": None})

    async def ask() -> None:
        async with connected(world.kafka(PORT, ATTACKER), seconds=2.0) as connection:
            answer = await everyone.ask(connection)
        assert answer.refused

    try:
        asyncio.run(ask())
    except (RequestTimeout, ConnectionLost):
        pass
    assert any(
        one["user"] == ATTACKER for one in answers(world.kafka(PORT), [everyone])[everyone.label].told["results"]
    )


def test_the_old_password_ends_with_the_change(world: World) -> None:
    """The old password stops working with the change."""
    old = world.kafka(PORT, ATTACKER)
    assert old.password is not None
    new = dataclasses.replace(old, password=SecretStr(secrets.token_urlsafe(24)))

    def logs_in(endpoint: KafkaEndpoint) -> bool:
        try:
            attempts.log_in(endpoint, ATTACKER, endpoint.password)
        except WrongPassword:
            return False
        return True

    assert (logs_in(old), logs_in(new)) == (True, False)
    assert new.password is not None
    give_password(world.kafka(PORT), ATTACKER, new.password)  # returns when the broker accepts it
    try:
        assert (logs_in(new), logs_in(old)) == (True, False)
    finally:
        give_password(world.kafka(PORT), ATTACKER, old.password)
    assert (logs_in(old), logs_in(new)) == (True, False)


# --- attacks that could keep the broker from serving others


async def others_are_served(world: World, until: Callable[[], bool]) -> int:
    """Read as another user, repeatedly while an attack runs; return how often it succeeded."""
    done = 0
    while True:
        last = until()
        await asyncio.to_thread(read_own, world, VICTIM, FOREIGN)
        done += 1
        if last:
            return done


def read_own(world: World, user: str, topic: str) -> None:
    with UserConsumer(world.kafka(PORT, user), group=f"{user}.served", timeout=PATIENCE) as reader:
        assert any(record for record in reader.read([topic], start=StartAt.BEGINNING, follow=False))


def during(world: World, attack: Callable[[], Awaitable[None]]) -> None:
    """Run an attack; another user must be served during and after it."""

    async def both() -> None:
        over = asyncio.create_task(_as_task(attack))
        assert await others_are_served(world, over.done) >= 1
        await over

    asyncio.run(both())


async def _as_task(attack: Callable[[], Awaitable[None]]) -> None:
    await attack()


def test_a_thousand_logins_right_and_wrong_keep_nobody_out(world: World, append: Append) -> None:
    append(PORT, FOREIGN, b"x")
    right = world.kafka(PORT, ATTACKER)
    wrong = dataclasses.replace(right, password=SecretStr("guessed"))
    host, port = right.bootstrap[0]
    outcomes = {"in": 0, "out": 0}

    async def attack() -> None:
        gate = asyncio.Semaphore(50)
        held: list[Connection] = []

        async def log_in(number: int) -> None:
            endpoint = right if number % 2 else wrong
            while True:
                try:
                    held.append(await connect(host, port, endpoint, client_id="attack", request_timeout=PATIENCE))
                    outcomes["in"] += 1
                except AuthenticationFailed:
                    outcomes["out"] += 1
                except (ConnectionLost, RequestTimeout):  # neither accepted nor refused: the broker was busy
                    continue
                return

        async def one_after_the_other(number: int) -> None:
            async with gate:
                await log_in(number)

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(1000):
                    group.create_task(one_after_the_other(number))
        finally:
            for connection in held:
                connection.close()

    during(world, attack)
    assert outcomes == {"in": 500, "out": 500}


HUGE = struct.pack(">i", 200 << 20) + b"garbage" * 1000
NONSENSE = struct.pack(">i", 4000) + secrets.token_bytes(4000)
NEGATIVE = struct.pack(">i", -1)


@contextmanager
def plain_socket(endpoint: KafkaEndpoint) -> Iterator[socket.socket]:
    with socket.create_connection(endpoint.bootstrap[0], timeout=PATIENCE) as opened:
        yield opened


@pytest.mark.parametrize("frame", [HUGE, NONSENSE, NEGATIVE], ids=["huge", "nonsense", "negative"])
def test_a_frame_that_is_no_request_ends_its_own_connection_only(world: World, append: Append, frame: bytes) -> None:
    """Bytes that are no Kafka request end only their own connection."""
    append(PORT, FOREIGN, b"x")
    endpoint = world.kafka(PORT, ATTACKER)
    with plain_socket(endpoint) as opened:
        opened.sendall(frame)
        assert hung_up(opened), "before login"

    async def after_login() -> None:
        async with connected(endpoint) as connection:
            lost = connection.send(3, 9, [frame[4:]])  # the header of a request, then an invalid body
            with pytest.raises(ConnectionLost):
                await lost

    asyncio.run(after_login())
    read_own(world, VICTIM, FOREIGN)


def hung_up(opened: socket.socket) -> bool:
    """Return whether the other side closed the connection."""
    try:
        return opened.recv(1) == b""
    except ConnectionError:
        return True


def test_announcing_large_requests_takes_no_broker_down(world: World, append: Append) -> None:
    """Announcing very large requests does not bring the broker down.

    A broker allocates memory for a request when its size is announced, before any of it has arrived.
    """
    append(PORT, FOREIGN, b"x")
    endpoint = world.kafka(PORT, ATTACKER)

    async def announce(size: int) -> Connection:
        host, port = endpoint.bootstrap[0]
        connection = await connect(host, port, endpoint, client_id="attack", request_timeout=PATIENCE)
        transport = connection._transport  # noqa: SLF001 - a request of any announced size, which nothing else sends
        assert transport is not None
        transport.write(struct.pack(">i", size) + b"garbage")
        return connection

    async def attack() -> None:
        too_large = [await announce(100 << 20) for _ in range(6)]
        async with asyncio.timeout(PATIENCE):
            for connection in too_large:
                await connection.wait_closed()
        allowed = [await announce(8 << 20) for _ in range(8)]
        await asyncio.to_thread(read_own, world, VICTIM, FOREIGN)
        for connection in allowed:
            connection.close()

    during(world, attack)
