from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.ingest.classifier import Classifier
from edge.messages import Rejected
from fairlead.errors import ConfigurationError
from fairlead.records import decoder
from fairlead.records.booking import Booking
from fairlead.records.event import Event
from fairlead.records.reading import Reading
from fairlead.records.ship import Environment, Position
from simulators.fleet.scenario_file import load, parse
from simulators.network.weather import USUAL
from simulators.physics.climate import link_weather
from simulators.steps import BarrierKind, LinkChange, MessageKind, Publish, VoyageBarrier
from simulators.voyage.voyage import Voyage
from tests.support.simulators import worlds
from tests.support.simulators.worlds import barriers, big_blue, digest, published, small_plan, small_steps, voyage
from topologies.loader.load import load as load_topology

reading, event, booking = decoder(Reading), decoder(Event), decoder(Booking)
position, environment = decoder(Position), decoder(Environment)
seeds = st.integers(0, 2**63)
HOUR = dt.timedelta(hours=1)
few = settings(max_examples=4, deadline=None)


def test_another_process_gives_the_same_bytes() -> None:
    """Nothing depends on Python's hash seed, on the time of day, or on what ran before."""
    program = "from tests.support.simulators.worlds import digest, voyage; print(digest(voyage(11, 12).steps()))"
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "TZ": "Asia/Tokyo"}
    other = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    assert other.stdout.strip() == digest(voyage(11, 12).steps())


@given(seeds)
@few
def test_readings_are_published_where_the_box_is(seed: int) -> None:
    holder: dict[str, str | None] = {}
    last: dict[tuple[str, int], int] = {}
    boots: dict[str, int] = {}
    fallen: dict[str, str] = {}
    before = None
    for step in voyage(seed).steps():
        assert before is None or before <= step.sim_time
        before = step.sim_time
        if not isinstance(step, Publish):
            continue
        if step.kind is MessageKind.READING:
            said = reading.decode(step.payload)
            assert holder[step.key] == step.site
            assert said.equipment_reference == step.key == step.topic.split("/")[3]
            assert said.device.device_date_time == step.sim_time
            name = said.device.device_id
            assert said.device.boot_id >= boots.get(name, 0)
            boots[name] = said.device.boot_id
            expected = last.get((name, said.device.boot_id), -1) + 1
            assert said.device.sequence == expected
            last[name, said.device.boot_id] = said.device.sequence
            if step.decides:
                fallen[step.key] = step.site
        elif step.kind is MessageKind.EVENT and step.moves_log:
            said_event = event.decode(step.payload)
            box = str(said_event.payload.equipment_reference)
            code = said_event.payload.equipment_event_type_code
            assert holder.get(box) == (None if code == "GTIN" else step.site)
            assert box not in fallen
            ship = big_blue().ship_with(said_event.payload.vessel_imo_number or "")
            port = big_blue().port_at(said_event.payload.un_location_code or "")
            holder[box] = {"GTIN": port, "LOAD": ship, "DISC": port, "GTOT": None}[str(code)]
    assert {holder[box] for box in fallen} == {"duck-star"}


@given(seeds)
@few
def test_barriers_have_the_end_of_each_log(seed: int) -> None:
    ends: Counter[str] = Counter()
    fixed: set[str] = set()
    for step in voyage(seed).steps():
        if isinstance(step, Publish) and step.kind not in (MessageKind.REPEAT, MessageKind.BAD):
            log = str(step.log)
            if step.kind is not MessageKind.READING and log not in fixed:
                fixed.add(log)
                ends[log] += 1  # the marker that opens it
            ends[log] += 1
            if step.moves_log:
                ends[step.moves_log] += 1
        elif isinstance(step, VoyageBarrier):
            assert step.log_ends
            assert {log: ends[log] for log in step.log_ends} == step.log_ends
            if step.kind is BarrierKind.FINISHED:
                assert step.log_ends == ends


def test_barriers_come_before_departures() -> None:
    steps = list(small_steps())
    kinds = Counter(barrier.kind for barrier in barriers(steps))
    assert kinds[BarrierKind.DEPARTURE] == 3, "tokyo and singapore for one ship, singapore for the other"
    assert kinds[BarrierKind.CUSTODY] == 3
    assert isinstance(steps[-1], VoyageBarrier)
    assert steps[-1].kind is BarrierKind.FINISHED
    for i, step in enumerate(steps):
        if isinstance(step, VoyageBarrier) and step.kind is BarrierKind.DEPARTURE:
            sails = [s for s in steps[i + 1 : i + 3] if isinstance(s, Publish)]
            assert {(s.detail, s.site) for s in sails} == {("DEPA", step.site), ("DEPA", step.peer)}
            loaded = [s for s in published(steps[:i]) if s.detail == "LOAD" and s.site == step.site]
            assert set(step.containers) <= {str(event.decode(s.payload).payload.equipment_reference) for s in loaded}
            assert step.containers


def test_before_each_arrival_from_sea_the_next_port_is_measured() -> None:
    """The ship is still at sea then, so that the port has nothing of the berth's link or radio."""
    trip = Voyage(load("harbour"), load_topology("minimal", env={}), seed=7)
    steps = list(trip.steps())
    found = [i for i, step in enumerate(steps) if isinstance(step, VoyageBarrier) and step.kind is BarrierKind.ARRIVAL]
    calls = [call for table in trip.plan.timetables.values() for call in table.calls if call.number]
    assert len(found) == len(calls) > 0
    weather = link_weather(trip.plan)
    for i in found:
        barrier = steps[i]
        assert isinstance(barrier, VoyageBarrier)
        assert weather.between(barrier.site, barrier.peer, barrier.sim_time).latency == USUAL["satellite"].latency
        assert trip.plan.timetables[barrier.peer].berthed_at(barrier.sim_time) is None
        assert {log for log in barrier.log_ends if log.startswith("ships.")} and barrier.containers
        arrives = next(s for s in published(steps[i:]) if s.detail == "ARRI")
        assert arrives.site == barrier.site


def test_a_ship_waits_to_sail_at_the_berth() -> None:
    """While a ship waits until it may depart, the port's radio links it, and not its satellite."""
    harbour = Voyage(load("harbour"), load_topology("minimal", env={}), seed=7)  # its ship has both
    weather = link_weather(harbour.plan)
    waits = [barrier for barrier in barriers(harbour.steps()) if barrier.kind is BarrierKind.DEPARTURE]
    assert waits
    for wait in waits:
        assert weather.between(wait.site, wait.peer, wait.sim_time).latency == USUAL["berth"].latency


def test_a_box_leaves_the_port_only_after_the_port_took_it() -> None:
    taken: set[str] = set()
    left = 0
    for step in small_steps():
        if isinstance(step, VoyageBarrier) and step.kind is BarrierKind.CUSTODY:
            taken |= set(step.containers)
        elif isinstance(step, Publish) and step.detail == "GTOT" and step.moves_log:
            left += 1
            assert event.decode(step.payload).payload.equipment_reference in taken
    assert left > 10


def test_bookings_share_the_transport_document_of_their_shipment() -> None:
    steps = (step for step in small_steps() if isinstance(step, Publish) and step.kind is MessageKind.BOOKING)
    facts: dict[str, set[tuple[str, ...]]] = {}
    boxes: dict[str, set[str]] = {}
    for state in (booking.decode(step.payload) for step in steps):
        of = (state.customer, state.consignee, state.port_of_loading, state.port_of_discharge)
        facts.setdefault(state.transport_document_reference, set()).add(of)
        boxes.setdefault(state.equipment_reference, set()).add(state.transport_document_reference)
    assert all(len(found) == 1 for found in facts.values())
    assert all(len(found) == 1 for found in boxes.values())
    assert 1 < len(facts) < len(boxes)


def test_bookings_are_known_before_load_and_before_release() -> None:
    steps = list(small_steps())
    known: dict[str, Booking] = {}
    recorded: set[str] = set()
    for step in steps:
        if isinstance(step, VoyageBarrier) and step.kind is BarrierKind.RECORDED and step.site == "los-angeles":
            recorded = {f"{number} {state.status}" for number, state in known.items()}
        if not isinstance(step, Publish):
            continue
        if step.kind is MessageKind.BOOKING:
            assert step.site == "los-angeles"
            state = booking.decode(step.payload)
            assert state.valid_from > step.sim_time or state.status == "COMPLETED"
            known[state.equipment_reference] = state
        elif step.kind is MessageKind.READING and step.customer:
            state = known[step.key]
            assert state.valid_from <= step.sim_time
            assert state.valid_to is None or step.sim_time < state.valid_to
            assert f"{step.key} CONFIRMED" in recorded or f"{step.key} COMPLETED" in recorded
        elif step.kind is MessageKind.READING and step.key in known:
            state = known[step.key]
            if step.sim_time >= state.valid_from:
                assert state.status == "COMPLETED"
                assert f"{step.key} COMPLETED" in recorded
    assert {state.customer for state in known.values()} == {"ducks"}
    assert {state.status for state in known.values()} == {"CONFIRMED", "COMPLETED"}


def test_repeats_have_the_bytes_of_an_earlier_reading_at_the_same_site() -> None:
    seen: dict[object, Publish] = {}
    repeats = 0
    for step in published(Voyage(worlds.ducks().adjusted(containers=60), big_blue(), seed=3).steps()):
        if step.kind is MessageKind.READING:
            seen[step.reading] = step
        elif step.kind is MessageKind.REPEAT:
            repeats += 1
            first = seen[step.reading]
            assert (first.payload, first.site, first.topic) == (step.payload, step.site, step.topic)
    assert repeats > 10


def test_a_falling_box_reports_its_fall_and_then_nothing() -> None:
    steps = [s for s in published(small_steps()) if s.kind is MessageKind.READING]
    deciding = [s for s in steps if s.decides]
    assert deciding
    for step in deciding:
        own = [reading.decode(s.payload) for s in steps if s.key == step.key]
        motions = [r.motion for r in own if r.motion]
        moment = next(m for m in motions if m.free_fall_seconds)
        assert moment.immersed
        assert moment.tilt_degrees > 45
        assert moment.peak_g > 4
        assert not own[-1].is_powered
        assert own[-1].device.device_date_time - step.sim_time < dt.timedelta(minutes=10)
        assert [m.immersed for m in motions[-4:]] == [True] * 4
        assert not any(m.immersed or m.free_fall_seconds for m in motions[:-4])
    before = [b for b in barriers(small_steps()) if b.site == "duck-star" and b.kind is BarrierKind.RECORDED]
    assert len(before) == 1
    assert before[0].sim_time < deciding[0].sim_time


def test_ordinary_readings_show_no_sign_of_a_fall() -> None:
    falling = {s.key: s.sim_time for s in published(small_steps()) if s.decides}
    checked = 0
    for step in published(small_steps()):
        lashed_until = falling.get(step.key, step.sim_time + 2 * HOUR) - HOUR
        if step.kind is not MessageKind.READING or step.sim_time > lashed_until:
            continue
        motion = reading.decode(step.payload).motion
        if motion:
            checked += 1
            assert motion.tilt_degrees <= 30
            assert motion.peak_g < 2
            assert not motion.immersed
    assert checked > 200


def test_ships_report_where_they_are() -> None:
    track = [position.decode(s.payload) for s in published(small_steps()) if s.kind is MessageKind.POSITION]
    weather = [environment.decode(s.payload) for s in published(small_steps()) if s.kind is MessageKind.ENVIRONMENT]
    assert {p.vessel_imo_number for p in track} == {"9074729", "9321483"}
    assert {p.navigation_status for p in track} == {0, 1, 5}
    for p in track:
        moving = p.navigation_status == 0
        assert p.geo_location is not None
        assert moving == ((p.speed_over_ground or 0) > 3)
        assert (p.course_over_ground is not None) == moving
    duck_star = [w for w in weather if w.vessel_imo_number == "9074729"]
    assert max(w.wind_speed or 0 for w in duck_star) > 20, "the gale in which the boxes are lost"
    assert max(w.reefer_power or 0 for w in duck_star) > 10


def test_positions_have_the_noise_of_ais() -> None:
    from simulators.fleet import routes

    tables = small_plan().timetables
    off: dict[int, list[float]] = defaultdict(list)
    for step in published(small_steps()):
        if step.kind is MessageKind.POSITION:
            said = position.decode(step.payload)
            fix, status = tables[step.site].at(step.sim_time)
            assert said.geo_location is not None
            place = routes.Point(said.geo_location.latitude, said.geo_location.longitude)
            off[status].append(1852 * routes.distance(place, fix.point))
            assert abs((said.speed_over_ground or 0) - fix.speed) < 0.7
            if said.course_over_ground is not None and said.heading is not None:
                assert abs((said.course_over_ground - fix.course + 180) % 360 - 180) < 6
                assert abs((said.heading - fix.course + 180) % 360 - 180) < 12
    assert 1 < sum(off[0]) / len(off[0]) < 20
    assert 20 < sum(off[1]) / len(off[1]) < 200, "a ship at anchor swings"
    assert max(map(max, off.values())) < 400, "never so far off that a box on deck would seem to be elsewhere"


def test_bridges_accept_every_message_but_the_bad_ones() -> None:
    """The edge's classifier is the judge: what a voyage publishes is usable, and bad messages fail as foretold."""
    now = int(dt.datetime(2026, 11, 1, tzinfo=dt.UTC).timestamp() * 1000)
    judges = {site: Classifier(big_blue(), site) for site in big_blue().sites}
    reasons: Counter[str] = Counter()
    steps = published(Voyage(worlds.ducks().adjusted(containers=60), big_blue(), seed=3, with_bad=True).steps())
    for step in steps:
        verdict = judges[step.site].classify(step.topic, step.payload, now)
        if step.kind is MessageKind.BAD:
            assert isinstance(verdict, Rejected)
            assert verdict.reason == step.detail
            reasons[verdict.reason] += 1
        else:
            assert not isinstance(verdict, Rejected), (step, verdict)
            log = getattr(verdict, "log", None)
            if step.kind in (MessageKind.READING, MessageKind.REPEAT, MessageKind.POSITION, MessageKind.ENVIRONMENT):
                assert log == step.log
            elif step.moves_log:
                assert log == step.moves_log
    assert len(reasons) == 8


def test_bad_messages_are_optional() -> None:
    assert not any(s.kind is MessageKind.BAD for s in published(voyage(with_bad=False).steps()))
    assert [s for s in published(voyage(with_bad=True).steps()) if s.kind is not MessageKind.BAD] == published(
        voyage(with_bad=False).steps()
    )


def test_the_start_moves_every_clock() -> None:
    start = dt.datetime(2026, 10, 5, 6, tzinfo=dt.UTC)
    moved = Voyage(worlds.ducks().adjusted(containers=10, start=start), big_blue(), seed=7)
    assert moved.starts == start
    first = next(s for s in moved.steps() if isinstance(s, Publish))
    assert first.sim_time >= start
    assert (
        moved.ends - start
        == Voyage(worlds.ducks().adjusted(containers=10), big_blue(), seed=7).ends - worlds.ducks().start
    )


@pytest.mark.parametrize("containers", [10, 200])
def test_the_expected_count_is_near(containers: int) -> None:
    planned = Voyage(worlds.ducks().adjusted(containers=containers), big_blue(), seed=7)
    found = len(published(planned.steps()))
    assert planned.expected_messages() == pytest.approx(found, rel=0.03)


def test_a_port_sees_the_boxes_of_other_lines_and_hears_none() -> None:
    calls = (
        "other_calls:\n"
        "  - { port: singapore, imo: '9811012', owner: OTHU, arrives: 6d, discharged: 3, loaded: 2 }\n"
        "  - { port: tokyo, imo: '9811024', owner: OTHU, arrives: 4d, loaded: 1 }\n"
    )
    seen = Voyage(parse(worlds.TRANSHIPMENT + calls, "seen.yaml"), big_blue(), seed=1)
    by_box: dict[str, list[str]] = defaultdict(list)
    ships: dict[str, list[str]] = defaultdict(list)
    for message in published(seen.steps()):
        if message.kind is not MessageKind.EVENT:
            assert not message.key.startswith("OTHU")
            continue
        told = event.decode(message.payload).payload
        if (told.equipment_reference or "").startswith("OTHU"):
            assert (message.log, message.moves_log) == (f"events.{message.site}", None)
            by_box[str(told.equipment_reference)].append(str(told.equipment_event_type_code))
        elif told.vessel_imo_number in ("9811012", "9811024"):
            ships[told.vessel_imo_number].append(str(told.transport_event_type_code))
    assert sorted(map(tuple, by_box.values())) == [("DISC", "GTOT")] * 3 + [("GTIN", "LOAD")] * 3
    assert ships == {"9811012": ["ARRI", "DEPA"], "9811024": ["ARRI", "DEPA"]}
    plain = Voyage(parse(worlds.TRANSHIPMENT, "plain.yaml"), big_blue(), seed=1)
    assert [box.number for box in plain.plan.boxes] == [box.number for box in seen.plan.boxes]


def test_each_leg_has_a_schedule_and_a_closed_port_another() -> None:
    closure = "closures:\n  - { port: singapore, starts: 5d, lasts: 10d }\n"
    world = worlds.TRANSHIPMENT.replace("11d", "20d") + closure
    closed = Voyage(parse(world, "closed.yaml"), big_blue(), seed=1)
    tables = closed.plan.timetables
    star, marlin = tables["duck-star"], tables["blue-marlin"]
    told: dict[str | None, list[tuple[object, ...]]] = defaultdict(list)
    for message in published(closed.steps()):
        if message.kind is MessageKind.SCHEDULE:
            said = event.decode(message.payload).payload
            what = said.event_classifier_code, said.transport_event_type_code, said.voyage_reference
            told[said.vessel_imo_number].append((message.site, message.sim_time, *what, said.event_date_time))
    planned, arrives = star.calls[1].comes, star.calls[1].arrives
    assert planned < arrives == closed.starts + dt.timedelta(days=15)
    assert told == {  # both ships stay at their last port: no departure is planned
        star.imo: [
            ("tokyo", star.calls[0].departs, "PLN", "ARRI", "002", planned),
            ("singapore", planned, "EST", "ARRI", "002", arrives),
        ],
        marlin.imo: [("singapore", marlin.calls[0].departs, "PLN", "ARRI", "002", marlin.calls[1].comes)],
    }


def test_link_outages_become_switches() -> None:
    outage = "links:\n  - { between: [duck-star, los-angeles], starts: 5d, lasts: 10d }\n"
    cut = Voyage(parse(worlds.TRANSHIPMENT + outage, "cut.yaml"), big_blue(), seed=1)
    changes = [s for s in cut.steps() if isinstance(s, LinkChange)]
    day = dt.timedelta(days=1)
    assert [(c.sim_time - cut.starts, c.up) for c in changes] == [(5 * day, False), (15 * day, True)]
    assert changes[0].between == ("duck-star", "los-angeles")


def test_a_start_without_time_zone_and_a_zero_interval_are_refused() -> None:
    naive = dt.datetime(2026, 9, 1)  # noqa: DTZ001 - that is the mistake
    with pytest.raises(ConfigurationError, match="no time zone"):
        Voyage(worlds.ducks().adjusted(start=naive), big_blue(), seed=1)
    with pytest.raises(ConfigurationError, match="too short"):
        Voyage(worlds.ducks().adjusted(reading_interval=dt.timedelta(0)), big_blue(), seed=1)
