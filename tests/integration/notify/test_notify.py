"""Routes of notifications with a real Kafka, a real web server and a real mail server: nothing is lost or repeated."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import json
import secrets
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from pydantic import SecretStr

from acl.compile import grants
from fairlead.cli import app as cli
from fairlead.kafka.admin import admin_client
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.credentials import give_password
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TP
from fairlead.records import encode
from fairlead.records.alert import Alert
from fairlead.records.booking import Booking
from notify import service
from notify.sender import sender_for
from notify.service import KnownBookings, RouteRunner, positions
from tests.support.access_rules import permitted
from tests.support.notices import BOX, OTHER, T0, alert, booking, fleet
from tests.support.receivers import Post, WebReceiver, mail_receiver, web_receiver
from tests.support.replication.lab import until as eventually
from tests.support.waits import PATIENCE, until
from topologies.loader.load import load
from topologies.model import Topology
from topologies.users import NOTIFY, NOTIFY_GROUPS, service_users

pytestmark = pytest.mark.integration

KEY = base64.b64encode(b"k" * 32).decode()
NIGHT = {"from": "22:00", "until": "06:00", "zone": "UTC"}


class Harbour:
    """A site with a log of alerts and one of bookings of its own, in a Kafka that others use, too."""

    def __init__(self, kafka: Callable[..., KafkaEndpoint], new_log: Callable[..., str]) -> None:
        self.site = f"port-{secrets.token_hex(3)}"
        self.endpoint = kafka("alpha")
        self.run = secrets.token_hex(3)
        self.now = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
        self._new_log = new_log
        self._producer = Producer({**self.endpoint.librdkafka(), "log_level": 0})
        self.alerts = new_log("alpha", name=f"alerts.{self.site}")
        new_log("alpha", name=f"bookings.{self.site}")

    def topology(self, **routes: Any) -> Topology:
        """Return a topology with these routes, whose names and filters no other test has."""
        made = {f"{name}-{self.run}": {"ports": [self.site], **route} for name, route in routes.items()}
        return fleet(made, at=self.site)

    def name(self, route: str) -> str:
        return f"{route}-{self.run}"

    def append(self, *values: Alert | Booking) -> None:
        for value in values:
            log = self.alerts if isinstance(value, Alert) else f"bookings.{self.site}"
            self._producer.produce(log, encode(value))
            assert self._producer.flush(PATIENCE) == 0

    def alert(self, name: str, *state: Any, **changes: Any) -> Alert:
        """Return a state of an alert, whose id no other test has: it is over for every route when it is over."""
        return alert(f"{name}-{self.run}", *state, raised_at=self.site, **changes)

    def runner(self, topology: Topology, route: str, known: KnownBookings | None = None) -> RouteRunner:
        assert topology.notify is not None
        name = self.name(route)
        return RouteRunner(
            name,
            topology,
            sender_for(name, topology.notify.routes[name], lambda: SecretStr(KEY), ""),
            self.endpoint,
            known or KnownBookings(topology, self.site),
            delays=(0.05, 0.2),
            now=lambda: self.now,
        )

    async def position(self, topology: Topology, route: str) -> service.RoutePosition | None:
        logs, _ = (await positions(topology, self.endpoint))[self.name(route)]
        return logs.get(TP(self.alerts))

    async def reaches(self, topology: Topology, route: str, offset: int) -> service.RoutePosition:
        """Wait until a route has committed an offset of the log."""
        found: service.RoutePosition | None = None

        async def there() -> bool:
            nonlocal found
            found = await self.position(topology, route)
            return found is not None and found.next >= offset

        await eventually(there, f"offset {offset} of {self.name(route)}")
        assert found is not None
        return found


@contextlib.asynccontextmanager
async def running(*runners: RouteRunner) -> AsyncIterator[None]:
    """Run routes, and stop them as SIGTERM does."""
    stop = asyncio.Event()
    tasks = [asyncio.create_task(each.run(stop)) for each in runners]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def arrive(receiver: WebReceiver, *wanted: tuple[str, str]) -> None:
    """Wait until a receiver has heard exactly this since it was cleared."""
    await asyncio.to_thread(until, lambda: len(receiver.about()) >= len(wanted), f"{wanted}, not {receiver.about()}")
    assert receiver.about() == list(wanted)


@pytest.fixture
def harbour(
    kafka: Callable[..., KafkaEndpoint], new_log: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> Harbour:
    monkeypatch.setattr(service, "LOOK", 0.1)
    return Harbour(kafka, new_log)


@pytest.fixture
def web() -> Iterator[WebReceiver]:
    with web_receiver() as receiver:
        yield receiver


async def test_a_restart_neither_loses_nor_repeats(harbour: Harbour, web: WebReceiver) -> None:
    """A new route begins with what comes after its first start."""
    topology = harbour.topology(hook={"to": {"webhook": web.url}})
    harbour.append(harbour.alert("old"))
    async with running(harbour.runner(topology, "hook")):
        await harbour.reaches(topology, "hook", 1)
        harbour.append(harbour.alert("a"), harbour.alert("b"))
        await arrive(web, ("opened", "a"), ("opened", "b"))
    harbour.append(harbour.alert("a", "CLEARED"), harbour.alert("c"))
    async with running(harbour.runner(topology, "hook")):
        await arrive(web, ("opened", "a"), ("opened", "b"), ("cleared", "a"), ("opened", "c"))
        await harbour.reaches(topology, "hook", 5)
    async with running(harbour.runner(topology, "hook")):
        harbour.append(harbour.alert("c", "UPDATED"), harbour.alert("c", "UPDATED", "CRITICAL", revision=2))
        await arrive(web, *(("opened", "a"), ("opened", "b"), ("cleared", "a"), ("opened", "c"), ("raised", "c")))
    assert len({post.number for post in web.posts}) == len(web.posts)


async def test_what_was_delivered_and_not_committed_comes_again_with_the_same_number(harbour: Harbour) -> None:
    """The process ends while the receiver takes its time; a clean stop would wait for the answer."""
    go_on = threading.Event()

    def slowly(post: Post) -> int:
        go_on.wait(PATIENCE)
        return 204

    with web_receiver(slowly) as web:
        topology = harbour.topology(hook={"to": {"webhook": web.url}})
        killed = asyncio.create_task(harbour.runner(topology, "hook").run(asyncio.Event()))
        await harbour.reaches(topology, "hook", 0)
        harbour.append(harbour.alert("a"), harbour.alert("b"))
        await asyncio.to_thread(until, lambda: len(web.posts) == 1, "the first request")
        killed.cancel()
        await asyncio.gather(killed, return_exceptions=True)
        go_on.set()
        async with running(harbour.runner(topology, "hook")):
            await arrive(web, ("opened", "a"), ("opened", "a"), ("opened", "b"))
        first, again, other = (post.number for post in web.posts)
        assert first == again != other and web.posts[0].body == web.posts[1].body


async def test_a_stop_waits_for_what_is_being_sent(harbour: Harbour) -> None:
    go_on, asked = threading.Event(), threading.Event()

    def slowly(post: Post) -> int:
        asked.set()
        go_on.wait(PATIENCE)
        return 204

    with web_receiver(slowly) as web:
        topology = harbour.topology(hook={"to": {"webhook": web.url}})
        stop = asyncio.Event()
        task = asyncio.create_task(harbour.runner(topology, "hook").run(stop))
        await harbour.reaches(topology, "hook", 0)
        harbour.append(harbour.alert("a"), harbour.alert("b"))
        await asyncio.to_thread(asked.wait, PATIENCE)
        stop.set()
        go_on.set()
        await task
        assert web.about() == [("opened", "a")]
        async with running(harbour.runner(topology, "hook")):
            await arrive(web, ("opened", "a"), ("opened", "b"))


async def test_a_receiver_that_is_away_holds_up_no_other_and_misses_nothing(harbour: Harbour) -> None:
    with web_receiver(lambda post: 503) as away, web_receiver() as there:
        topology = harbour.topology(away={"to": {"webhook": away.url}}, there={"to": {"webhook": there.url}})
        failing = harbour.runner(topology, "away")
        async with running(failing, harbour.runner(topology, "there")):
            await harbour.reaches(topology, "away", 0)
            await harbour.reaches(topology, "there", 0)
            harbour.append(harbour.alert("a"), harbour.alert("b"))
            await arrive(there, ("opened", "a"), ("opened", "b"))
            await asyncio.to_thread(until, lambda: failing.failed >= 3, "three attempts")
            assert failing.snapshot()["failing"] and {each for each in away.about()} == {("opened", "a")}
            assert len({post.number for post in away.posts}) == 1
            await asyncio.to_thread(until, lambda: failing.snapshot()["lag"] == 2, "both to wait")
            found = await harbour.position(topology, "away")
            assert found is not None and found.next == 0
            away.answer = lambda post: 204
            await harbour.reaches(topology, "away", 2)
        assert away.about()[-2:] == [("opened", "a"), ("opened", "b")]
        assert not failing.snapshot()["failing"] and failing.delivered == 2


async def test_what_a_receiver_refuses_is_counted_and_does_not_hold_up_the_next(
    harbour: Harbour, caplog: pytest.LogCaptureFixture
) -> None:
    with web_receiver(lambda post: 410 if post.about() == [("opened", "a")] else 204) as web:
        topology = harbour.topology(hook={"to": {"webhook": web.url}})
        runner = harbour.runner(topology, "hook")
        async with running(runner):
            await harbour.reaches(topology, "hook", 0)
            harbour.append(harbour.alert("a"), harbour.alert("b"))
            found = await harbour.reaches(topology, "hook", 2)
    assert web.about() == [("opened", "a"), ("opened", "b")]
    assert (runner.refused, runner.delivered) == (1, 1)
    assert (found.progress.refused, found.progress.answer, found.progress.delivered) == (1, "HTTP 410", harbour.now)
    assert web.posts[0].number in caplog.text and "refused" in caplog.text


async def test_quiet_hours_end_with_one_message_also_after_restarts(harbour: Harbour, web: WebReceiver) -> None:
    topology = harbour.topology(hook={"to": {"webhook": web.url}, "quiet": NIGHT})
    async with running(harbour.runner(topology, "hook")):
        await harbour.reaches(topology, "hook", 0)
        harbour.append(harbour.alert("before"))
        await arrive(web, ("opened", "before"))
    harbour.now = harbour.now.replace(hour=23)
    heard = [("opened", "before"), ("opened", "worst"), ("raised", "b")]
    async with running(harbour.runner(topology, "hook")):
        harbour.append(harbour.alert("a"), harbour.alert("b"), harbour.alert("c"))
        harbour.append(harbour.alert("worst", "OPENED", "CRITICAL"), harbour.alert("b", "UPDATED", "CRITICAL"))
        await arrive(web, *heard)
        await harbour.reaches(topology, "hook", 6)
    async with running(harbour.runner(topology, "hook")):
        harbour.append(harbour.alert("c", "CLEARED"), harbour.alert("before", "CLEARED"))
        found = await harbour.reaches(topology, "hook", 8)
        assert found.progress.held == 1 and web.about() == heard
    harbour.now += dt.timedelta(hours=8)
    async with running(harbour.runner(topology, "hook")):
        heard += [("opened", "a"), ("cleared", "before")]
        await arrive(web, *heard)

        async def sent() -> bool:
            return (await harbour.reaches(topology, "hook", 8)).progress.held is None

        await eventually(sent, "the end of what was held")
    assert len(web.posts) == 4
    async with running(harbour.runner(topology, "hook")):
        harbour.append(harbour.alert("d"))
        await arrive(web, *heard, ("opened", "d"))


async def test_positions_do_not_expire_while_a_route_runs(
    harbour: Harbour, web: WebReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers forget what groups without members have committed; here the group is deleted instead."""
    monkeypatch.setattr(service, "RENEW", 0.1)
    topology = harbour.topology(hook={"to": {"webhook": web.url}})
    admin = admin_client(harbour.endpoint)
    group = NOTIFY_GROUPS + harbour.name("hook")
    async with running(harbour.runner(topology, "hook")):
        await harbour.reaches(topology, "hook", 0)
        await asyncio.wrap_future(admin.delete_consumer_groups([group])[group])
        await harbour.reaches(topology, "hook", 0)
    assert web.posts == []


async def test_a_customer_hears_of_its_own_boxes_by_mail(harbour: Harbour) -> None:
    """Bookings decide at the alert's time, also those that came a moment before the alert."""
    with mail_receiver() as mail:
        to = f"mailto://127.0.0.1:{mail.port}/?from=a@example.com&to=ducks@example.com&mode=insecure"
        topology = harbour.topology(ducks={"to": to, "customers": ["ducks"]})
        known = KnownBookings(topology, harbour.site)
        async with await Cluster.open(harbour.endpoint, client_id="test") as cluster:
            await known.catch_up(cluster)
            following = asyncio.create_task(known.follow())
            async with running(harbour.runner(topology, "ducks", known)):
                await harbour.reaches(topology, "ducks", 0)
                harbour.append(harbour.alert("early"), booking("ducks", valid_to=T0 + dt.timedelta(hours=1)))
                harbour.append(
                    harbour.alert("other", equipment_reference=OTHER),
                    harbour.alert("late", event_date_time=T0 + dt.timedelta(hours=1)),
                    harbour.alert("mine"),
                    harbour.alert("site", equipment_reference=""),
                )
                await harbour.reaches(topology, "ducks", 5)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    found = [name for each in range(len(mail.mails)) for name in ("early", "mine") if f"{name}-" in mail.text(each)]
    assert found in (["mine"], ["early", "mine"])  # the first may have been looked at after the booking came
    assert all(BOX in subject for subject in mail.subjects())


async def test_the_commands_run_try_and_list(
    harbour: Harbour,
    web: WebReceiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As a user has them: with a file, secrets in the environment, the rules of the topology, and SIGTERM."""
    name, at = harbour.name("hook"), harbour.site
    address = ",".join(f"{host}:{port}" for host, port in harbour.endpoint.bootstrap)
    described = {
        "name": at,
        "sites": {
            at: {
                "kind": "port",
                "unlocode": "JPTYO",
                "kafka": {"bootstrap": address, "security": "SASL_PLAINTEXT"},
            }
        },
        "notify": {"at": at, "routes": {name: {"to": {"webhook": web.url}, "ports": [at]}}},
    }
    file = tmp_path / "port.yaml"
    file.write_text(yaml.safe_dump(described), encoding="utf-8")
    assert harbour.endpoint.password is not None
    admins, password = harbour.endpoint.password.get_secret_value(), secrets.token_hex(8)
    variable = f"FAIRLEAD_SECRET_{at}_".upper().replace("-", "_")
    given = {
        "FAIRLEAD_HOME": str(tmp_path / "home"),
        f"{variable}ADMIN": admins,
        f"{variable}NOTIFY": password,
        f"{variable}NOTIFY_{name}".upper().replace("-", "_"): KEY,
    }
    for key, value in given.items():
        monkeypatch.setenv(key, value)

    async def fairlead(*words: str) -> Any:
        assert await asyncio.to_thread(cli.run, ["notify", *words, "--topology", str(file), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert (await fairlead("list"))["routes"][0]["begun"] is False
    answer = await fairlead("test", name)
    assert (answer["delivered"], answer["answer"]) == (True, "HTTP 204")
    assert web.posts[0].number == answer["notification"] and "test" in web.posts[0].events()[0]["alert"]["alertID"]
    web.posts.clear()

    topology = load(str(file))
    rules = [each.rule for each in grants(topology, service_users(topology, at)[NOTIFY])]
    give_password(harbour.endpoint, NOTIFY, SecretStr(password))
    command = [sys.executable, "-m", "fairlead.cli.app", "notify", "run", "--topology", str(file)]
    with (
        permitted(lambda _: harbour.endpoint, {at: rules}),
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process,  # noqa: ASYNC220, S603 - ours
    ):
        try:
            await harbour.reaches(topology, "hook", 0)
            harbour.append(harbour.alert("a"))
            await arrive(web, ("opened", "a"))
        finally:
            process.terminate()
            _, said = await asyncio.to_thread(process.communicate)
    assert process.returncode == 0 and "stopped" in said and KEY not in said, said
    (row,) = (await fairlead("list"))["routes"]
    assert (row["lag"], row["refused"], row["positions"][harbour.alerts]) == (0, 0, 1)
    assert row["last_delivery"] is not None
