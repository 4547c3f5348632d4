from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.logwriter.dedup import MAX_BOOTS, MAX_DEVICES, MAX_RUNS, DedupResult, RecentKeys, SequenceDedup
from edge.messages import MessageId

identities = st.builds(MessageId, st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 40))


@given(st.lists(identities, max_size=120))
def test_a_complete_memory_is_exact(sent: list[MessageId]) -> None:
    """A memory of the whole log tells repeats exactly."""
    memory, seen = SequenceDedup(complete=True), set[MessageId]()
    for identity in sent:
        assert memory.check(identity) is (DedupResult.REPEAT if identity in seen else DedupResult.NEW)
        memory.add(identity)
        seen.add(identity)


@given(st.lists(identities, max_size=80), st.lists(identities, max_size=80), identities, st.booleans())
def test_a_memory_of_the_tail_never_calls_a_new_reading_a_repeat(
    older: list[MessageId], newer: list[MessageId], asked: MessageId, redelivered: bool
) -> None:
    """A memory of the newest records never calls a new reading a repeat."""
    memory = SequenceDedup()
    for identity in newer:
        memory.add(identity)
    verdict = memory.check(asked, redelivered=redelivered)
    if verdict is DedupResult.REPEAT:
        assert asked in newer
    if asked in newer:
        assert verdict is DedupResult.REPEAT
    if redelivered and asked not in newer:
        assert verdict is DedupResult.UNDECIDED


def test_what_lies_before_the_tail_is_undecided() -> None:
    """A reading older than the remembered records is undecided."""
    memory = SequenceDedup()
    for sequence in range(100, 110):
        memory.add(MessageId("a", 3, sequence))
    assert memory.check(MessageId("a", 3, 99)) is DedupResult.UNDECIDED
    assert memory.check(MessageId("a", 2, 500)) is DedupResult.UNDECIDED
    assert memory.check(MessageId("b", 1, 0)) is DedupResult.UNDECIDED
    assert memory.check(MessageId("a", 3, 110)) is DedupResult.NEW
    assert memory.check(MessageId("a", 4, 0)) is DedupResult.NEW


def test_a_deep_memory_decides_about_messages_sent_again() -> None:
    """A memory read deep enough decides about newer messages that are sent again."""
    memory = SequenceDedup(deep=True)
    memory.add(MessageId("a", 1, 5))
    assert memory.check(MessageId("a", 1, 6), redelivered=True) is DedupResult.NEW
    assert memory.check(MessageId("a", 1, 4), redelivered=True) is DedupResult.UNDECIDED


def test_a_device_that_counts_on_costs_one_run() -> None:
    """A device that counts without gaps costs one range in memory."""
    memory = SequenceDedup(complete=True)
    for sequence in range(10_000):
        memory.add(MessageId("a", 1, sequence))
    (known,) = memory._devices.items()  # noqa: SLF001 - the bound on memory is the point
    assert (known[0], known[1].boot, known[1].runs, known[1].older) == ("a", 1, [0, 9_999], None)


def test_the_bounds_hold_and_what_is_forgotten_is_undecided_not_new() -> None:
    """Memory is bounded; a forgotten reading is undecided, not new."""
    memory = SequenceDedup(complete=True)
    for sequence in range(0, 4 * MAX_RUNS, 2):
        memory.add(MessageId("a", 1, sequence))
    assert memory.check(MessageId("a", 1, 0)) is DedupResult.UNDECIDED
    assert memory.check(MessageId("a", 1, 4 * MAX_RUNS - 2)) is DedupResult.REPEAT
    for boot in range(2 * MAX_BOOTS):
        memory.add(MessageId("b", boot, 0))
    assert memory.check(MessageId("b", 0, 0)) is DedupResult.UNDECIDED
    for number in range(2 * MAX_DEVICES):
        memory.add(MessageId(f"c{number}", 1, 0))
    assert memory.check(MessageId("a", 1, 4 * MAX_RUNS - 2)) is DedupResult.UNDECIDED


@given(st.lists(identities, max_size=40), identities)
def test_late_means_that_a_newer_reading_of_the_device_is_known(sent: list[MessageId], asked: MessageId) -> None:
    """A reading is late if a newer one of its device is known."""
    memory = SequenceDedup(complete=True)
    for identity in sent:
        memory.add(identity)
    newer = any(i.device == asked.device and (i.boot, i.sequence) > (asked.boot, asked.sequence) for i in sent)
    assert memory.is_late(asked) is newer


def test_recent_keys_forget_the_oldest() -> None:
    keys: RecentKeys[str] = RecentKeys(2)
    for key in ("a", "b", "a", "c"):
        keys.add(key)
    assert [key for key in "abc" if key in keys] == ["a", "c"]


def test_without_an_id_only_a_message_sent_again_can_be_a_repeat() -> None:
    """Without an id, only a message flagged as sent again can be a repeat."""
    keys: RecentKeys[str] = RecentKeys(only_redelivered=True)
    keys.add("a")
    assert keys.check("a") is DedupResult.NEW
    assert keys.check("a", redelivered=True) is DedupResult.REPEAT
