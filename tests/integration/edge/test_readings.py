"""Readings from MQTT are stored in their logs, once and in order; unusable ones become dead letters."""

from __future__ import annotations

import json
import time

import msgspec
import pytest

from edge.ingest.classifier import MAX_PAYLOAD_BYTES
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.types import TopicPartition
from tests.support.edge.fleet import EVENTS, Fleet, handled, now
from tests.support.edge.samples import device, reading, readings_topic

pytestmark = pytest.mark.integration


async def test_readings_of_a_box_that_entered_here_end_in_its_log(fleet: Fleet) -> None:
    box = fleet.new_box()
    payloads = [reading(n, number=box, at=now()) for n in range(50)]
    async with fleet.running(fleet.port) as bridge:
        with fleet.publisher(fleet.port) as device_:
            await device_.publish(EVENTS, fleet.event("GTIN", box))
            await device_.publish(readings_topic(box), *payloads)
        await handled(bridge, 51)
        snapshot, finished = bridge.snapshot(), time.time_ns() // 1_000_000
    stored = fleet.read(fleet.port, fleet.log(box))
    assert [record.value for record in stored] == payloads
    assert [record.offset for record in stored] == list(range(1, 51))  # the marker of term 1 is at 0
    assert {record.key for record in stored} == {box.encode()}
    for record in stored:
        sent = msgspec.json.decode(record.value)["device"]["deviceDateTime"]
        assert record.timestamp_ms == int(msgspec.convert(sent, type=type(now())).timestamp() * 1000)
        assert record.timestamp_ms <= int(record.headers["received"]) <= finished
    assert [record.body["metadata"]["eventID"] for record in fleet.read(fleet.port, f"events.{fleet.port}")] != []
    assert (snapshot["received"], snapshot["readings"], snapshot["acked"]) == (51, 50, 51)
    assert fleet.snapshots is not None
    written = json.loads((fleet.snapshots / f"bridge.{fleet.port}.json").read_text())
    assert (written["readings"], written["custody"]["held"]) == (50, 1)


async def test_repeats_are_stored_once_also_after_a_restart(fleet: Fleet) -> None:
    box = fleet.new_box()
    with fleet.publisher(fleet.port) as device_:
        async with fleet.running(fleet.port) as bridge:
            await device_.publish(EVENTS, fleet.event("GTIN", box))
            for _ in range(3):
                await device_.readings(box, range(20))
            await handled(bridge, 61)
            assert bridge.metrics.repeats == 40
        async with fleet.running(fleet.port) as bridge:
            await device_.readings(box, range(25))
            await handled(bridge, 25)
            assert (bridge.metrics.readings, bridge.metrics.repeats) == (5, 20)
    assert fleet.sequences(fleet.port, box) == list(range(25))


async def test_a_device_that_sends_its_backlog_late_loses_nothing(fleet: Fleet) -> None:
    """A device that sends its backlog late loses no reading."""
    box = fleet.new_box()
    with fleet.publisher(fleet.port) as device_:
        async with fleet.running(fleet.port) as bridge:
            await device_.publish(EVENTS, fleet.event("GTIN", box))
            await device_.readings(box, range(300, 700))
            await handled(bridge, 401)
        async with fleet.running(fleet.port) as bridge:
            # Older than all readings the restarted bridge remembers, and overlapping an early part of the log.
            await device_.readings(box, range(250, 350))
            await handled(bridge, 100)
            assert (bridge.metrics.readings, bridge.metrics.repeats) == (50, 50)
    assert fleet.sequences(fleet.port, box) == [*range(300, 700), *range(250, 300)]


async def test_every_kind_of_bad_input_becomes_a_dead_letter_and_is_acknowledged(fleet: Fleet) -> None:
    box, other = fleet.new_box(), fleet.new_box()
    wrong_digit = box[:-1] + str((int(box[-1]) + 1) % 10)
    bad: list[tuple[str, bytes, str]] = [
        (readings_topic(box), b"{", "malformed-json"),
        (readings_topic(box), b"", "malformed-json"),
        (readings_topic(box), b"{}", "invalid-fields"),
        (readings_topic(wrong_digit), reading(number=wrong_digit), "wrong-check-digit"),
        (readings_topic(box), reading(number=other), "number-mismatch"),
        (readings_topic("CSQU3054383"), reading(number="CSQU3054383"), "unknown-owner"),
        (readings_topic(box), reading(number=box, at=now().replace(year=1970)), "device-clock"),
        (readings_topic(box), reading(number=box, at=now().replace(year=2099)), "device-clock"),
        (readings_topic(box), b"x" * (MAX_PAYLOAD_BYTES + 1), "too-large"),
        (readings_topic(box), b"x" * 1_000_000, "too-large"),
        ("fairlead/v1/nonsense", b"{}", "unknown-topic"),
        ("fairlead/v1/ships/9811000/position", b"{}", "unknown-ship"),
        (EVENTS, fleet.event("DISC", box, UNLocationCode="NLRTM"), "unknown-port"),
    ]
    async with fleet.running(fleet.port) as bridge:
        with fleet.publisher(fleet.port) as device_:
            for topic, payload, _ in bad:
                await device_.publish(topic, payload)
        await handled(bridge, len(bad))
        assert bridge.metrics.dead_letters == len(bad)
    letters = [record.body for record in fleet.read(fleet.port, f"deadletters.{fleet.port}")]
    assert sorted(letter["reason"] for letter in letters) == sorted(reason for _, _, reason in bad)
    by_size = {letter["payloadBytes"] for letter in letters}
    assert 1_000_000 in by_size
    assert all(letter["detail"] for letter in letters)
    assert fleet.read(fleet.port, f"events.{fleet.port}") == []  # nothing half done


async def test_a_ships_reports_end_in_the_ships_log(fleet: Fleet) -> None:
    payloads = [
        msgspec.json.encode({"vesselIMONumber": fleet.imo, "device": device(n, at=now(), name=fleet.ship)})
        for n in range(10)
    ]
    with fleet.publisher(fleet.ship) as gps:
        async with fleet.running(fleet.ship) as bridge:
            before = len(fleet.read(fleet.ship, f"ships.{fleet.imo}.location"))
            for payload in (*payloads, *payloads):
                await gps.publish(f"fairlead/v1/ships/{fleet.imo}/position", payload)
            await handled(bridge, 20)
            assert (bridge.metrics.appended, bridge.metrics.repeats) == (10, 10)
    stored = fleet.read(fleet.ship, f"ships.{fleet.imo}.location")[before:]
    assert [record.value for record in stored] == payloads


async def test_a_ship_compresses_what_goes_over_its_satellite_and_a_port_does_not(fleet: Fleet) -> None:
    box, position = fleet.new_box(), {"vesselIMONumber": fleet.imo}
    location = f"ships.{fleet.imo}.location"
    async with fleet.running(fleet.ship) as ship, fleet.running(fleet.port) as port:
        with fleet.publisher(fleet.ship) as gps, fleet.publisher(fleet.port) as quay:
            before = await batches(fleet, fleet.ship, location)
            await gps.publish(
                f"fairlead/v1/ships/{fleet.imo}/position",
                msgspec.json.encode(position | {"device": device(1_000, at=now(), name=fleet.ship)}),
            )
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await quay.readings(box, range(3))
            await handled(ship, 1)
            await handled(port, 4)

    assert (await batches(fleet, fleet.ship, location))[len(before) :] == [Codec.ZSTD]
    assert set(await batches(fleet, fleet.port, fleet.log(box))) == {Codec.NONE}


async def batches(fleet: Fleet, site: str, topic: str) -> list[Codec]:
    """Return the compression of every batch of a log."""
    log = TopicPartition(topic)
    async with await Cluster.open(fleet.kafka[site], client_id="batches") as cluster:
        found, position, end = [], 0, (await cluster.end_offsets([log]))[log]
        assert isinstance(end, int)
        while position < end:
            for view in split((await cluster.fetch({log: position}))[log].records):
                found.append(view.header.codec)
                position = view.header.next_offset
        return found
