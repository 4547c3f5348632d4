from __future__ import annotations

import datetime as dt

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.records import decoder
from fairlead.records.booking import Booking
from fairlead.records.event import Event
from fairlead.records.reading import Reading
from simulators.steps import MessageKind, ReadingId
from simulators.voyage.truth import ReadingSet, Truth
from tests.support.simulators.worlds import published, voyage

NOW = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


@given(st.integers(0, 2**32))
@settings(max_examples=3, deadline=None)
def test_the_truth_counts_the_published_messages(seed: int) -> None:
    """Everything is counted again from the payloads alone, as a reader of the logs would."""
    planned = voyage(seed, 40)
    messages = published(planned.steps())
    truth = Truth(planned.plan)
    for message in messages:
        truth.record(message, NOW)

    reading, booking = decoder(Reading), decoder(Booking)
    stored: dict[ReadingId, dt.datetime] = {}
    bookings: dict[str, Booking] = {}
    sent = 0
    for message in messages:
        if message.kind in (MessageKind.READING, MessageKind.REPEAT):
            said = reading.decode(message.payload)
            device = said.device
            sent += 1
            identity = ReadingId(said.equipment_reference, device.device_id, device.boot_id, device.sequence)
            stored[identity] = device.device_date_time
        elif message.kind is MessageKind.BOOKING:
            state = booking.decode(message.payload)
            bookings[state.equipment_reference] = state

    assert set(truth.published) == stored.keys()
    assert truth.readings == len(truth.published) == len(stored)
    assert truth.repeats == sent - len(stored)
    entitled = {
        identity
        for identity, time in stored.items()
        if (b := bookings.get(identity.container))
        and b.customer == "ducks"
        and b.valid_from <= time
        and (b.valid_to is None or time < b.valid_to)
    }
    assert set(truth.entitled["ducks"]) == entitled
    assert 0 < len(entitled) < len(stored)
    event = decoder(Event)
    events = {(message.key, event.decode(message.payload)) for message in messages if message.kind is MessageKind.EVENT}
    assert all(said.metadata.event_id == key for key, said in events)
    at = {key: said.payload.un_location_code for key, said in events}
    assert {port: {key for key in at if at[key] == port} for port in at.values()} == truth.events
    assert len(truth.losses) == sum(box.falls is not None for box in planned.plan.boxes)


def test_an_interrupted_voyage_has_the_truth_of_its_part() -> None:
    planned = voyage(7, 30)
    truth = Truth(planned.plan)
    half = published(planned.steps())[:500]
    for message in half:
        truth.record(message, NOW)
    assert truth.readings == sum(message.kind is MessageKind.READING for message in half)
    assert not truth.losses


@given(st.lists(st.tuples(st.sampled_from("AB"), st.integers(1, 3), st.integers(0, 9)), unique=True))
def test_sequence_runs_behave_as_a_set(parts: list[tuple[str, int, int]]) -> None:
    wanted = [ReadingId(box, f"device-{box}", boot, sequence) for box, boot, sequence in parts]
    runs = ReadingSet()
    for one in wanted:
        runs.add(one)
    assert sorted(runs) == sorted(wanted)
    assert len(runs) == len(wanted)
