"""Estimated sizes of records: bounded, by stream, and what was just looked at wins."""

from __future__ import annotations

import pytest

from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord, Record
from shore.source.stream import (
    LEAST_BYTES,
    MOST_BYTES,
    SAMPLED_LOGS,
    UNSEEN_BYTES,
    Sizes,
    mean_size,
    most_behind,
    size_of,
)


def test_what_was_never_seen_has_a_size_and_what_was_seen_its_own() -> None:
    sizes = Sizes()
    assert sizes.of("containers.1") == UNSEEN_BYTES
    sizes.learn({"containers.1": 300.0, "containers.2": 500.0})
    assert (sizes.of("containers.1"), sizes.of("containers.3"), sizes.of("events.x")) == (300, 400, UNSEEN_BYTES)
    sizes.learn({"containers.2": 1000.0})
    assert (sizes.of("containers.1"), sizes.of("containers.2")) == (400 + 180, 1000)


def test_estimates_are_bounded_and_so_is_what_is_kept() -> None:
    sizes = Sizes()
    sizes.learn({"a.1": 0.0, "b.1": 1e12})
    assert (sizes.of("a.1"), sizes.of("b.1")) == (LEAST_BYTES, MOST_BYTES)
    for number in range(3_000):
        sizes.learn({f"s{number}.1": 5000.0})
    assert sizes.of("s2999.2") == 5000
    assert sizes.of("s0.2") == UNSEEN_BYTES


def test_the_longest_lags_are_looked_at() -> None:
    assert most_behind({f"a.{n}": n for n in range(1, 100)}) == [f"a.{n}" for n in range(99, 99 - SAMPLED_LOGS, -1)]


def test_a_record_is_its_key_value_and_headers() -> None:
    assert size_of(Record(0, 0, b"ab", b"cde", (("f", b"gh"), ("i", None)))) == 2 + 3 + 3 + 1
    assert size_of(Record(0, 0, None, None, ())) == 0


def test_fetched_batches_are_measured_also_when_they_are_cut_or_compressed() -> None:
    records = [NewRecord(bytes(1000), timestamp_ms=1)] * 10

    def batch(offset: int, codec: Codec = Codec.NONE) -> bytes:
        return term_batch(records, term=1, offset=offset, marker=0, codec=codec)

    assert mean_size(memoryview(b"")) is None
    assert mean_size(memoryview(batch(1))) == pytest.approx(1000, rel=0.05)
    assert mean_size(memoryview(batch(1, Codec.ZSTD))) == 1000
    small = term_batch([NewRecord(b"", timestamp_ms=1)], term=1, offset=0, marker=0)
    assert mean_size(memoryview(small + batch(1)[:100])) == pytest.approx(10_000 / 11, rel=0.05)
