"""``fairlead stream`` on two real sites, with a third that does not answer."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from fairlead.errors import RefusedError
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.plan import execute
from fairlead.streams.delete import DeletionRun, plan_deletion
from fairlead.streams.inventory import (
    FindKafka,
    describe_stream,
    list_streams,
    measure_usage,
    read_positions,
    take_inventory,
)
from tests.support.replication.lab import until
from tests.support.waits import PATIENCE
from topologies.model import Topology

pytestmark = pytest.mark.integration

SITES = ("alpha", "beta", "gone")
Append = Callable[..., None]


@pytest.fixture
def stream() -> str:
    return f"orders-{secrets.token_hex(3)}"


@pytest.fixture
def find(kafka: Callable[..., KafkaEndpoint]) -> FindKafka:
    """Return the real sites' endpoints; ``gone`` has an address at which nobody listens."""
    return lambda site: replace(kafka("alpha"), bootstrap=(("127.0.0.1", 1),)) if site == "gone" else kafka(site)


@pytest.fixture
def append(kafka: Callable[..., KafkaEndpoint]) -> Append:
    def send(site: str, topic: str, count: int) -> None:
        producer = Producer({**kafka(site).librdkafka(), "log_level": 0})
        for n in range(count):
            producer.produce(topic, f"value {n}".encode())
        assert producer.flush(PATIENCE) == 0

    return send


def topology(*streams: str) -> Topology:
    return Topology.model_validate(
        {
            "name": "three",
            "sites": {site: {"kind": "datacentre", "retention": {"default": "3d"}} for site in SITES},
            "streams": {name: {} for name in streams},
            "links": [{"from": "alpha", "to": "beta", "streams": dict.fromkeys(streams, "all")}],
        }
    )


async def test_a_stream_is_shown_with_its_groups_while_a_site_is_away(
    stream: str, find: FindKafka, new_log: Callable[..., str], append: Append
) -> None:
    one, two = (new_log("alpha", name=f"{stream}.{key}") for key in ("alpha", "alpha.x"))
    new_log("beta", name=one)
    append("alpha", one, 20)
    append("beta", one, 5)
    group = f"{stream}.readers"
    consumer = Consumer({**find("alpha").librdkafka(), "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(one, 0, 8)], asynchronous=False)
    consumer.close()

    known = topology(stream)
    inventory = await take_inventory(find, SITES, only=stream, answer=PATIENCE)
    assert [each.site for each in inventory.unreached] == ["gone"]
    found = describe_stream(known, inventory, await read_positions(find, inventory, stream), stream)
    sites: dict[str, Any] = found["sites"]
    assert {site: (each["logs"], each["records"]) for site, each in sites.items()} == {
        "alpha": (2, 20),
        "beta": (1, 5),
        "gone": (None, None),
    }
    assert sites["alpha"]["bytes"] > sites["beta"]["bytes"] > 0
    assert found["groups"] == [{"site": "alpha", "group": group, "logs": 1, "lag": 12, "active": False}]

    assert list_streams(known, inventory)[0]["records"] == 20
    biggest = measure_usage(known, inventory, stream, biggest=1)["biggest_logs"]
    assert [(each["log"], each["site"]) for each in biggest] == [(one, "alpha")] and two != one


async def test_what_the_topology_no_longer_has_is_deleted_once_nobody_writes(
    stream: str, find: FindKafka, new_log: Callable[..., str], append: Append
) -> None:
    near = f"{stream}x"  # another stream whose name begins alike
    for site in ("alpha", "beta"):
        new_log(site, name=f"{stream}.alpha")
        append(site, f"{stream}.alpha", 10)
    new_log("alpha", name=f"{near}.alpha")
    with pytest.raises(RefusedError, match="alpha->beta carries it"):
        await plan_deletion(topology(stream), find, stream, SITES, settle=0.0)

    without = topology(near)
    plan = await plan_deletion(without, find, stream, SITES, settle=0.0)
    assert [step.describe().split(",")[0] for step in plan.steps] == [
        "alpha: delete 1 topic with 10 records",
        "beta: delete 1 topic with 10 records",
    ]
    assert [each.site for each in plan.unreached] == ["gone"]
    append("alpha", f"{stream}.alpha", 1)
    with pytest.raises(RefusedError, match="is still written"):
        await execute(plan.steps, DeletionRun(find))

    again = await plan_deletion(without, find, stream, ["alpha"], settle=0.0)
    run = DeletionRun(find)
    await execute(again.steps, run)
    assert run.done == [f"alpha: deleted 1 topic of {stream}"]

    async def is_gone() -> bool:
        found = await take_inventory(find, ["alpha"])
        assert found.sites[0].logs(near)
        return not found.sites[0].logs(stream)

    await until(is_gone, "the topic is deleted")
    assert (await take_inventory(find, ["beta"], only=stream)).sites[0].logs(stream)
    assert (await plan_deletion(without, find, stream, ["alpha"], settle=0.0)).is_empty
