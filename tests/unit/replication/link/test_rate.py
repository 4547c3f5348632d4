"""Token buckets and strict priority, with a simulated clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replication.catalog import CLASSES
from replication.link.byte_budget import LinkBudget, TokenBucket
from topologies.model import Priority

RATES = st.integers(1_000, 10_000_000)


@given(rate=RATES, sizes=st.lists(st.integers(1, 2_000_000), min_size=1, max_size=60))
def test_whoever_waits_as_told_keeps_the_rate(rate: int, sizes: list[int]) -> None:
    """A sender that waits as long as the bucket says keeps the rate."""
    bucket, now = TokenBucket(rate, rate, now=0.0), 0.0
    for size in sizes:
        now += bucket.wait(now)
        assert bucket.available(now) > 0
        bucket.charge(size, now)
    # All but the last are paid for by then; the burst was free.
    assert sum(sizes[:-1]) <= rate * now + rate + 1


@given(rate=RATES, size=st.integers(1, 10_000_000))
def test_debt_is_waited_for_and_no_longer(rate: int, size: int) -> None:
    """A sender waits exactly until its debt is paid."""
    bucket = TokenBucket(rate, rate, now=0.0)
    bucket.charge(size, 0.0)
    wait = bucket.wait(0.0)
    assert abs(wait - max(0.0, (size - rate + 1) / rate)) < 1e-6
    assert bucket.wait(wait + 1e-9) <= 1e-6


def test_an_idle_bucket_saves_no_more_than_its_burst() -> None:
    """An idle bucket saves up no more than its burst."""
    bucket = TokenBucket(1000, 500, now=0.0)
    assert bucket.available(1e6) == 500


@given(rate=RATES, noise=st.lists(st.tuples(st.sampled_from(CLASSES), st.integers(1, 5_000_000)), max_size=30))
def test_later_classes_never_delay_earlier_ones(rate: int, noise: list[tuple[Priority, int]]) -> None:
    """Lower classes never delay higher ones."""
    for priority in CLASSES:
        earlier = CLASSES[: CLASSES.index(priority) + 1]
        alone, crowded = LinkBudget(rate, now=0.0), LinkBudget(rate, now=0.0)
        for who, size in noise:
            crowded.charge(who, size, 0.0)
            if who in earlier:
                alone.charge(who, size, 0.0)
        assert crowded.wait(priority, 0.0) == alone.wait(priority, 0.0)


def test_earlier_classes_do_delay_later_ones() -> None:
    """Higher classes do delay lower ones."""
    budget = LinkBudget(1000, now=0.0)
    budget.charge(Priority.URGENT, 3000, 0.0)
    assert budget.wait(Priority.CONTROL, 0.0) == 0
    assert budget.wait(Priority.BULK, 0.0) > 2


def test_a_link_without_rate_never_waits() -> None:
    budget = LinkBudget(None, now=0.0)
    budget.charge(Priority.BULK, 1 << 40, 0.0)
    assert budget.wait(Priority.BULK, 0.0) == 0
    assert budget.allowance(Priority.BULK, 0.0, 4096) == 4096


@given(rate=RATES, spent=st.integers(0, 20_000_000), most=st.integers(1, 1 << 24))
def test_an_allowance_can_always_be_asked_for(rate: int, spent: int, most: int) -> None:
    """Some allowance can be asked for at any time."""
    budget = LinkBudget(rate, now=0.0)
    budget.charge(Priority.NORMAL, spent, 0.0)
    assert 1 <= budget.allowance(Priority.BULK, 0.0, most) <= most


@given(rate=RATES, members=st.integers(1, 9))
def test_members_that_share_a_link_keep_its_rate_together(rate: int, members: int) -> None:
    budget, now, sent = LinkBudget(rate, now=0.0), 0.0, 0
    budget.divide(members, now)
    while now < 20.0:
        now += budget.wait(Priority.NORMAL, now)
        size = budget.allowance(Priority.NORMAL, now, 1 << 20)
        budget.charge(Priority.NORMAL, size, now)
        sent += size
        now += 0.05
    assert sent * members <= rate * (now + 1) + members
    budget.divide(1, now)  # the others have gone
    assert budget.rate == rate


def test_a_link_without_rate_is_not_divided() -> None:
    budget = LinkBudget(None, now=0.0)
    budget.divide(3, 0.0)
    assert budget.rate is None and budget.allowance(Priority.BULK, 0.0, 4096) == 4096
