"""Run a bridge in a process of its own, for tests that kill it. Reads its site and endpoints as one line of JSON."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import uvloop
from pydantic import SecretStr

from edge.bridge import Bridge, BridgeSettings
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from topologies.model import Topology


async def main() -> None:
    given = json.loads(sys.stdin.readline())
    bootstrap, kafka_user, kafka_password = given["kafka"]
    host, port, mqtt_user, mqtt_password = given["mqtt"]
    site = given["site"]
    bridge = Bridge(
        Topology.model_validate(given["topology"]),
        site,
        KafkaEndpoint(site, tuple((h, p) for h, p in bootstrap), kafka_user, SecretStr(kafka_password)),
        MqttEndpoint(site, host, port, mqtt_user, SecretStr(mqtt_password)),
        BridgeSettings(snapshot=Path(given["snapshot"])),
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    running = asyncio.create_task(bridge.run(stop))
    await bridge.ready.wait()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await running


if __name__ == "__main__":
    uvloop.run(main())
