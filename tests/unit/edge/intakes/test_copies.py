"""Messages without a name that come several ways: each is counted once, two equal ones are two."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from edge.intakes.copies import Copies
from edge.intakes.names import intake_id, net_id, shares

WAYS = ("intakes", "core", "net-0")


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 3), st.randoms(use_true_random=False))
def test_each_message_is_new_once_however_its_copies_are_mixed(
    published: list[str], ways: int, chance: random.Random
) -> None:
    copies = Copies()
    deliveries = [(way, message) for way in WAYS[:ways] for message in published]
    chance.shuffle(deliveries)
    new = Counter(message for way, message in deliveries if not copies.is_copy(way, message))
    assert new == Counter(published)


@given(st.lists(st.sampled_from("ab"), max_size=20), st.integers(0, 20))
def test_a_way_that_begins_late_or_ends_early_takes_nothing_away(published: list[str], begins: int) -> None:
    copies = Copies()
    new = [message for message in published[:begins] if not copies.is_copy("core", message)]
    new += [message for message in published if not copies.is_copy("intakes", message)]
    assert Counter(new) == Counter(published)


def test_what_has_not_come_for_longest_is_forgotten() -> None:
    copies = Copies(most=2)
    for message in "aba":
        copies.is_copy("core", message)
    copies.is_copy("core", "c")  # b is forgotten
    assert [copies.is_copy("intakes", message) for message in "ab"] == [True, False]


def test_intakes_share_and_nothing_else_does() -> None:
    bridge = "fairlead-bridge-tokyo"
    assert shares(intake_id(bridge, 12))
    assert not any(map(shares, (bridge, net_id(bridge, 1), "fairlead-bridge-new-intake-port", "intake-1")))
