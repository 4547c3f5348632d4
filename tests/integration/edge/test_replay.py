"""Replay dead letters through the site's own brokers: each is in its log exactly once when the cause is removed."""

from __future__ import annotations

import pytest

from edge.ingest.replay import Publisher, ReplayChoice, ReplayPlan, plan_replay, replay
from fairlead.errors import RefusedError
from fairlead.kafka.client.cluster import Cluster
from fairlead.names import container_check_digit
from tests.support.edge.fleet import EVENTS, Fleet, handled, now
from tests.support.edge.samples import reading, readings_topic
from topologies.model import InsertPoint, Stream

pytestmark = pytest.mark.integration

NOWHERE = "fairlead/v1/nowhere"


async def give_again(fleet: Fleet, choice: ReplayChoice | None = None) -> ReplayPlan:
    """Replay at the port; return the plan, which is exactly what was done."""
    kafka, site = fleet.kafka[fleet.port], fleet.port
    async with await Cluster.open(kafka, client_id="replay") as cluster:
        plan = await plan_replay(cluster, site, choice or ReplayChoice())
        assert await replay(cluster, kafka, fleet.devices[site], site, plan, "tester") == len(plan.offsets)
    return plan


async def test_dead_letters_are_in_their_log_once_when_the_cause_is_gone(fleet: Fleet) -> None:
    """Readings refused for an unknown owner are stored after the topology names it and the box came through the gate;
    one that is invalid stays a dead letter. Until then, the event of a gate-in is one of another line's box.
    """
    ten = "YELU" + fleet.new_box()[4:10]
    box = ten + container_check_digit(ten)
    published = [reading(n, number=box, at=now()) for n in range(4)]
    with fleet.publisher(fleet.port) as device:
        async with fleet.running(fleet.port) as bridge:
            await device.publish(EVENTS, fleet.event("GTIN", box))
            await device.publish(readings_topic(box), *published[:3])
            await device.publish(NOWHERE, b"\x00garbage")
            await handled(bridge, 5)
            assert bridge.metrics.dead_letters_by_reason == {"unknown-owner": 3, "unknown-topic": 1}

        fleet.topology.streams[f"yellow-{fleet.port}"] = Stream(insert_point=InsertPoint.MOVES, owners=("YELU",))
        log = f"yellow-{fleet.port}.{box}"
        first = await give_again(fleet)  # the MQTT broker keeps them until there is a bridge
        assert len(first.offsets) == 4
        async with fleet.running(fleet.port) as bridge:
            await device.publish(EVENTS, fleet.event("GTIN", box))
            await device.publish(readings_topic(box), *published[3:])
            await handled(bridge, 6)
            second = await give_again(fleet)
            assert (second.offsets, second.before, second.refused_again) == ([], 4, 1)
            again = await give_again(fleet, ReplayChoice(reasons=["unknown-owner"], again=True))
            assert again.offsets == first.offsets[:3]
            await handled(bridge, 9)
            assert bridge.metrics.repeats == 3
    stored = fleet.read(fleet.port, log)
    assert [record.value for record in stored] == published
    [*_, garbage, refused] = fleet.read(fleet.port, f"deadletters.{fleet.port}")
    assert (refused.body["mqttTopic"], refused.body["replayOf"]) == (NOWHERE, garbage.offset)
    assert refused.body["payload"] == garbage.body["payload"]


async def test_what_the_mqtt_broker_does_not_let_a_device_publish_is_said(fleet: Fleet) -> None:
    """A message that the MQTT broker does not let a device publish is reported. MQTT 3.1.1 would acknowledge and drop
    it.
    """
    publisher = Publisher(fleet.devices[fleet.port])
    publisher.open()
    try:
        with pytest.raises(RefusedError, match="does not let user 'device' publish"):
            publisher.publish([("elsewhere/x", b"")])
    finally:
        publisher.close()
