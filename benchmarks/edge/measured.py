"""The two measured programs, each in its own process: Fairlead's bridge and the plain one."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing as mp
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho
import psutil
import uvloop
from confluent_kafka import KafkaError, Message, Producer
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.harbour import BRIDGE_CLIENT, PLAIN_CLIENT, SITE, USER, connect, log_of, topology
from fairlead.local.registry import LocalSiteRegistry

SPAWN: Final = mp.get_context("spawn")
START_SECONDS: Final = 180.0
STOP_SECONDS: Final = 30.0
_TELL_SECONDS: Final = 0.02
Run = Callable[[Path, Event, Event, "Synchronized[int]", "Synchronized[int]"], None]
"""Gets the sites' folder, what to set when messages are taken, what ends it, and two counters to keep up to date:
events and readings that are stored, of which those that are readings."""


def bridge(folder: Path, ready: Event, stop: Event, stored: Synchronized[int], readings: Synchronized[int]) -> None:
    """Fairlead's bridge, as ``fairlead bridge`` runs it."""
    from edge.bridge import Bridge, BridgeSettings  # the other process does not load it

    async def main() -> None:
        sites = LocalSiteRegistry(folder)
        kafka, mqtt = sites.kafka(SITE, USER), sites.mqtt(SITE, "bridge")
        made = Bridge(topology(), SITE, kafka, mqtt, BridgeSettings(client_id=BRIDGE_CLIENT))
        stopping = asyncio.Event()
        running = asyncio.create_task(made.run(stopping))
        while not stop.is_set() and not running.done():
            if made.ready.is_set() and not ready.is_set():
                ready.set()
            stored.value, readings.value = made.metrics.opened + made.metrics.readings, made.metrics.readings
            await asyncio.sleep(_TELL_SECONDS)
        stopping.set()
        await running

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the harness, which stops its processes
    uvloop.run(main())


def plain(folder: Path, ready: Event, stop: Event, stored: Synchronized[int], readings: Synchronized[int]) -> None:
    """The obvious bridge: paho's own thread receives, librdkafka sends, the delivery report acknowledges."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sites = LocalSiteRegistry(folder)
    producer = Producer({**sites.kafka(SITE, USER).librdkafka(), "acks": "all", "linger.ms": 5, "log_level": 0})
    client = paho.Client(CallbackAPIVersion.VERSION2, PLAIN_CLIENT, clean_session=False, manual_ack=True)
    refused: list[KafkaError] = []

    def on_message(_client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        mid, number = message.mid, message.topic.split("/")[3]

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                client.ack(mid, 1)
                readings.value += 1
                stored.value += 1
            else:
                refused.append(error)

        producer.produce(log_of(number), bytes(message.payload), number, on_delivery=delivered)

    def on_connect(*_: Any) -> None:
        client.subscribe("fairlead/v1/containers/+/readings", 1)

    def on_subscribe(*_: Any) -> None:
        ready.set()

    client.on_message = on_message
    client.on_connect = on_connect
    client.on_subscribe = on_subscribe
    connect(client, sites.mqtt(SITE, "bridge"))
    client.loop_start()
    while not stop.is_set() and not refused:
        producer.poll(0.05)
    client.disconnect()
    client.loop_stop()
    if refused:
        raise SystemExit(f"the plain bridge could not store a reading: {refused[0]}")


class Process:
    """A measured process from outside."""

    def __init__(self, name: str, gauge: psutil.Process, stored: Synchronized[int], readings: Synchronized[int]):
        self.name = name
        self._gauge = gauge
        self._stored = stored
        self.readings = readings

    @property
    def stored(self) -> int:
        """Events and readings that it has stored."""
        return self._stored.value

    def alive(self) -> bool:
        return self._gauge.is_running() and self._gauge.status() != psutil.STATUS_ZOMBIE

    def cpu(self) -> float:
        """CPU-seconds of all its threads so far."""
        times = self._gauge.cpu_times()
        return float(times.user + times.system)

    def rss_mb(self) -> float:
        return round(self._gauge.memory_info().rss / 1e6, 1)


@contextlib.contextmanager
def running(run: Run, folder: Path) -> Iterator[Process]:
    """Start one, wait until it takes messages, and stop it in the end.

    Raises:
        SystemExit: it ended, or was not ready in time.
    """
    ready, stop = SPAWN.Event(), SPAWN.Event()
    stored, readings = SPAWN.Value("q", 0), SPAWN.Value("q", 0)
    name = run.__name__
    process = SPAWN.Process(target=run, args=(folder, ready, stop, stored, readings), name=name, daemon=True)
    process.start()
    try:
        until = time.monotonic() + START_SECONDS
        while not ready.wait(0.1):
            if not process.is_alive():
                raise SystemExit(f"the {name} process ended before it took messages (exit code {process.exitcode})")
            if time.monotonic() > until:
                raise SystemExit(f"the {name} process did not take messages within {START_SECONDS:g} s")
        yield Process(name, psutil.Process(process.pid), stored, readings)
    finally:
        stop.set()
        process.join(STOP_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
