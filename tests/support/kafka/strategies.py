"""Hypothesis strategies for records and batches."""

from __future__ import annotations

from hypothesis import strategies as st

from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord

MAX_TIME = 2**45

codecs = st.sampled_from(Codec)
some_bytes = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=120, max_size=300))
headers = st.lists(st.tuples(st.text(max_size=70), some_bytes), max_size=4).map(tuple)


@st.composite
def new_records(draw: st.DrawFn) -> NewRecord:
    """Any record that may be appended."""
    time = draw(st.integers(min_value=0, max_value=MAX_TIME))
    return NewRecord(draw(some_bytes), draw(some_bytes), draw(headers), timestamp_ms=time)


record_lists = st.lists(new_records(), min_size=1, max_size=12)
offsets = st.integers(min_value=0, max_value=2**60)
terms = st.integers(min_value=1, max_value=32767)
