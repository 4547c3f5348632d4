"""The messages that a killed Mosquitto loses, and its speed, for each profile.

    python -m benchmarks.mqtt_profiles                 # both; 20 kills each: some 25 minutes
    python -m benchmarks.mqtt_profiles --only kills --kills 5
    python -m benchmarks.mqtt_profiles --only speed

*Kills*: devices publish at a steady rate, Mosquitto gets ``kill -9`` at a random moment and is started again; then a
fresh subscriber with the bridge's session takes everything. Lost is what was acknowledged to its device and does not
come. The bridge is ``away`` (messages queue) or ``stuck``: connected, but without Kafka, so that it acknowledges
nothing, and killed together with Mosquitto. What a bridge had got is never counted as safe.

*Speed*: how many messages a second four devices get acknowledged when so many are queued already, how long one save of
the broker's state takes then, and what part of a core the broker uses.

Writes ``build/bench/mqtt_profiles.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import logging
import random
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho
import psutil
from paho.mqtt.enums import CallbackAPIVersion
from pydantic import SecretStr

from benchmarks.harness import Figures, Say, main
from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.local import mosquitto, ports
from fairlead.local.state import Profile
from simulators.voyage.sender import MqttSender

DEVICES: Final = 4
RATE: Final = 400  # messages a second, of all devices, while waiting for a kill
PAYLOAD: Final = b"x" * 420  # with its number about what a reading has
TOPIC: Final = "fairlead/v1/bench"
LAST: Final = f"{TOPIC}/last"
SESSION: Final = "fairlead-bridge-bench"
QUEUED: Final = (10, 1_000, 100_000)
SECONDS: Final = 5.0
PATIENCE: Final = 120.0


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings of the broker and of the devices."""

    name: str
    profile: Profile
    on_changes: bool = False
    keep: bool = True  # devices keep what was acknowledged, where the profile says so

    @property
    def keep_seconds(self) -> float:
        return self.profile.keep_seconds if self.keep else 0.0


VARIANTS: Final = (
    Variant("fast", Profile.FAST),
    Variant("durable, devices that forget", Profile.DURABLE, keep=False),
    Variant("autosave_on_changes, devices that forget", Profile.DURABLE, on_changes=True, keep=False),
    Variant("durable", Profile.DURABLE),
)


class MosquittoBroker:
    """A Mosquitto in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs = mosquitto.find_mosquitto()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = ports.choose_ports(1)[0]
        users = {user: SecretStr(secrets.token_hex(8)) for user in (mosquitto.BRIDGE, "device")}
        self._users = users
        folder.mkdir(parents=True, exist_ok=True)
        mosquitto.write_users(folder, users, self._programs)

    def endpoint(self, user: str, keep_seconds: float = 0.0) -> MqttEndpoint:
        return MqttEndpoint("bench", ports.HOST, self.port, user, self._users[user], keep_seconds=keep_seconds)

    def start(self, variant: Variant) -> None:
        """Start it with these settings and wait until it serves."""
        mosquitto.write_configuration(self._folder, self.port, variant.profile)
        if variant.on_changes:
            file = self._folder / "mosquitto.conf"
            text = file.read_text(encoding="utf-8").replace("autosave_on_changes false", "autosave_on_changes true")
            file.write_text(text, encoding="utf-8")
        with (self._folder / "log").open("ab") as out:
            line = mosquitto.command(self._programs, self._folder)
            self._process = subprocess.Popen(line, stdout=out, stderr=out)  # noqa: S603
        end = time.monotonic() + PATIENCE
        while mosquitto.log_in(self.endpoint(mosquitto.BRIDGE)) != "Success":
            if time.monotonic() > end:
                raise RuntimeError("Mosquitto does not come up")
            time.sleep(0.02)

    def end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE)
            self._process = None

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("Mosquitto does not run")
        return self._process

    def cpu_seconds(self) -> float:
        times = psutil.Process(self._running.pid).cpu_times()
        return float(times.user + times.system)

    def save_seconds(self) -> float:
        """Seconds from the request to save until the new file is there. An idle Mosquitto handles signals only every
        100 ms, which is part of it."""
        file = self._folder / "mosquitto.db"
        before = file.stat().st_mtime_ns if file.exists() else 0
        began = time.perf_counter()
        self._running.send_signal(signal.SIGUSR1)
        while not file.exists() or file.stat().st_mtime_ns == before:
            time.sleep(0.001)
            if time.perf_counter() - began > PATIENCE:
                raise RuntimeError("Mosquitto did not save")
        return time.perf_counter() - began


class Taker:
    """Connects as the bridge. ``acknowledging``: takes everything; else it gets messages and answers none."""

    def __init__(self, endpoint: MqttEndpoint, *, acknowledging: bool) -> None:
        self.got: set[bytes] = set()
        self.last = threading.Event()
        self.ready = threading.Event()
        self._last = b""
        client = self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            SESSION,
            clean_session=False,
            manual_ack=not acknowledging,
            reconnect_on_failure=False,
        )
        client.username_pw_set(endpoint.user, endpoint.password.get_secret_value() if endpoint.password else None)
        client.on_connect = self._connected
        client.on_subscribe = lambda *_: self.ready.set()
        client.on_message = self._message
        client.connect(endpoint.host, endpoint.port)
        client.loop_start()
        if not self.ready.wait(PATIENCE):
            raise RuntimeError("Mosquitto does not let the bridge subscribe")

    def _connected(self, client: paho.Client, *_: Any) -> None:
        client.subscribe(f"{TOPIC}/#", 1)

    def _message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        if message.topic == LAST:
            if message.payload == self._last:
                self.last.set()
        else:
            self.got.add(bytes(message.payload).partition(b" ")[0])

    async def take_until(self, mark: bytes, publish: MqttSender) -> None:
        """Take everything that is published before this, and so comes before it."""
        self._last = mark
        publish.send(LAST, mark)
        if not await asyncio.to_thread(self.last.wait, PATIENCE):
            raise RuntimeError("Mosquitto does not deliver")

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Load:
    """Devices that publish numbered messages."""

    def __init__(self, broker: MosquittoBroker, keep_seconds: float) -> None:
        endpoint = broker.endpoint("device", keep_seconds)
        self.senders = [MqttSender(endpoint, f"bench-{number}") for number in range(DEVICES)]
        self.published: dict[bytes, float] = {}
        self._numbers = itertools.count()

    def publish(self, sender: MqttSender) -> None:
        name = b"%d" % next(self._numbers)
        self.published[name] = time.monotonic()
        sender.send(f"{TOPIC}/{name.decode()[-1]}", name + b" " + PAYLOAD)

    async def steadily(self, seconds: float) -> None:
        began, done = time.monotonic(), 0
        while (now := time.monotonic() - began) < seconds:
            for _ in range(int(now * RATE) - done):
                self.publish(self.senders[done % DEVICES])
                done += 1
            await asyncio.sleep(0.005)

    async def flush(self) -> None:
        for sender in self.senders:
            await sender.flush()


@contextlib.asynccontextmanager
async def loaded(broker: MosquittoBroker, keep_seconds: float) -> AsyncIterator[Load]:
    load = Load(broker, keep_seconds)
    async with contextlib.AsyncExitStack() as stack:
        for sender in load.senders:
            await stack.enter_async_context(sender)
        yield load


@contextlib.contextmanager
def broker_in(folder: Path) -> Iterator[MosquittoBroker]:
    broker = MosquittoBroker(folder)
    try:
        yield broker
    finally:
        broker.end(signal.SIGKILL)


async def kills(folder: Path, variant: Variant, *, stuck: bool, count: int, seed: int) -> dict[str, Any]:
    """Kill the broker ``count`` times; count what each kill loses."""
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    lost: list[int] = []
    seconds: list[float] = []
    published = sent_again = 0
    with broker_in(folder) as broker:
        broker.start(variant)
        Taker(broker.endpoint(mosquitto.BRIDGE), acknowledging=True).close()  # its session is there from now on
        await asyncio.to_thread(broker.save_seconds)
        for number in range(count):
            async with loaded(broker, variant.keep_seconds) as load:
                bridge = Taker(broker.endpoint(mosquitto.BRIDGE), acknowledging=False) if stuck else None
                await load.steadily(chance.uniform(2.0, 9.0))
                killed = time.monotonic()
                await asyncio.to_thread(broker.end, signal.SIGKILL)
                if bridge is not None:
                    bridge.close()
                await asyncio.to_thread(broker.start, variant)
                await load.flush()
                taker = await asyncio.to_thread(Taker, broker.endpoint(mosquitto.BRIDGE), acknowledging=True)
                await taker.take_until(b"%d" % number, load.senders[0])
                await load.flush()
                taker.close()
                await asyncio.to_thread(broker.save_seconds)  # the next kill shall find its own messages only
                missing = load.published.keys() - taker.got
                lost.append(len(missing))
                seconds.append(max((killed - load.published[name] for name in missing), default=0.0))
                published += len(load.published)
                sent_again += sum(sender.sent_again for sender in load.senders)
        broker.end(signal.SIGTERM)
    return {
        "kills": count,
        "published": published,
        "lost": sum(lost),
        "lost_by_kill": lost,
        "kills_that_lost": sum(1 for each in lost if each),
        "most_lost": max(lost),
        "oldest_lost_s": round(max(seconds), 1),
        "sent_again": sent_again,
    }


async def speed(folder: Path, variant: Variant, queued: int) -> dict[str, Any]:
    """Messages a second while at least ``queued`` are waiting."""
    with broker_in(folder) as broker:
        broker.start(Variant("filling", Profile.FAST))
        Taker(broker.endpoint(mosquitto.BRIDGE), acknowledging=True).close()
        async with loaded(broker, 0.0) as load:
            for number in range(queued):
                sender = load.senders[number % DEVICES]
                await sender.room()
                load.publish(sender)
            await load.flush()
        await asyncio.to_thread(broker.end, signal.SIGTERM)
        broker.start(variant)
        save = sorted([broker.save_seconds() for _ in range(3)])[1]
        async with loaded(broker, variant.keep_seconds) as load:
            cpu, began = broker.cpu_seconds(), time.perf_counter()
            await asyncio.gather(*(_as_fast_as_it_goes(load, sender) for sender in load.senders))
            acknowledged = sum(sender.acknowledged for sender in load.senders)
            seconds = time.perf_counter() - began
            used = broker.cpu_seconds() - cpu
        broker.end(signal.SIGKILL)
    return {
        "queued_before": queued,
        "messages_per_second": round(acknowledged / seconds),
        "save_ms": round(save * 1e3, 1),
        "broker_cores": round(used / seconds, 2),
    }


async def _as_fast_as_it_goes(load: Load, sender: MqttSender) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        while sender.waiting < 200:
            load.publish(sender)
        await asyncio.sleep(0.002)


def measure_speed(options: argparse.Namespace, say: Say) -> Figures:
    found: Figures = {}
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        for variant in (each for each in _chosen(options) if each.name != "durable, devices that forget"):
            rows = found[variant.name] = []
            for queued in QUEUED:
                rows.append(asyncio.run(speed(Path(folder) / f"{variant.name} {queued}", variant, queued)))
                say(f"{variant.name:42} {rows[-1]}")
    return found


def measure_kills(options: argparse.Namespace, say: Say) -> Figures:
    found: Figures = {"rate": RATE, "seed": options.seed}
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        for variant in _chosen(options):
            found[variant.name] = asyncio.run(_kill_both(Path(folder) / variant.name, variant, options))
            for how, row in found[variant.name].items():
                text = {key: value for key, value in row.items() if key != "lost_by_kill"}
                say(f"{variant.name:42} bridge {how:6} {text}")
    return found


async def _kill_both(folder: Path, variant: Variant, options: argparse.Namespace) -> Figures:
    """A bridge that is away and one that is stuck, at the same time."""
    away, stuck = await asyncio.gather(
        *(
            kills(folder / str(stuck), variant, stuck=stuck, count=options.kills, seed=options.seed + stuck)
            for stuck in (False, True)
        )
    )
    return {"away": away, "stuck": stuck}


def _chosen(options: argparse.Namespace) -> Sequence[Variant]:
    logging.disable(logging.WARNING)  # each device warns that its broker is gone
    return VARIANTS if options.variants is None else [VARIANTS[number] for number in options.variants]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--variants", type=int, nargs="*", help="only these, counted from 0")


if __name__ == "__main__":
    main("mqtt_profiles", {"speed": measure_speed, "kills": measure_kills}, __doc__, add_options)
