"""Change passwords while everything runs, on dedicated brokers that require a new login every two seconds.

Fairlead's services must not be affected: no append fails, no message is lost. Other clients' sessions end in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import json
import os
import stat
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from pydantic import SecretStr
from typer.testing import CliRunner

from acl import rotate as rotation
from acl.apply import apply_sites, apply_topology
from acl.history import UserChange, suspended_users
from acl.kafka import AdminStore, Client, KafkaRules, StartAt, UserConsumer, admin_stores, read_history, rules_of
from fairlead.cli.commands.acl import app as acl_command
from fairlead.cli.commands.bridge import make_bridge
from fairlead.cli.commands.replicate import replicator_for
from fairlead.errors import ConfigurationError, RefusedError, UnavailableError, UnknownNameError
from fairlead.kafka.admin import create_logs, login_refused, require_answer
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.credentials import give_password
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TP
from fairlead.local.sites import LocalSites, SiteSpec
from tests.integration.acl.conftest import IMO, LIFE, PORT, PROPERTIES, SHIP, TOPOLOGY
from tests.support.edge.fleet import Publisher, until
from tests.support.kafka.records import marker, record
from tests.support.logins import accepts, answer
from tests.support.sites import NewSites
from tests.support.waits import PATIENCE
from topologies.context import Context, open_topology
from topologies.model import KafkaAddress
from topologies.users import ADMIN, service_users

pytestmark = [pytest.mark.long, pytest.mark.integration]


@dataclass(frozen=True)
class Place:
    """The two sites."""

    context: Context
    local: LocalSites

    def rotate(self, user: str, site: str, *, now: bool = False) -> rotation.Rotated:
        (done,) = rotation.rotate(self.context.topology, self.context.resolver, self.local, user, [site], now=now)
        if done.error is not None:
            raise done.error
        return done

    def kafka(self, site: str, user: str = ADMIN) -> KafkaEndpoint:
        return self.context.resolver.kafka(site, user)

    @property
    def secrets(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = json.loads((self.local.folder / "secrets.json").read_text())
        return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, new_sites: NewSites) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("rotation")
    file = home / "rotation.yaml"
    file.write_text(TOPOLOGY.replace("name: access", "name: rotation"), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRLEAD_HOME", str(home))
        context = open_topology(str(file))
    local = new_sites(context.folder)
    local.up(
        [SiteSpec(site, tuple(service_users(context.topology, site)), properties=PROPERTIES) for site in (PORT, SHIP)]
    )
    made = Place(context, local)
    for site in (PORT, SHIP):
        create_logs(made.kafka(site), {f"events.{SHIP}": {}, "feeds.ducks": {}, f"ships.{IMO}.location": {}})
    apply_topology(context.topology, context.resolver)
    yield made
    local.down(purge=True)


class Writer:
    """Append continuously as the ship's bridge, with the password looked up at each login; an error ends it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.log = TP(f"events.{SHIP}")
        self.appended = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Writer]:
        async with await Cluster.open(lambda: self._place.kafka(SHIP, "bridge"), client_id="writer") as cluster:
            appender = Appender(cluster)
            await cluster.wait_writable([self.log.topic])
            await appender.ensure_open(self.log, marker())
            stop = asyncio.Event()
            writing = asyncio.create_task(self._write(appender, stop))
            yield self
            stop.set()
            await writing
            await appender.close()

    async def _write(self, appender: Appender, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await appender.append(self.log, [record(f"event {self.appended}")])
            self.appended += 1
            await asyncio.sleep(0.005)


async def test_services_ride_through_rotations(place: Place) -> None:
    """A bridge, a replicator and a writer keep working while all their passwords, and admin's, change twice."""
    bridge, replicator = make_bridge(place.context, PORT), replicator_for(place.context, PORT)
    stop, device = asyncio.Event(), Publisher(place.context.resolver.mqtt(PORT, "device"))
    work = [asyncio.create_task(bridge.run(stop)), asyncio.create_task(replicator.run(stop))]
    await until(lambda: bridge.ready.is_set() or work[0].done(), what="the bridge")
    sent = itertools.count()
    try:
        async with Writer(place).running() as writer:

            def alive() -> None:
                for task in work:
                    if task.done():
                        task.result()

            async def all_again() -> None:
                """Wait until every earlier session has ended or been renewed, and all services have worked since."""
                loop = asyncio.get_running_loop()
                ends, appended = loop.time() + 1.5 * LIFE, writer.appended
                while loop.time() < ends:
                    await device.publish("fairlead/v1/nonsense", f"{next(sent)}".encode())
                    alive()
                await until(lambda: writer.appended > appended or any(map(asyncio.Task.done, work)), what="an append")

            await all_again()
            for user, site in 2 * [
                ("bridge", SHIP),
                ("replicator.port", SHIP),
                ("replicator", PORT),
                ("bridge", PORT),
                (ADMIN, PORT),
                (ADMIN, SHIP),
            ]:
                before = place.kafka(site, user)
                await asyncio.to_thread(place.rotate, user, site)
                assert place.kafka(site, user).password != before.password
                assert not await asyncio.to_thread(accepts, before)
            await all_again()
        appended = writer.appended
        published = next(sent)
        await until(lambda: bridge.snapshot()["dead_letters"] == published, what="every message in the log")

        # In a thread: while this loop is blocked, the replicator that runs in it loses its two-second sessions.
        async with asyncio.timeout(PATIENCE):
            while await asyncio.to_thread(_end, place.kafka(PORT), writer.log.topic) != appended + 1:  # with the marker
                alive()
    finally:
        device.close()
        stop.set()
        await asyncio.gather(*work)


async def test_what_devices_publish_while_the_bridges_password_changes_is_not_lost(place: Place) -> None:
    """Messages that devices publish during a change of the bridge's password are not lost, even while the bridge is
    away.

    Mosquitto 2.0 queues nothing for the bridge's session from the signal to reload the new password until the bridge
    reconnects, although it acknowledges the devices' messages.
    """
    device, kind = Publisher(place.context.resolver.mqtt(PORT, "device")), f"fairlead/v1/{uuid.uuid4().hex}"
    sent, unsent = itertools.count(), set[str]()

    async def publish() -> None:
        await device.publish(f"{kind}/{next(sent)}", b"x")

    async def publish_until(done: asyncio.Future[rotation.Rotated]) -> None:
        while not done.done():
            await publish()
            await asyncio.sleep(0.002)  # at the pace of devices, not as fast as possible

    async def rotate() -> None:
        rotating = asyncio.ensure_future(asyncio.to_thread(place.rotate, "bridge", PORT))
        await publish_until(rotating)
        await rotating
        await publish()

    @contextlib.asynccontextmanager
    async def bridge() -> AsyncIterator[None]:
        running, stop = make_bridge(place.context, PORT), asyncio.Event()
        work = asyncio.create_task(running.run(stop))
        await until(lambda: running.ready.is_set() or work.done(), what="the bridge")
        try:
            yield
            published, seen = next(sent), set[str]()
            await publish()  # the last message: any that is missing now will not come
            last = f"{kind}/{published + 1}"
            within = asyncio.get_running_loop().time() + PATIENCE
            while last not in seen and not work.done() and asyncio.get_running_loop().time() < within:
                seen = await asyncio.to_thread(_topics_of_dead_letters, place.kafka(PORT))
            missing = {f"{kind}/{n}" for n in range(published)} - seen - unsent
            assert last in seen and not missing, f"{len(missing)} of {published} messages are lost"
            unsent.add(f"{kind}/{published}")
        finally:
            stop.set()
            await work

    try:
        async with bridge():
            for _ in range(3):
                await rotate()
        await rotate()
        async with bridge():
            pass
    finally:
        device.close()


def test_a_broker_goes_on_with_its_transactions_when_admins_password_changes(place: Place) -> None:
    """A broker still completes transactions after admin's password changed.

    Brokers write the end of transactions as a user of their own; with admin's old password they could not.
    """
    place.rotate(ADMIN, PORT)
    for _ in range(2):
        producer = Producer({**place.kafka(PORT).librdkafka(), "transactional.id": "t", "log_level": 0})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        producer.produce("feeds.ducks", b"x")
        producer.commit_transaction(PATIENCE)


def test_plain_clients_go_on_until_they_are_asked_again(place: Place) -> None:
    """Other clients keep working until the broker requires a new login.

    librdkafka renews its login by itself, and loses its session at the first renewal after a password change.
    """
    trouble: list[KafkaError] = []
    old = place.kafka(SHIP, "bridge")
    producer = Producer({**old.librdkafka(), "error_cb": trouble.append, "log_level": 0, "enable.idempotence": True})
    delivered: list[KafkaError | None] = []

    def produce(until_: Callable[[], bool]) -> None:
        while not until_():
            producer.produce(f"ships.{IMO}.location", b"x", on_delivery=lambda error, _: delivered.append(error))
            producer.poll(0.01)

    def asked() -> bool:
        return any(map(login_refused, trouble))

    ends = time.monotonic() + 2 * LIFE
    produce(lambda: time.monotonic() > ends)
    assert delivered  # a session that expires while the machine is held up is lost; the client opens another by itself
    trouble.clear()
    place.rotate("bridge", SHIP)
    produce(asked)
    new = place.kafka(SHIP, "bridge").password
    assert new is not None
    producer.set_sasl_credentials("bridge", new.get_secret_value())
    assert producer.flush(PATIENCE) == 0
    assert not any(delivered)


@pytest.mark.parametrize("user", ["ducks", ADMIN])
@pytest.mark.parametrize("told", [False, True])
def test_a_rotation_that_was_cut_off(place: Place, user: str, told: bool) -> None:
    """An interrupted rotation, before or after the broker got the new password, can be completed.

    Clients that ask for the password get both, and running the command again finishes the rotation.
    """

    def cut(admin: KafkaEndpoint, name: str, password: SecretStr) -> None:
        if told:
            give_password(admin, name, password)
        raise InterruptedError

    before = place.kafka(PORT, user)
    with pytest.raises(InterruptedError):
        place.local.change_password(PORT, user, cut)
    during = place.kafka(PORT, user)
    assert (during.password, len(during.other_passwords)) == (before.password, 1)
    require_answer(during)
    assert accepts(before) is not told

    if user == ADMIN:
        place.local.restart(PORT)  # ``up`` also tries both passwords for the user that it starts the site as
        assert place.kafka(PORT, user).other_passwords == during.other_passwords
    place.rotate(user, PORT)
    after = place.kafka(PORT, user)
    assert (after.password, after.other_passwords) == (during.other_passwords[0], ())
    assert accepts(after) and not accepts(before)


def test_fairlead_up_finishes_the_rotation_of_a_service(place: Place) -> None:
    with pytest.raises(InterruptedError):
        place.local.change_password(PORT, "bridge", _interrupted)
    spec = SiteSpec(PORT, tuple(service_users(place.context.topology, PORT)), properties=PROPERTIES)
    place.local.up([spec])
    after = place.kafka(PORT, "bridge")
    assert after.other_passwords == () and accepts(after)
    assert answer(place.context.resolver.mqtt(PORT, "bridge")) == "Success"


def test_the_bridge_gets_two_passwords_one_for_each_broker(place: Place) -> None:
    """The bridge gets two new passwords, one for each of its brokers (Kafka and Mosquitto)."""

    def passwords() -> tuple[SecretStr | None, SecretStr | None]:
        resolver = place.context.resolver
        return resolver.kafka(PORT, "bridge").password, resolver.mqtt(PORT, "bridge").password

    old_mqtt, before = place.context.resolver.mqtt(PORT, "bridge"), passwords()
    place.rotate("bridge", PORT)
    after = passwords()
    assert len({*before, *after}) == 4
    assert accepts(place.kafka(PORT, "bridge"))
    assert answer(old_mqtt) == "Not authorized"
    assert answer(place.context.resolver.mqtt(PORT, "bridge")) == "Success"


def test_mosquitto_takes_the_new_password_and_ends_the_old_connections(place: Place) -> None:
    old = place.context.resolver.mqtt(PORT, "device")
    place.rotate("device", PORT)
    assert answer(old) == "Not authorized"
    assert answer(place.context.resolver.mqtt(PORT, "device")) == "Success"


def test_a_leaked_password_gives_nothing_more_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rotation after a leak (``now=True``) ends all access with the stolen password at once.

    The thief's open sessions read nothing once the ACLs are removed, and end before the ACLs return.
    """
    old = place.kafka(PORT, "ducks")
    with Client(place.kafka(PORT)) as client:
        rules = set(rules_of(AdminStore(client, local=True), "ducks"))
    trouble: list[KafkaError] = []
    thief = Consumer(
        {
            **old.librdkafka(),
            "group.id": "ducks.thief",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "error_cb": trouble.append,
        }
    )
    thief.subscribe(["feeds.ducks"])
    admin = Producer({**place.kafka(PORT).librdkafka(), "log_level": 0})

    def read() -> bytes | None:
        message = thief.poll(0.2)
        return None if message is None or message.error() else message.value()

    admin.produce("feeds.ducks", b"before")
    admin.flush(PATIENCE)
    within = time.monotonic() + PATIENCE
    while read() != b"before":
        assert time.monotonic() < within
    changed: list[float] = []
    change = LocalSites.change_password

    def slowly(local: LocalSites, *arguments: Any) -> None:
        change(local, *arguments)
        changed.append(time.monotonic())

    with monkeypatch.context() as patch:
        patch.setattr(LocalSites, "change_password", slowly)
        done = place.rotate("ducks", PORT, now=True)
    assert done.revoked is not None and done.revoked.seconds == LIFE
    assert done.revoked.since >= changed[0]  # sessions that the old password has opened live until they expire
    ends = done.revoked.ends
    assert ends is not None
    assert suspended_users(read_history(place.kafka(PORT))[0], ends - dt.timedelta(seconds=1)) == {"ducks": ends}
    assert done.revoked.count == len(rules) > 0
    admin.produce("feeds.ducks", b"after")
    admin.flush(PATIENCE)
    seen: list[bytes | None] = []
    within = time.monotonic() + PATIENCE
    while not any(map(login_refused, trouble)):
        seen.append(read())
        assert time.monotonic() < within
    assert not accepts(old)
    after = rotation.readmit(lambda: place.context.topology, admin_stores(place.context.resolver), done)
    assert after.error is None
    seen += [read() for _ in range(5)]
    assert b"after" not in seen
    with Client(place.kafka(PORT)) as client:
        assert set(rules_of(AdminStore(client, local=True), "ducks")) == rules
    thief.close()
    entries, _ = read_history(place.kafka(PORT))
    assert suspended_users(entries, ends - dt.timedelta(seconds=1)) == {}
    said = [(e.action, e.phase.value) for e in entries if isinstance(e, UserChange) and e.user == "ducks"]
    assert said[-4:] == [("rotate", "intent"), ("rotate", "done"), ("readmit", "intent"), ("readmit", "done")]


def test_applying_gives_nothing_back_while_a_leak_is_not_over(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Applying ACLs restores no access while a leak is not resolved.

    The ACLs are removed and the password could not be changed, so old sessions may exist or be opened.
    """
    topology, resolver = place.context.topology, place.context.resolver

    def unreachable(*_: object) -> None:
        raise UnavailableError("its Kafka does not answer")

    def held() -> set[str]:
        with Client(place.kafka(PORT)) as client:
            return {rule.name for rule in KafkaRules(client).read() if rule.user == "ducks"}

    before = held()
    with monkeypatch.context() as patch:
        patch.setattr(LocalSites, "change_password", unreachable)
        (cut,) = rotation.rotate(topology, resolver, place.local, "ducks", [PORT], now=True)
    assert isinstance(cut.error, UnavailableError) and before and not held()

    said: list[str] = []
    (result,) = apply_sites(topology, admin_stores(resolver), [PORT], lambda _, text: said.append(text))
    assert (result.error, result.added, result.suspended) == (None, 0, ("ducks",)) and not held()
    assert "ducks is suspended until its brokers are restarted" in said[0]

    (result,) = apply_sites(topology, admin_stores(resolver), [PORT], readmit=["ducks"])
    assert (result.error, result.suspended) == (None, ()) and held() == before
    (result,) = apply_sites(topology, admin_stores(resolver), [PORT])
    assert (result.added, result.suspended) == (0, ())


def test_fairleads_own_users_are_not_cut_off(place: Place) -> None:
    with pytest.raises(RefusedError, match="the site would stop working"):
        place.rotate("bridge", PORT, now=True)


def test_a_site_outside_this_machine(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rotation at a foreign cluster: the current and the next password come from the environment."""
    topology, (host, port) = place.context.topology, place.kafka(SHIP).bootstrap[0]
    address = KafkaAddress(bootstrap=f"{host}:{port}", security="SASL_PLAINTEXT")
    outside = topology.model_copy(
        update={"sites": {**topology.sites, SHIP: topology.sites[SHIP].model_copy(update={"kafka": address})}}
    )
    env = {"FAIRLEAD_SECRET_SHIP_ADMIN": place.secrets[SHIP][ADMIN], "FAIRLEAD_SECRET_SHIP_PRODUCER": "of today, yet"}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    resolver = place.context.resolver.__class__(outside, place.local, env=os.environ)

    def rotate(user: str) -> rotation.Rotated:
        (done,) = rotation.rotate(outside, resolver, place.local, user, [SHIP])
        return done

    assert rotate("producer").password_in.startswith("FAIRLEAD_SECRET_SHIP_PRODUCER")
    require_answer(resolver.kafka(SHIP, "producer"))
    monkeypatch.setenv("FAIRLEAD_SECRET_SHIP_PRODUCER_NEXT", "of tomorrow")
    assert rotate("producer").password_in == "FAIRLEAD_SECRET_SHIP_PRODUCER_NEXT"
    require_answer(resolver.kafka(SHIP, "producer"))  # the clients got both passwords
    refused = rotate(ADMIN).error
    assert isinstance(refused, ConfigurationError) and "FAIRLEAD_SECRET_SHIP_ADMIN_NEXT" in refused.hint
    monkeypatch.setenv("FAIRLEAD_SECRET_SHIP_ADMIN_NEXT", "admin's of tomorrow")
    assert rotate(ADMIN).error is None
    monkeypatch.setenv("FAIRLEAD_SECRET_SHIP_ADMIN", "admin's of tomorrow")
    monkeypatch.setenv("FAIRLEAD_SECRET_SHIP_ADMIN_NEXT", env["FAIRLEAD_SECRET_SHIP_ADMIN"])
    assert rotate(ADMIN).error is None  # and back again
    assert accepts(place.kafka(SHIP))


def test_the_command(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one site away, the command rotates at the other, says so, and finishes when run again; it prints no
    password.
    """
    monkeypatch.setenv("FAIRLEAD_HOME", str(place.local.folder.parent))
    file = str(place.context.source)

    def run(*arguments: str) -> tuple[str, BaseException | None]:
        result = CliRunner().invoke(acl_command.app, ["rotate", *arguments, "--yes", "--topology", file])
        return result.output, result.exception

    before = place.secrets
    place.local.kill(SHIP)
    try:
        output, error = run("producer")
    finally:
        place.local.restart(SHIP)
    assert isinstance(error, rotation.RotationIncomplete) and "the old password still counts at ship" in error.what
    assert f"port: changed; it is in {place.local.folder / 'secrets.json'}" in output
    assert stat.S_IMODE((place.local.folder / "secrets.json").stat().st_mode) == 0o600
    output2, error = run("producer", "--site", SHIP, "--json")
    assert error is None
    assert [(r["site"], r["error"]) for r in json.loads(output2)] == [(SHIP, None)]
    after = place.secrets
    for site in (PORT, SHIP):
        assert after[site]["producer"] != before[site]["producer"]
    for secret in (s for found in (before, after) for users in found.values() for s in users.values()):
        assert secret not in output + output2
    assert isinstance(run("nobody")[1], UnknownNameError)
    assert isinstance(run("controller")[1], RefusedError)
    assert isinstance(run("ducks", "--site", SHIP)[1], UnknownNameError)


def _interrupted(_admin: KafkaEndpoint, _user: str, _password: SecretStr) -> None:
    raise InterruptedError


def _topics_of_dead_letters(endpoint: KafkaEndpoint) -> set[str]:
    with UserConsumer(endpoint, group=f"{ADMIN}.rotation") as reader:
        records = reader.read([f"deadletters.{PORT}"], start=StartAt.BEGINNING, follow=False)
        return {json.loads(record.value or b"")["mqttTopic"] for record in records if record and record.is_data}


def _end(endpoint: KafkaEndpoint, topic: str) -> int:
    consumer = Consumer({**endpoint.librdkafka(), "group.id": "end", "log_level": 0})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE)[1])
    except KafkaException:
        return 0
    finally:
        consumer.close()
