"""Slots aboard, the readings that carry them, and detection that uses them."""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from itertools import pairwise, takewhile

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.alerts.engine import AlertEngine
from edge.ingest.classifier import Classifier
from edge.messages import ReadingMessage, ShipMessage
from fairlead.records import decoder
from fairlead.records.alert import Alert
from fairlead.records.reading import Reading, milliseconds
from fairlead.records.ship import Position
from simulators.fleet.planner import make_plan
from simulators.steps import MessageKind
from simulators.voyage.voyage import Voyage
from tests.support.examples import examples
from tests.support.simulators.worlds import big_blue, ducks, published, small_plan, small_steps

reading = decoder(Reading)
PLACE = re.compile(r"\d{7}")


@given(st.integers(0, 2**32), st.integers(10, 500))
@settings(max_examples=examples(8), deadline=None)
def test_no_slot_holds_two_boxes(seed: int, containers: int) -> None:
    plan = make_plan(ducks().rescaled(containers), big_blue(), seed)
    stays: dict[tuple[str, str], list[tuple[dt.datetime, dt.datetime]]] = defaultdict(list)
    for box in plan.boxes:
        for nth, move in enumerate(box.moves):
            if move.code != "LOAD":
                assert move.stowage is None
                continue
            assert move.stowage is not None
            assert PLACE.fullmatch(move.stowage)
            bay, tier = int(move.stowage[:3]), int(move.stowage[5:])
            assert bay % 4 == 2, "bays of 40' boxes"
            assert tier % 2 == 0
            assert (82 <= tier <= 98) if box.unit.on_deck else (2 <= tier <= 16)
            later = box.moves[nth + 1].time if nth + 1 < len(box.moves) else plan.ends
            stays[str(move.to), move.stowage].append((move.time, later))
    for spans in stays.values():
        spans.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(spans))


def test_readings_carry_the_slot_only_aboard() -> None:
    boxes = {box.number: box for box in small_plan().boxes}
    ships = small_plan().timetables
    seen = {True: 0, False: 0}
    for step in published(small_steps()):
        if step.kind is not MessageKind.READING:
            continue
        said = reading.decode(step.payload)
        seen[step.site in ships] += 1
        assert (said.stowage_position is not None) == (step.site in ships)
        if said.stowage_position is not None and not step.decides:
            assert said.stowage_position == boxes[step.key].stowed(step.sim_time, step.site)
            if boxes[step.key].falls is None:
                below = int(said.stowage_position[-2:]) < 82
                assert (said.geo_location is None) == below, "no sky below deck"
    assert min(seen.values()) > 100


def test_reefers_are_inspected_before_they_are_loaded_and_never_aboard() -> None:
    voyage = Voyage(ducks().adjusted(containers=20, reading_interval=dt.timedelta(minutes=30)), big_blue(), seed=7)
    loaded = {box.number: box.first_load.time for box in voyage.plan.boxes}
    inspected = defaultdict(list)
    at_tokyo = takewhile(lambda step: step.sim_time < voyage.starts + dt.timedelta(days=4), voyage.steps())
    for step in published(at_tokyo):
        if step.kind is MessageKind.READING:
            said = reading.decode(step.payload)
            if said.reefer_settings.is_pre_trip_inspection:
                inspected[step.key].append(said)
                assert step.sim_time < loaded[step.key]
                assert said.is_powered
    assert len(inspected) > 10
    for number, readings in inspected.items():
        assert 2 <= len(readings) <= 4, number
        for said in readings:
            wanted = said.setpoints.temperature
            assert wanted is not None
            frozen = wanted <= -10
            air = said.measurements.return_temperature if frozen else said.measurements.supply_temperature
            assert air is not None
            assert said.reefer_settings.is_defrosting or abs(air - wanted) < 2, "only heaters bring it far away"


def test_boxes_lost_from_one_bay_confirm_each_other() -> None:
    """The rules of the ship's bridge raise an alert for each lost duck box, and for no other."""
    voyage = Voyage(ducks().adjusted(containers=60), big_blue(), seed=7)
    fallen = {box.number for box in voyage.plan.boxes if box.falls}
    assert len(fallen) == 4
    assert len({box.moves[-1].stowage[:3] for box in voyage.plan.boxes if box.falls and box.moves[-1].stowage}) == 1
    judge, watch = Classifier(big_blue(), "duck-star"), AlertEngine("duck-star")
    now = milliseconds(voyage.ends)
    alerts: list[Alert] = []
    for step in published(voyage.steps()):
        if step.site != "duck-star":
            continue
        message = judge.classify(step.topic, step.payload, now)
        if isinstance(message, ReadingMessage):
            alerts += watch.judge_reading(message, message.log, message.device_ms)
        elif isinstance(message, ShipMessage) and isinstance(message.report, Position):
            alerts += watch.ship_reported(message.report, message.device_ms)
    overboard = [alert for alert in alerts if alert.kind == "OVERBOARD" and alert.state == "OPENED"]
    assert {alert.equipment_reference for alert in overboard} == fallen
    evidence = [{each.name for each in alert.evidence} for alert in overboard]
    assert ["neighbours" in names for names in evidence] == [False, False, True, True]
