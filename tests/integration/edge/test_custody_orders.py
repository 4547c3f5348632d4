"""``fairlead custody`` against real brokers and bridges: a log's holders, lists, strays, grants and seizures by
hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edge.custody.operator.execute import open_ledgers
from edge.custody.operator.takeover import (
    TakeoverRequest,
    TakeoverRun,
    build_takeover,
    carry_out_takeover,
    look_at_takeover,
)
from fairlead.errors import ExitCode
from tests.integration.edge.conftest import Operator
from tests.support.edge.fleet import EVENTS, Copier, Fleet, child, handled, hears, until

pytestmark = [pytest.mark.long, pytest.mark.integration]


async def gate_in(fleet: Fleet, box: str, *, readings: int = 5) -> None:
    """Let a box enter at the port and send some readings."""
    async with fleet.running(fleet.port) as bridge:
        with fleet.publisher(fleet.port) as quay:
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await quay.readings(box, range(readings))
        await handled(bridge, 1 + readings)


async def test_the_chain_of_a_box_and_the_lists(fleet: Fleet, operator: Operator) -> None:
    """``show`` lists a box's successive holders, ``list`` the logs of a holder, ``strays`` the logs with strays."""
    box, port, ship = fleet.new_box(), fleet.port, fleet.ship
    log = fleet.log(box)
    async with fleet.running(port) as bridge:
        with fleet.publisher(port) as quay:
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await quay.readings(box, range(5))
            await quay.publish(EVENTS, fleet.event("LOAD", box))
            await quay.readings(box, range(5, 8))  # the port still hears it
            await handled(bridge, 10)
        shown = await operator.says("show", box, "--json")
        told = await operator.says("show", log)
        held = await operator.says("list", "--held-by", ship, "--json")
        strays = await operator.says("strays", "--json")
    assert (shown.code, shown.body["at"], shown.body["holder"]) == (ExitCode.OK, port, ship)
    assert [
        (each["term"], each["holder"], each["from_offset"], each["to_offset"], each["event"])
        for each in shown.body["intervals"]
    ] == [(1, port, 1, 6, "GTIN"), (2, ship, 7, None, "LOAD")]
    assert shown.body["ledgers"]["damaged"] == [] and f"custody.{port}" in shown.body["ledgers"]["read"]
    assert f"is held by {ship} in term 2 (ledgers at {port})" in told.out
    assert (held.code, [each["log"] for each in held.body["logs"]]) == (ExitCode.OK, [log])
    (row,) = [each for each in strays.body["logs"] if each["log"] == log]
    assert (row["holder"], row["readings"], row["kept_at"], row["events"]) == (ship, 3, {port: 3}, [])
    # The ship has heard nothing yet.
    away = await operator.says("show", box, "--site", ship)
    assert away.code == ExitCode.CONFIG and f"no ledger at {ship} names {log}" in away.err


async def test_strays_that_are_drained_wait_no_more(fleet: Fleet, operator: Operator) -> None:
    """Strays that are drained are no longer shown as waiting."""
    box = fleet.new_box()
    async with fleet.running(fleet.port) as bridge:
        with fleet.publisher(fleet.port) as quay:
            await quay.readings(box, range(4))
            await handled(bridge, 4)
            before = await operator.says("strays", "--site", fleet.port, "--json")
            young = await operator.says("strays", "--older-than", "1h", "--json")
            await quay.publish(EVENTS, fleet.event("GTIN", box))
            await until(lambda: bridge.metrics.drained == 4, what="draining")
        after = await operator.says("strays", "--json")
    (row,) = [each for each in before.body["logs"] if each["log"] == fleet.log(box)]
    assert (row["holder"], row["term"], row["readings"]) == (None, None, 4)
    assert fleet.log(box) not in [each["log"] for each in (*young.body["logs"], *after.body["logs"])]


async def test_what_the_ledger_rules_out_is_refused_before_anything_is_written(
    fleet: Fleet, operator: Operator
) -> None:
    """An order that the ledger rules out is refused before anything is written."""
    box, port, ship = fleet.new_box(), fleet.port, fleet.ship
    await gate_in(fleet, box)
    for arguments, code, said in (
        (("grant", box, "--to", port), ExitCode.REFUSED, f"{port} holds it already"),
        (("grant", fleet.new_box(), "--to", ship), ExitCode.CONFIG, "no ledger at"),
        (("grant", box, "--to", "nowhere"), ExitCode.CONFIG, "no site 'nowhere'"),
        (("grant", f"events.{port}", "--to", ship), ExitCode.REFUSED, f"only {port} may ever write to it"),
        (("seize", box, "--site", port, "--reason", "fire"), ExitCode.REFUSED, f"{port} holds it already"),
        (("seize", box, "--site", ship, "--reason", "fire"), ExitCode.REFUSED, f"{ship} is a ship"),
    ):
        answer = await operator.says(*arguments, "--yes")
        assert (answer.code, said in answer.err) == (code, True), answer
    planned = await operator.says("grant", box, "--to", ship, "--dry-run")
    assert planned.code == ExitCode.OK and f"append to fairlead.custody at {port}" in planned.out


async def test_a_grant_by_hand(fleet: Fleet, operator: Operator) -> None:
    box, port, ship = fleet.new_box(), fleet.port, fleet.ship
    log = fleet.log(box)
    await gate_in(fleet, box)
    async with fleet.running(port), fleet.running(ship) as afloat:
        answer = await operator.says("grant", box, "--to", ship, "--yes", "--reason", "no event came", "--json")
        assert answer.code == ExitCode.OK, answer
        entry = answer.body["entry"]
        assert (entry["to_site"], entry["term"], entry["marker_offset"], entry["event"]) == (ship, 2, 6, "HAND")
        assert entry["event_id"] == answer.body["order"]["order_id"]
        await Copier(fleet, port, ship).copy(f"custody.{port}", log)
        with fleet.publisher(ship) as deck:
            await deck.readings(box, range(5, 8))
            await until(lambda: afloat.metrics.readings + afloat.metrics.drained == 3, what="the ship's readings")
        again = await operator.says("grant", box, "--to", ship, "--yes")
        assert again.code == ExitCode.REFUSED and "holds it already" in again.err
        shown = await operator.says("show", box, "--site", ship, "--json")
    async with fleet.running(port) as ashore:  # the order is still there, and answered
        await until(lambda: ashore.snapshot()["ready"], what="the bridge")
    assert len(ledger_of(fleet, port, "grant")) == 2
    (_, by_hand) = shown.body["intervals"]
    assert (by_hand["holder"], by_hand["reason"], by_hand["ordered_by"] != "") == (ship, "no event came", True)
    assert fleet.sequences(ship, box) == list(range(8))


async def test_a_seizure_by_hand(fleet: Fleet, operator: Operator) -> None:
    box, port, ship = fleet.new_box(), fleet.port, fleet.ship
    await gate_in(fleet, box)
    async with fleet.running(port) as ashore:
        assert (await operator.says("grant", box, "--to", ship, "--yes", "--json")).code == ExitCode.OK
        seize = ("seize", box, "--site", port, "--reason", "the ship burns")
        assert (await operator.says(*seize)).code == ExitCode.USAGE
        planned = await operator.says(*seize, "--dry-run", "--json")
        assert (planned.code, planned.body["applied"]) == (ExitCode.OK, False)
        done = await operator.says(*seize, "--yes", "--json")
        assert done.code == ExitCode.OK, done
        entry = done.body["entry"]
        assert (entry["event"], entry["from_site"], entry["to_site"], entry["term"]) == ("SEIZURE", ship, port, 18)
        assert entry["marker_offset"] == 7
        with fleet.publisher(port) as quay:
            await quay.readings(box, range(5, 8))
            await handled(ashore, 3)
        shown = await operator.says("show", box, "--site", port)
    assert f"is held by {port} in term 18" in shown.out and "the ship burns" in shown.out
    assert fleet.sequences(port, box) == list(range(8))


def ledger_of(fleet: Fleet, site: str, kind: str) -> list[Any]:
    """Return the entries of one kind that a site wrote."""
    found = [record.body for record in fleet.read(site, f"custody.{site}")]
    return [each for each in found if each["entryType"] == kind]


async def test_an_order_stands_until_the_bridge_runs(fleet: Fleet, operator: Operator) -> None:
    """An order remains until the bridge runs and carries it out."""
    box, port, ship = fleet.new_box(), fleet.port, fleet.ship
    await gate_in(fleet, box)
    answer = await operator.says("grant", box, "--to", ship, "--yes", "--wait", "1", "--json")
    assert answer.code == ExitCode.UNAVAILABLE
    error = json.loads(answer.err)
    assert error["error"] == "OrderStandsError" and f"fairlead bridge --site {port}" in error["hint"]
    async with fleet.running(port) as bridge:
        await until(lambda: bridge.metrics.grants == 1, what="the order")
        shown = await operator.says("show", box, "--json")
    assert (shown.body["holder"], shown.body["intervals"][1]["event_id"]) == (ship, error["fields"]["order_id"])


# -- all logs of a lost ship


async def all_aboard(fleet: Fleet, count: int) -> list[str]:
    """Let boxes come in at the port and be loaded; return them once the port has given all to the ship."""
    boxes = [fleet.new_box() for _ in range(count)]
    async with fleet.running(fleet.port) as bridge:
        with fleet.publisher(fleet.port) as quay:
            await quay.publish(EVENTS, *(fleet.event("GTIN", box) for box in boxes))
            await quay.publish(EVENTS, *(fleet.event("LOAD", box) for box in boxes))
            await handled(bridge, 2 * count)
    return boxes


def seizures(fleet: Fleet, site: str) -> list[str]:
    """Return the log of every seizure in a site's ledger, in order."""
    return [each["log"] for each in ledger_of(fleet, site, "grant") if each["event"] == "SEIZURE"]


async def test_a_takeover_that_is_interrupted_half_way_is_continued(fleet: Fleet, operator: Operator) -> None:
    """The command is killed when half of its orders are written, and the bridge when it has carried out some."""
    port, ship = fleet.port, fleet.ship
    logs = sorted(fleet.log(box) for box in await all_aboard(fleet, 40))
    command = ("seize", "--holder", ship, "--site", port, "--reason", "lost at sea", "--yes")
    async with open_ledgers(fleet.topology, fleet.kafka.__getitem__) as access:
        request = TakeoverRequest(ship, port, "ann", "lost at sea")
        plan = build_takeover(await look_at_takeover(fleet.topology, access, request))
        assert [order.log for order in plan.orders] == logs
        await access.append(port, plan.orders[:20])  # here the first command is killed
    async with child(fleet, port) as bridge:
        await until(lambda: len(seizures(fleet, port)) >= 5, what="the first seizures")
        bridge.kill()
        await bridge.wait()
    waits = await operator.says(*command, "--wait", "0.5", "--json")  # nobody answers: everything stands
    assert waits.code == ExitCode.UNAVAILABLE and "stand without an answer" in json.loads(waits.err)["what"]
    done_before = len(seizures(fleet, port))
    async with fleet.running(port) as ashore:
        done = await operator.says(*command, "--json")
        assert done.code == ExitCode.OK, done
        assert not done.body["refused"] and not done.body["unanswered"] and not done.body["left"]
        already = done.body["already"].get(port, 0)
        assert done_before <= already == len(logs) - len(done.body["seized"])
        again = await operator.says(*command)
        assert (again.code, f"{ship} holds no log; taken over already: {port} 40" in again.out) == (ExitCode.OK, True)
        await until(lambda: ashore.snapshot()["custody"]["held"] == len(logs), what="custody of every log")
    assert sorted(seizures(fleet, port)) == logs, "each once"


async def test_a_ship_that_comes_back_in_the_middle_of_a_takeover(fleet: Fleet, operator: Operator) -> None:
    """It discharges one box itself, which is then not seized; of the others it returns what it recorded meanwhile."""
    port, ship = fleet.port, fleet.ship
    boxes = await all_aboard(fleet, 3)
    seized, discharged = boxes[:2], boxes[2]
    names = [fleet.log(box) for box in boxes]
    await Copier(fleet, port, ship).copy(f"custody.{port}", *names)
    async with fleet.running(ship) as afloat:
        await until(lambda: afloat.snapshot()["custody"]["held"] == 3, what="custody on board")
        for box in boxes:
            await hears(afloat, fleet, ship, box, range(4))  # the port has none of these
    async with open_ledgers(fleet.topology, fleet.kafka.__getitem__) as access:
        request = TakeoverRequest(ship, port, "ann", "lost at sea")
        plan = build_takeover(await look_at_takeover(fleet.topology, access, request))
        async with fleet.running(ship) as afloat:  # it is back
            with fleet.publisher(ship) as deck:
                await deck.publish(EVENTS, fleet.event("DISC", discharged))
            await until(lambda: afloat.metrics.grants == 1, what="the discharge")
        await Copier(fleet, ship, port).copy(fleet.log(discharged), f"custody.{ship}")
        async with fleet.running(port):
            run = TakeoverRun(access)
            await carry_out_takeover(plan, run)
    assert sorted(entry.log for entry in run.seized) == sorted(map(fleet.log, seized))
    (refusal,) = run.refused
    assert refusal.log == fleet.log(discharged)
    assert "has moved since" in refusal.reason or "holds" in refusal.reason
    await Copier(fleet, port, ship).copy(f"custody.{port}")
    async with fleet.running(ship):
        await until(lambda: len(ledger_of(fleet, ship, "return")) == 2, what="what the ship returns")
    async with fleet.running(port) as ashore:
        await Copier(fleet, ship, port).copy(f"strays.{ship}")
        await until(lambda: ashore.metrics.drained == 8, what="draining of what it returned")
    for box in boxes:
        assert sorted(fleet.sequences(port, box)) == list(range(4)), box
    none = await operator.says("seize", "--holder", ship, "--reason", "lost", "--yes")
    assert none.code == ExitCode.OK and f"{ship} holds no log; taken over already: {port} 2" in none.out
