"""What a site confirms of its logs, and how far another one believes it."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.custody.view import SEIZING_TERMS, Seizure
from fairlead.errors import FairleadError
from fairlead.kafka.client import append_sender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import FOREIGN_PRODUCER_ID, PRODUCER_ID, filler_batch, term_batch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import ProducerState, TopicPartition
from fairlead.records import decoder, encode
from fairlead.records.ends import EndsEntry, LogEnd
from replication.plan import ends
from replication.plan.ends import (
    NOTHING,
    EndsReader,
    EndsWriter,
    SiteEnds,
    changed_ends,
    entries,
    shared_end,
    term_of,
)
from replication.sharing.rules import WorkShare
from tests.support.examples import examples
from tests.support.kafka.fake_broker import running

ENDS = st.dictionaries(
    st.sampled_from([f"s.{n}" for n in range(8)]), st.builds(LogEnd, st.integers(0, 50), st.integers(0, 3)), max_size=8
)


@given(st.lists(st.tuples(ENDS, st.booleans()), max_size=6))
def test_a_reader_of_the_entries_knows_the_ends_as_they_are(rounds: list[tuple[dict[str, LogEnd], bool]]) -> None:
    """Logs that go and come back included. After a whole list, the entries before it are not needed."""
    known, late = SiteEnds(), SiteEnds()
    for actual, whole in rounds:
        changes = changed_ends(known.of("beta"), actual)
        for entry in entries("beta", actual | changes if whole else changes, whole=whole):
            if entry.part == 1:
                late = SiteEnds()  # begins to read here
            for each in (known, late):
                each.apply("beta", decoder(EndsEntry).decode(encode(entry)), 1000)
        held = {name: end for name, end in known.of("beta").items() if end != NOTHING}
        assert held == {name: end for name, end in actual.items() if end != NOTHING}
        if any(was_whole for _, was_whole in rounds[: rounds.index((actual, whole)) + 1]):
            assert {name: end for name, end in late.of("beta").items() if end != NOTHING} == held


def test_a_list_is_complete_with_its_last_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "AT_ONCE", 2)
    known = SiteEnds()
    parts = list(entries("beta", {f"s.{n}": LogEnd(n + 1, 1) for n in range(3)}, whole=True))
    assert [(each.part, each.parts, len(each.ends)) for each in parts] == [(1, 2, 2), (2, 2, 1)]
    known.apply("beta", parts[0], 500)
    assert known.listed_ms("beta") is None
    known.apply("beta", parts[1], 600)
    assert known.listed_ms("beta") == 600
    known.forget("beta")
    assert (known.of("beta"), known.listed_ms("beta")) == ({}, None)


def test_an_entry_that_names_another_site_confirms_nothing() -> None:
    """Only a site's own log speaks for it, whoever wrote the entry."""
    known = SiteEnds()
    known.apply("duck-star", EndsEntry(site="los-angeles", ends={"s.a": LogEnd(9, 1)}), 1)
    assert known.of("los-angeles") == known.of("duck-star") == {}


def test_the_term_is_that_of_the_convention() -> None:
    assert term_of([ProducerState(PRODUCER_ID, 7, 1, 1), ProducerState(FOREIGN_PRODUCER_ID, 1, 1, 1)]) == 7
    assert term_of([]) == 0


class Entry(NamedTuple):
    """A record: its term, and a number that no other record has."""

    term: int
    number: int


@dataclass
class Story:
    """A log with its branches: each seizure opens one at an offset of an earlier one."""

    branches: list[list[Entry]] = field(default_factory=lambda: [[Entry(1, 0)]])
    ledger: list[tuple[int, Seizure | None]] = field(default_factory=lambda: [(1, None)])  # in order of the terms
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def append(self, branch: int) -> None:
        log = self.branches[branch]
        log.append(Entry(log[-1].term, next(self.numbers)))

    def grant(self) -> None:
        """The newest branch goes on in the next term."""
        log = self.branches[-1]
        log.append(Entry(log[-1].term + 1, next(self.numbers)))
        self.ledger.append((log[-1].term, None))

    def seize(self, at: int) -> None:
        copy = self.branches[-1][: 1 + at % len(self.branches[-1])]
        term = self.ledger[-1][0] + SEIZING_TERMS
        self.branches.append([*copy, Entry(term, next(self.numbers))])
        self.ledger.append((term, Seizure(term, len(copy), "site")))


@settings(max_examples=examples(400))
@given(st.randoms(use_true_random=False))
def test_what_counts_as_confirmed_is_the_same_at_both_sites(random: Random) -> None:
    """However far copies and ledgers have come, a site never takes another branch's records for its own."""
    story = Story()
    for _ in range(random.randint(1, 12)):
        match random.choice(["append", "append", "old", "grant", "seize"]):
            case "append":
                story.append(-1)
            case "old":  # a lost holder goes on
                story.append(random.randrange(len(story.branches)))
            case "grant":
                story.grant()
            case "seize":
                story.seize(random.randint(0, 9))
    ours, theirs = (log[: random.randint(1, len(log))] for log in random.choices(story.branches, k=2))
    heard = story.ledger[: random.choice([len(story.ledger), random.randint(0, len(story.ledger))])]
    shared = shared_end(
        LogEnd(len(theirs), theirs[-1].term),
        ours[-1].term,
        heard[-1][0] if heard else 0,
        [seizure for _, seizure in heard if seizure is not None],
    )
    common = len([1 for a, b in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False))])
    assert min(shared, len(ours)) <= common
    if len(heard) == len(story.ledger) and len(story.branches) == 1:
        assert shared == len(theirs)  # without a seizure, everything counts


def test_without_custody_an_end_counts_as_it_is() -> None:
    assert shared_end(LogEnd(12, 0), 0, 0, ()) == 12
    assert shared_end(LogEnd(12, 1), 1, 0, ()) == 12
    assert shared_end(NOTHING, 1, 1, ()) == 0


@pytest.mark.parametrize("is_there", [True, False], ids=["created again by others", "deleted"])
async def test_ends_are_confirmed_again_after_their_log_was_deleted(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """A site whose log of ends is deleted while it runs confirms its ends in the next one, at the latest one sweep
    later."""
    async with running() as fake, await Cluster.open(fake.endpoint(), client_id="test", request_timeout=2.0) as cluster:
        monkeypatch.setattr(append_sender, "ATTEMPTS_AT_UNKNOWN", 1)
        monkeypatch.setattr(ends, "create_logs", lambda _endpoint, topics: [fake.log(topic) for topic in topics])
        log = fake.log("s.a")
        log.append(term_batch([NewRecord(b"x", timestamp_ms=1)], term=1, offset=0, marker=0))
        writer, reader = EndsWriter("beta", cluster, WorkShare(group=False)), EndsReader(["beta"])

        async def sweep() -> LogEnd | None:
            await reader.read(cluster, [*fake.logs])
            with contextlib.suppress(FairleadError):
                await writer.confirm([TopicPartition("s.a")], reader.ends, doubtful=(), limits={})
            await reader.read(cluster, [*fake.logs])
            return reader.ends.of("beta").get("s.a")

        assert await sweep() == LogEnd(1, 1)
        del fake.logs["ends.beta"]
        if is_there:
            fake.log("ends.beta")
        log.append(term_batch([NewRecord(b"y", timestamp_ms=1)], term=1, offset=1, marker=0))
        await sweep()
        assert await sweep() == LogEnd(2, 1)
        assert fake.logs["ends.beta"].end == 2  # the marker and one entry
        await writer.close()


async def test_what_was_confirmed_before_a_gap_counts_only_if_it_is_confirmed_again() -> None:
    """The entries that are missing may have taken a confirmation back."""
    async with running() as fake, await Cluster.open(fake.endpoint(), client_id="test", request_timeout=2.0) as cluster:
        log, reader = fake.log("ends.beta"), EndsReader(["beta"])

        def append(ends: dict[str, LogEnd]) -> None:
            new = NewRecord(encode(EndsEntry(site="beta", ends=ends)), timestamp_ms=1)
            log.append(term_batch([new], term=1, offset=log.end, marker=0))

        append({"s.a": LogEnd(9, 1), "s.b": LogEnd(9, 1)})
        await reader.read(cluster, [*fake.logs])
        assert set(reader.ends.of("beta")) == {"s.a", "s.b"}
        log.append(filler_batch(3, term=1, offset=log.end, marker=0, timestamp_ms=1))
        append({"s.a": LogEnd(12, 1)})
        await reader.read(cluster, [*fake.logs])
        assert reader.ends.of("beta") == {"s.a": LogEnd(12, 1)}
