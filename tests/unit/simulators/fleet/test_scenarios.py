"""Every scenario that ships: it fits its topology, unfolds to a plan, and the plan has what the scenario expects."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from edge.ingest.classifier import Classifier
from edge.messages import Rejected
from fairlead.records import decoder
from fairlead.records.booking import Booking
from fairlead.records.reading import Reading
from simulators.fleet.plan import VoyagePlan, power_changes
from simulators.fleet.planner import check_fit, make_plan
from simulators.fleet.scenario_file import ScenarioError, load, parse, shipped
from simulators.fleet.timetable import AT_ANCHOR, worked
from simulators.steps import LinkChange, MessageKind, Publish, ShipSeized, ShipSinks, VoyageBarrier
from simulators.voyage.voyage import Voyage
from tests.support.cold_truth import cold_truths
from tests.support.simulators.worlds import TRANSHIPMENT, big_blue, published, unmet
from topologies.loader.load import load as load_topology
from topologies.model import Topology

HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
STORIES = sorted(shipped())
reading = decoder(Reading)


@cache
def topology(name: str) -> Topology:
    """The topology of a scenario by the name that commands take."""
    return load_topology(load(name).topology, env={})


@cache
def plan(name: str) -> VoyagePlan:
    return make_plan(load(name), topology(name), 7)


@pytest.mark.parametrize("name", STORIES)
def test_a_shipped_scenario_meets_its_expectations(name: str) -> None:
    scenario = load(name)
    check_fit(scenario, topology(name))
    assert scenario.name == name
    assert scenario.title and scenario.description and scenario.expects
    assert any(expected.figure for expected in scenario.expects), "something that a plan can prove"
    assert unmet(plan(name)) == []


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", STORIES)
def test_every_seed_meets_the_expectations(name: str, seed: int) -> None:
    made = make_plan(load(name), topology(name), seed)
    assert unmet(made) == []
    for box in made.boxes:
        times = [move.time for move in box.moves]
        assert times == sorted(times)
        assert box.moves[0].code == "GTIN"


@pytest.mark.parametrize("name", ["dark-ship", "reefer-claim", "typhoon-tokyo"])
def test_bridges_accept_every_message(name: str) -> None:
    judges = {site: Classifier(topology(name), site) for site in topology(name).sites}
    now = int(dt.datetime(2026, 11, 1, tzinfo=dt.UTC).timestamp() * 1000)
    made = Voyage(load(name).adjusted(containers=10, reading_interval=12 * HOUR), topology(name), seed=7)
    for step in published(made.steps()):
        verdict = judges[step.site].classify(step.topic, step.payload, now)
        assert not isinstance(verdict, Rejected), (step, verdict)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("expects: [{ says: A, figure: overbord, at_least: 1 }]", "no figure 'overbord'"),
        ("expects: [{ says: A, figure: overboard }]", "figure and at_least go together"),
        ("closures: [{ port: tokyo, starts: 1d }]", "closures[0].lasts: Field required"),
        ("closures: [{ prt: tokyo, starts: 1d, lasts: 1d }]", "did you mean 'port'?"),
        ("links: [{ starts: 1d, lasts: 1d }]", "either between, with two sites, or site"),
        ("links: [{ site: tokyo, starts: 1d, lasts: 1d, latancy: 3 }]", "did you mean 'latency'?"),
        ("storms: [{ near: tokyo, peak: 1d, wind: 99 }]", "storms[0].wind: Input should be less than"),
    ],
)
def test_a_mistake_is_reported(text: str, expected: str) -> None:
    with pytest.raises(ScenarioError) as error:
        parse(f"{TRANSHIPMENT}{text}\n", "mine.yaml")
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("closures: [{ port: los-angeles, starts: 1d, lasts: 1d }]", "closures[0]: no port 'los-angeles'"),
        ("blackouts: [{ port: paris, starts: 1d, lasts: 1d }]", "blackouts[0]: no port 'paris'"),
        (
            "other_calls: [{ port: tokyo, imo: '9811012', owner: BIGU, arrives: 1d, loaded: 1 }]",
            "other_calls[0]: owner 'BIGU' has a stream in the topology; its boxes belong in cargo",
        ),
        (
            "other_calls: [{ port: tokyo, imo: '9074729', owner: OTHU, arrives: 1d, loaded: 1 }]",
            "other_calls[0]: 9074729 is the topology's own ship duck-star; its calls belong in ships",
        ),
        ("storms: [{ near: paris, peak: 1d, wind: 9 }]", "storms[0]: no port 'paris'"),
        ("links: [{ site: paris, starts: 1d, lasts: 1d }]", "links[0]: no site 'paris'"),
    ],
)
def test_trouble_at_unknown_sites_is_reported(text: str, expected: str) -> None:
    from fairlead.errors import ConfigurationError

    with pytest.raises(ConfigurationError) as error:
        check_fit(parse(f"{TRANSHIPMENT}{text}\n", "mine.yaml"), big_blue())
    assert expected in error.value.fields["mistakes"][0]


# -- closed ports


def test_work_goes_on_when_a_port_opens() -> None:
    closed = [(START + 2 * HOUR, START + 5 * HOUR), (START + 6 * HOUR, START + 7 * HOUR)]
    assert worked(closed, START, HOUR) == START + HOUR
    assert worked(closed, START, 2 * HOUR) == START + 2 * HOUR
    assert worked(closed, START, 3 * HOUR) == START + 6 * HOUR
    assert worked(closed, START, 4 * HOUR) == START + 8 * HOUR
    assert worked(closed, START + 3 * HOUR, dt.timedelta(0)) == START + 5 * HOUR
    assert worked([], START, HOUR) == START + HOUR


def test_custody_waits_for_the_end_of_a_strike() -> None:
    made = plan("port-strike")
    (strike,) = made.scenario.closures
    begins, ends = made.starts + strike.starts, made.starts + strike.starts + strike.lasts
    at_singapore = [move for box in made.boxes for move in box.moves if move.unlocode == "SGSIN"]
    assert {move.code for move in at_singapore} == {"GTIN", "LOAD", "DISC", "GTOT"}
    assert not [move for move in at_singapore if begins <= move.time < ends]
    table = made.timetables["duck-star"]
    call = table.calls[1]
    assert call.comes < ends == call.arrives
    fix, status = table.at(call.arrives - HOUR)
    assert (status, fix.speed) == (AT_ANCHOR, 0.0)
    aboard = [box for box in made.boxes if box.holder(call.comes) == "duck-star"]
    assert len(aboard) == 32
    assert all(box.holder(call.arrives) == "duck-star" for box in aboard)
    interrupted = made.timetables["blue-marlin"].calls[1]
    assert interrupted.arrives < begins < ends < interrupted.departs
    assert interrupted.departs - interrupted.arrives == interrupted.stay + strike.lasts


def test_a_blackout_cuts_the_power_of_boxes_in_the_yard() -> None:
    made = plan("typhoon-tokyo")
    (dark,) = made.scenario.blackouts
    starts = made.starts + dark.starts
    for box in made.boxes:
        yard = box.holder(starts) == "tokyo" and box.holder(starts + dark.lasts - HOUR) == "tokyo"
        assert bool(box.outages) >= yard
        for change in power_changes(replace(made, boxes=(box,))):
            dead = change.dead_socket
            assert not (dead and change.powered)
            assert dead <= (starts <= change.time < starts + dark.lasts)
    assert sum(bool(box.outages) for box in made.boxes) >= 24
    assert any(change.dead_socket for change in power_changes(made))


def test_a_typhoon_switches_every_link_of_tokyo() -> None:
    rarely = load("typhoon-tokyo").model_copy(update={"ship_interval": DAY, "reading_interval": DAY})
    made = Voyage(rarely.adjusted(containers=4), big_blue(), seed=7)
    switches = [step for step in made.steps() if isinstance(step, LinkChange)]
    assert len(switches) == 12
    assert {step.sim_time - made.starts for step in switches} == {8 * DAY, 10 * DAY}
    assert all("tokyo" in step.between for step in switches)


# -- a lost ship


def test_a_lost_ship_and_its_boxes_report_no_more_and_a_port_takes_over() -> None:
    made = Voyage(load("lost-ship").adjusted(reading_interval=12 * HOUR), big_blue(), seed=7)
    (loss,) = made.plan.losses
    sunk = {box.number: box for box in made.plan.boxes if box.sinks}
    assert len(sunk) == 32 and loss.left.port == "singapore"
    steps = list(made.steps())
    (at,) = [place for place, step in enumerate(steps) if isinstance(step, ShipSinks)]
    waits = steps[at - 1]
    assert isinstance(waits, VoyageBarrier) and waits.site == loss.ship and len(waits.log_ends) == 32
    after = published(steps[at:])
    assert not [step for step in after if step.site == loss.ship]
    found = [step for step in after if step.key in sunk and step.kind is MessageKind.READING]
    assert {step.site for step in found} == {"sydney"}
    assert {step.key for step in found} == {box.number for box in sunk.values() if box.landed}
    assert min(step.sim_time for step in found) > loss.seized
    (seized,) = [place for place, step in enumerate(steps) if isinstance(step, ShipSeized)]
    copied, final = steps[seized - 1], steps[-1]
    assert isinstance(copied, VoyageBarrier) and isinstance(final, VoyageBarrier)
    assert copied.site == "sydney" and copied.log_ends.keys() == {box.log for box in sunk.values()}
    gone = next(box for box in sunk.values() if not box.landed)
    assert copied.log_ends[gone.log] < waits.log_ends[gone.log], "what was not copied is lost"
    assert final.log_ends[gone.log] == copied.log_ends[gone.log] + 1, "and the seizure adds its marker"
    assert f"events.{loss.ship}" not in final.log_ends


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("before: singapore, by: 40d, seized_at: sydney, seized_after: 1d", "cannot sink"),
        (
            "before: singapore, by: 1d, seized_at: sydney, seized_after: 1d, recovered: 99, landed_after: 2d",
            "recovered",
        ),
        ("before: singapore, by: 1d, seized_at: paris, seized_after: 1d", "lost_ships[0].seized_at: no port 'paris'"),
        ("before: tokyo, by: 1d, seized_at: sydney, seized_after: 1d", "never arrives at tokyo"),
    ],
)
def test_a_loss_that_cannot_happen_is_refused(text: str, expected: str) -> None:
    from fairlead.errors import ConfigurationError

    scenario = parse(f"{TRANSHIPMENT}lost_ships: [{{ ship: duck-star, {text} }}]\n", "mine.yaml")
    with pytest.raises(ConfigurationError) as error:
        make_plan(scenario, big_blue(), 7)
    assert expected in error.value.what


# -- boxes in trouble


@cache
def claim() -> tuple[Publish, ...]:
    return tuple(
        published(Voyage(load("reefer-claim").adjusted(reading_interval=4 * HOUR), big_blue(), seed=7).steps())
    )


def box_of(trouble: str) -> str:
    return next(box.number for box in plan("reefer-claim").boxes if getattr(box, trouble))


def test_a_box_that_was_silent_sends_everything_late_and_in_order() -> None:
    number = box_of("silences")
    own = [step for step in claim() if step.key == number and step.kind is MessageKind.READING]
    said = [reading.decode(step.payload).device for step in own]
    late = [step.sim_time - device.device_date_time for step, device in zip(own, said, strict=True)]
    assert max(late) > 18 * HOUR
    assert sum(delay > dt.timedelta(0) for delay in late) == 6
    in_order = [(device.boot_id, device.sequence) for device in said]
    assert in_order == sorted(in_order)
    assert [device.device_date_time for device in said] == sorted(device.device_date_time for device in said)
    times = [step.sim_time for step in own]
    assert max(b - a for a, b in pairwise(times)) > 22 * HOUR


def test_a_wrong_set_point_is_read_for_a_day() -> None:
    number = box_of("setpoints")
    own = [reading.decode(step.payload) for step in claim() if step.key == number and step.kind is MessageKind.READING]
    assert {said.setpoints.temperature for said in own} == {-25.0, -15.0}
    assert sum(said.setpoints.temperature == -15.0 for said in own) == 6


def test_only_a_controlled_atmosphere_is_measured_and_only_onions_are_dried() -> None:
    boxes = {box.number: box.unit.commodity.name for box in plan("reefer-claim").boxes}
    gases, dried = set(), set()
    for step in claim():
        if step.kind is MessageKind.READING:
            said = reading.decode(step.payload)
            if said.measurements.co2 is not None and said.measurements.o2 is not None:
                gases.add(boxes[step.key])
            if said.setpoints.relative_humidity is not None:
                dried.add(boxes[step.key])
    assert gases == {"avocados"}
    assert dried == {"onions"}


def test_only_boxes_in_a_cold_treatment_have_three_probes_and_their_bookings_ask_for_it() -> None:
    treated = {box.number for box in plan("reefer-claim").boxes if box.lot_name == "oranges"}
    fitted, asked = set(), set()
    for step in claim():
        if step.kind is MessageKind.READING:
            said = reading.decode(step.payload).measurements
            assert said.cargo_probe1_temperature is not None
            if said.cargo_probe2_temperature is not None and said.cargo_probe3_temperature is not None:
                fitted.add(step.key)
        elif step.kind is MessageKind.BOOKING:
            told = decoder(Booking).decode(step.payload)
            if told.cold_treatment_days is not None:
                assert (told.cold_treatment_temperature, told.cold_treatment_days) == (1.11, 14)
                asked.add(told.equipment_reference)
    assert len(treated) == 2
    assert fitted == asked == treated


@pytest.mark.parametrize("seed", [1, 2, 7])
def test_one_cold_treatment_goes_on_and_the_other_begins_anew(seed: int) -> None:
    """Neither reaches its 14 days in nine; without power the fruit warms within hours, and then it cools for a day."""
    found = cold_truths(Voyage(load("reefer-claim"), big_blue(), seed=seed)).values()
    (broken,) = (each for each in found if each.box.outages)
    (whole,) = (each for each in found if not each.box.outages)
    assert whole.cold == ((whole.measured[0][0], whole.measured[-1][0]),)
    assert 8 * DAY < whole.cold[0][1] - whole.cold[0][0] < 14 * DAY
    ((dark, lit),) = broken.box.outages
    assert len(broken.cold) > 1
    assert dark + HOUR < broken.warm_again[0] < lit + HOUR
    anew, newest = broken.cold[-1]
    assert lit + HOUR < anew < lit + 3 * DAY
    assert newest == broken.measured[-1][0]


def test_a_failed_reefer_thaws() -> None:
    number = box_of("failures")
    own = [reading.decode(step.payload).measurements for step in claim() if step.key == number and step.reading]
    assert max(m.cargo_probe1_temperature or -99 for m in own) > -18
    assert (own[5].cargo_probe1_temperature or 0) < -23


def test_boxes_below_deck_have_no_position_aboard() -> None:
    made = plan("reefer-claim")
    deep = {box.number: box for box in made.boxes if not box.unit.on_deck}
    aboard = located = 0
    for step in claim():
        box = deep.get(step.key)
        if box is not None and step.kind is MessageKind.READING and step.site == "duck-star":
            device = reading.decode(step.payload).device
            if box.first_load.time + 3 * HOUR < device.device_date_time < box.moves[-1].time - 3 * HOUR:
                aboard += 1
                located += step.place is not None
    assert aboard > 50
    assert located == 0
