"""What the bridge costs per reading, beside a plain paho subscriber with a confluent-kafka producer.

    python -m benchmarks.bridge [--boxes 2000] [--readings 60000]

Prints a table and writes ``build/bench/bridge.json``: ``bridge``, ``plain``, ``ratio``, ``target``, ``machine``. Both
get the same readings with QoS 1 from a publisher of its own process, write them to one log per container with acks=all
and acknowledge each when it is stored. Each runs in a process of its own, one after the other; seconds count from the
first publish to the last acknowledgement, CPU is that process's (all threads), ``per core`` is readings per second of
CPU. Wall time is that of the whole chain: publisher, Mosquitto, Kafka and the bridge share the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import multiprocessing as mp
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import msgspec
import paho.mqtt.client as paho
import psutil
import uvloop
from confluent_kafka import KafkaError, Message, Producer
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks._results import machine, write
from benchmarks.custody.devices import boxes, connect, reading_body
from edge.bridge import Bridge
from fairlead.admin import create_logs
from fairlead.local.sites import LocalSites, SiteSpec
from topologies.model import DEFAULT_STREAMS, InsertPoint, Site, SiteKind, Stream, Topology

SITE = "tokyo"
TARGET_PER_CORE = 3_000
BATCH_INFLIGHT = 1_000
STUCK_SECONDS = 60.0
_SPAWN = mp.get_context("spawn")
Count = Synchronized  # of int


def topology() -> Topology:
    return Topology(
        name="bench",
        sites={SITE: Site(kind=SiteKind.PORT, unlocode="JPTYO")},
        streams={**DEFAULT_STREAMS, "containers": Stream(insert_point=InsertPoint.MOVES, owners=("BIGU",))},
    )


# -- the two that are measured


def run_bridge(folder: str, ready: Event, stop: Event, done: Count[int]) -> None:
    """Fairlead's bridge, as ``fairlead bridge`` runs it."""

    async def main() -> None:
        sites = LocalSites(Path(folder))
        bridge = Bridge(topology(), SITE, sites.kafka(SITE, "admin"), sites.mqtt(SITE, "bridge"))
        stopping = asyncio.Event()
        running = asyncio.create_task(bridge.run(stopping))
        await asyncio.wait((running, asyncio.create_task(bridge.ready.wait())), return_when=asyncio.FIRST_COMPLETED)
        ready.set()
        while not stop.is_set() and not running.done():
            done.value = bridge.snapshot()["acked"]
            await asyncio.sleep(0.05)
        stopping.set()
        await running

    uvloop.run(main())


def run_plain(folder: str, ready: Event, stop: Event, done: Count[int]) -> None:
    """The obvious bridge: paho's own thread receives, librdkafka sends, the delivery report acknowledges."""
    sites = LocalSites(Path(folder))
    producer = Producer({**sites.kafka(SITE, "admin").librdkafka(), "acks": "all", "linger.ms": 5, "log_level": 0})
    client = paho.Client(CallbackAPIVersion.VERSION2, "plain-bridge", clean_session=False, manual_ack=True)

    def on_message(_client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        mid, number = message.mid, message.topic.split("/")[3]

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                client.ack(mid, 1)
                done.value += 1

        producer.produce(f"plain.{number}", bytes(message.payload), number, on_delivery=delivered)

    client.on_message = on_message

    def on_connect(*_: Any) -> None:
        client.subscribe("fairlead/v1/containers/+/readings", 1)

    def on_subscribe(*_: Any) -> None:
        ready.set()

    client.on_connect = on_connect
    client.on_subscribe = on_subscribe
    connect(client, sites.mqtt(SITE, "bridge"))
    client.loop_start()
    while not stop.is_set():
        producer.poll(0.05)
    client.disconnect()
    client.loop_stop()


# -- the load


def publish(folder: str, numbers: list[str], first: int, rounds: int) -> None:
    """Readings of every box in turn, each acknowledged by the MQTT broker."""
    client = _device(folder)
    encoder = msgspec.json.Encoder()
    last: paho.MQTTMessageInfo | None = None
    for sequence in range(first, first + rounds):
        now = dt.datetime.now(dt.UTC).isoformat()
        for number in numbers:
            while client._out_messages and len(client._out_messages) >= BATCH_INFLIGHT:  # noqa: SLF001 - no public count
                time.sleep(0.001)
            last = client.publish(
                f"fairlead/v1/containers/{number}/readings", encoder.encode(reading_body(number, sequence, now)), 1
            )
    if last is not None:
        last.wait_for_publish()
    client.disconnect()
    client.loop_stop()


def gate_in(folder: str, numbers: list[str]) -> None:
    client = _device(folder)
    now = dt.datetime.now(dt.UTC).isoformat()
    for number in numbers:
        event = {
            "metadata": {
                "eventID": f"in-{number}",
                "eventCreatedDateTime": now,
                "eventType": "EQUIPMENT",
                "publisher": "bench",
            },
            "payload": {
                "eventDateTime": now,
                "equipmentEventTypeCode": "GTIN",
                "equipmentReference": number,
                "UNLocationCode": "JPTYO",
            },
        }
        client.publish("fairlead/v1/events", msgspec.json.encode(event), 1).wait_for_publish()
    client.disconnect()
    client.loop_stop()


def _device(folder: str) -> paho.Client:
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(BATCH_INFLIGHT)
    connect(client, LocalSites(Path(folder)).mqtt(SITE, "device"))
    client.loop_start()
    while not client.is_connected():
        time.sleep(0.01)
    return client


# -- measuring


@contextlib.contextmanager
def worker(target: Callable[..., None], folder: str) -> Iterator[tuple[psutil.Process, Count[int]]]:
    ready, stop, done = _SPAWN.Event(), _SPAWN.Event(), _SPAWN.Value("q", 0)
    process = _SPAWN.Process(target=target, args=(folder, ready, stop, done))
    process.start()
    try:
        while not ready.wait(1):
            if not process.is_alive():
                raise SystemExit(f"{target.__name__} ended before it was ready")
        yield psutil.Process(process.pid), done
    finally:
        stop.set()
        process.join(30)
        if process.is_alive():
            process.kill()


def measure(target: Callable[..., None], folder: str, numbers: list[str], readings: int, first: int) -> dict[str, Any]:
    """Send one round to warm up, then ``readings``; figures of the second part."""
    rounds = max(1, readings // len(numbers))
    with worker(target, folder) as (process, done):
        _send(process, done, folder, numbers, first, 1)
        before, began = _cpu(process), time.perf_counter()
        count = _send(process, done, folder, numbers, first + 1, rounds)
        seconds, cpu = time.perf_counter() - began, _cpu(process) - before
        rss = process.memory_info().rss
    return {
        "readings": count,
        "seconds": round(seconds, 2),
        "readings_per_second": round(count / seconds),
        "cpu_seconds": round(cpu, 2),
        "readings_per_second_per_core": round(count / cpu),
        "cpu_us_per_reading": round(cpu / count * 1e6, 1),
        "rss_mb": round(rss / 1e6),
    }


def _send(process: psutil.Process, done: Count[int], folder: str, numbers: list[str], first: int, rounds: int) -> int:
    wanted = done.value + rounds * len(numbers)
    load = _SPAWN.Process(target=publish, args=(folder, numbers, first, rounds))
    load.start()
    seen, at = done.value, time.monotonic()
    while done.value < wanted:
        if done.value > seen:
            seen, at = done.value, time.monotonic()
        if time.monotonic() - at > STUCK_SECONDS or process.status() == psutil.STATUS_ZOMBIE:
            load.kill()
            raise SystemExit(f"the measured process stopped at {seen} of {wanted}")
        time.sleep(0.02)
    load.join()
    return rounds * len(numbers)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    options.add_argument("--boxes", type=int, default=2_000)
    options.add_argument("--readings", type=int, default=60_000)
    given = options.parse_args()
    numbers = boxes(given.boxes)
    with tempfile.TemporaryDirectory() as folder:
        sites = LocalSites(Path(folder))
        sites.up([SiteSpec(SITE)])
        try:
            create_logs(sites.kafka(SITE, "admin"), {f"plain.{number}": {} for number in numbers})
            with worker(run_bridge, folder) as (_, done):
                gate_in(folder, numbers)
                while done.value < len(numbers):
                    time.sleep(0.05)
            bridge = measure(run_bridge, folder, numbers, given.readings, first=0)
            plain = measure(run_plain, folder, numbers, given.readings, first=1_000_000)
        finally:
            sites.down(purge=True)
    ratio = round(bridge["readings_per_second_per_core"] / plain["readings_per_second_per_core"], 2)
    result = {
        "logs": given.boxes,
        "bridge": bridge,
        "plain": plain,
        "ratio": ratio,
        "target": {"readings_per_second_per_core": TARGET_PER_CORE},
        "machine": machine(),
    }
    write("bridge", result)
    print(f"{given.boxes:,} logs, QoS 1, acks=all      bridge      plain")
    for name, unit in (
        ("readings_per_second_per_core", "readings/s per core"),
        ("readings_per_second", "readings/s, wall"),
        ("cpu_us_per_reading", "us of CPU a reading"),
        ("rss_mb", "MB"),
    ):
        print(f"{unit:<28}{bridge[name]:>12,}{plain[name]:>11,}")
    print(f"per core against plain: {ratio} x; target {TARGET_PER_CORE:,} per core")


if __name__ == "__main__":
    main()
