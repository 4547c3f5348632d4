"""From a reading on the ship to its alert ashore, over a satellite link: idle, and with a backlog behind it.

    python -m benchmarks.alert_first [--alerts 40] [--backlog 100000]

A device publishes the reading of a container that falls overboard (MQTT, QoS 1) to the ship's Mosquitto; the ship's
bridge detects it; the port's replicator fetches the alert over a line of 300 ms one way, 1 Mbit/s and 0.1 % loss. The
time is from the publishing of the reading to the alert's record in the port's copy. In the second case the link has
a backlog of readings to carry, and has not carried all of it when the last alert is there. Writes
``build/bench/alert_first.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import datetime as dt
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import paho.mqtt.client as paho
import uvloop
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.harness import Figures, Say, main
from edge.bridge import Bridge
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.names import container_check_digit
from replication.replicator import Replicator
from simulators.network.proxy import TcpProxy
from topologies.model import DEFAULT_STREAMS, InsertPoint, Stream, Topology

SHIP, PORT = "ship", "port"
RTT, RATE, LOSS = 0.6, 1e6, 0.001
TARGET_SECONDS: Final = 2.0
LOGS: Final = 200  # that the backlog is spread over
BATCH: Final = 10  # readings in one of its batches
BETWEEN: Final = (0.8, 2.2)  # seconds between two alerts
WARM: Final = 250_000  # bytes: two seconds of the line
FALL: Final = {"freeFallSeconds": 1.8, "peakG": 9.0, "tiltDegrees": 80.0, "immersed": True}
TOPOLOGY: Final = Topology.model_validate(
    {
        "name": "alert-first",
        "sites": {
            SHIP: {"kind": "ship", "imo": "9074729"},
            PORT: {"kind": "port", "unlocode": "JPTYO"},
        },
        "streams": {
            **DEFAULT_STREAMS,
            "containers": Stream(insert_point=InsertPoint.MOVES, owners=("BIGU",)),
            "backlog": Stream(),  # the ship's own by their names: nobody has to grant it each of the logs first
        },
        "links": [
            {
                "from": SHIP,
                "to": PORT,
                "rate": "1 Mbit/s",
                "streams": dict.fromkeys(("alerts", "custody", "events", "ships", "backlog"), "all"),
            }
        ],
    }
)
ALERTS: Final = TP(f"alerts.{SHIP}")


class ShipAndPort:
    """Both sites with their processes, the link between them, and a device aboard."""

    def __init__(self, ship: Cluster, port: Cluster, line: TcpProxy, device: paho.Client) -> None:
        self.ship, self.port, self.line = ship, port, line
        self._device = device
        self._serial = 100_000
        self._session = port.fetch_session()
        self._raised = 0

    async def _reached(self, end: int) -> None:
        """Return when the port's copy of the alerts ends there."""
        while True:
            part = (await self._session.poll(max_wait_ms=1000)).get(ALERTS)
            if part is not None:
                self._session.set(ALERTS, part.high_watermark)
                if part.high_watermark >= end:
                    return

    async def follow(self) -> None:
        """Begin to watch the port's copy."""
        while ALERTS.topic not in await self.port.topics(refresh=True):  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # nobody tells
        self._session.set(ALERTS, 0)

    async def alert(self) -> float:
        """Seconds from a reading of a container in the sea to its alert ashore."""
        ten = f"BIGU{self._serial:06d}"
        number = ten + container_check_digit(ten)
        self._serial += 1
        payload = msgspec.json.encode(
            {
                "equipmentReference": number,
                "device": {
                    "deviceId": f"rmm-{ten}",
                    "bootId": 1,
                    "sequence": 1,
                    "deviceDateTime": dt.datetime.now(dt.UTC),
                },
                "motion": FALL,
            }
        )
        began = time.monotonic()
        self._device.publish(f"fairlead/v1/containers/{number}/readings", payload, qos=1)
        self._raised += 1
        await self._reached(1 + self._raised)  # after the marker that opens the log
        return time.monotonic() - began

    async def close(self) -> None:
        await self._session.close()


@contextlib.asynccontextmanager
async def world() -> AsyncIterator[tuple[ShipAndPort, LocalSites]]:
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        sites = LocalSites(Path(folder))
        try:
            await asyncio.to_thread(sites.up, [SiteSpec(name, ()) for name in (SHIP, PORT)])
            async with contextlib.AsyncExitStack() as stack:
                yield await _at_work(sites, stack), sites
        finally:
            await asyncio.to_thread(sites.down, purge=True)


async def _at_work(sites: LocalSites, stack: contextlib.AsyncExitStack) -> ShipAndPort:
    kafka = {name: sites.kafka(name, "admin") for name in (SHIP, PORT)}
    ship, port = [
        await stack.enter_async_context(await Cluster.open(kafka[name], client_id="bench")) for name in (SHIP, PORT)
    ]
    line = await stack.enter_async_context(TcpProxy(kafka[SHIP].bootstrap, rtt=RTT, rate=RATE))
    line.shape(loss=LOSS)
    over = dataclasses.replace(kafka[SHIP], address_overrides=line.address_overrides)
    bridge = Bridge(TOPOLOGY, SHIP, kafka[SHIP], sites.mqtt(SHIP, "bridge"))
    replicator = Replicator(TOPOLOGY, PORT, kafka[PORT], lambda _: over)
    stop = asyncio.Event()
    running = [asyncio.ensure_future(each.run(stop)) for each in (bridge, replicator)]

    async def end() -> None:
        stop.set()
        await asyncio.gather(*running)

    stack.push_async_callback(end)
    await bridge.ready.wait()
    endpoint = sites.mqtt(SHIP, "device")
    device = paho.Client(CallbackAPIVersion.VERSION2)
    if endpoint.user and endpoint.password:
        device.username_pw_set(endpoint.user, endpoint.password.get_secret_value())
    device.connect(endpoint.host, endpoint.port)
    device.loop_start()
    stack.callback(device.loop_stop)
    stack.callback(device.disconnect)
    made = ShipAndPort(ship, port, line, device)
    stack.push_async_callback(made.close)
    await made.follow()
    await made.alert()  # makes logs, opens writers
    await asyncio.sleep(3)
    return made


async def measure_alerts(world: ShipAndPort, alerts: int) -> dict[str, Any]:
    """So many alerts, one after the other, at no regular moments."""
    chance = random.Random(7)  # noqa: S311 - moments, not secrets
    taken = []
    for _ in range(alerts):
        await asyncio.sleep(chance.uniform(*BETWEEN))
        taken.append(await world.alert())
    taken.sort()
    return {
        "alerts": alerts,
        "median_s": round(statistics.median(taken), 2),
        "p99_s": round(taken[min(len(taken) - 1, int(len(taken) * 0.99))], 2),
        "max_s": round(taken[-1], 2),
        "within_target": sum(each <= TARGET_SECONDS for each in taken),
    }


async def fill(cluster: Cluster, readings: int) -> list[TP]:
    """A backlog at the ship: logs with readings as devices publish them."""
    stamp = dt.datetime.now(dt.UTC)
    logs = {}
    for serial in range(LOGS):
        ten = f"BIGU{serial:06d}"
        number = ten + container_check_digit(ten)
        logs[TP(f"backlog.{SHIP}.{number}")] = number
    await asyncio.to_thread(create_logs, cluster.endpoint, {log.topic: {} for log in logs})
    await cluster.wait_writable(list(logs))
    for offset in range(0, readings // LOGS, BATCH):
        batches = {log: _batch(number, offset, stamp) for log, number in logs.items()}
        for log, result in (await cluster.produce(batches)).items():
            if not result.appended_now:
                raise RuntimeError(f"{log}: {result}")
    return list(logs)


def _batch(number: str, offset: int, stamp: dt.datetime) -> bytes:
    records = []
    for each in range(offset, offset + BATCH):
        at = stamp + dt.timedelta(minutes=5 * each)
        body = {
            "equipmentReference": number,
            "device": {"deviceId": f"rmm-{number}", "bootId": 1, "sequence": each, "deviceDateTime": at},
            "powered": True,
            "plugged": True,
            "setpoints": {"temperature": -18.0},
            "measurements": {"supplyTemperature": -18.4 + each % 7 / 10, "returnTemperature": -17.6 + each % 5 / 10},
        }
        records.append(
            NewRecord(msgspec.json.encode(body), key=number.encode(), timestamp_ms=int(at.timestamp() * 1000))
        )
    return term_batch(records, term=1, offset=offset, marker=0)


async def measure_all(alerts: int, backlog: int) -> dict[str, Any]:
    async with world() as (made, _):
        found = {"idle": await measure_alerts(made, alerts)}
        logs = await fill(made.ship, backlog)
        before = made.line.down.bytes
        while made.line.down.bytes < before + WARM:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        found["backlog"] = await measure_alerts(made, alerts)
        there = await made.ship.end_offsets(logs)
        copied = await made.port.end_offsets([log for log in logs if log.topic in await made.port.topics(refresh=True)])
        left = sum(map(_known, there.values())) - sum(map(_known, copied.values()))
        if left <= 0:
            raise RuntimeError("the backlog was carried before the last alert: take a larger one")
        found["backlog"] |= {"readings": backlog, "readings_left": left}
        return found


def _known(end: object) -> int:
    return end if isinstance(end, int) else 0


def measure(options: argparse.Namespace, say: Say) -> Figures:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(measure_all(options.alerts, options.backlog))
    return {**found, "target_s": TARGET_SECONDS, "line": {"rtt_s": RTT, "bit_s": RATE, "loss": LOSS}}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--alerts", type=int, default=40)
    parser.add_argument("--backlog", type=int, default=100_000)


if __name__ == "__main__":
    main("alert_first", {"alert_first": measure}, __doc__, add_options)
