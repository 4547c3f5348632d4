"""Members of a group, with the state machine that ships: whatever happens, soon everything has one owner again."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.kafka.protocol.group_codec import Coordinator, Joined, Synced
from fairlead.kafka.protocol.types import TopicPartition
from replication.sharing.rules import (
    COORDINATOR_LOADING,
    INCONSISTENT_PROTOCOL,
    NOT_AUTHORIZED,
    REBALANCE,
    SESSION_SECONDS,
    UNKNOWN_MEMBER,
    MemberInfo,
    MemberPhase,
    Membership,
    Roster,
    WorkShare,
    divide,
    group_id,
    warning,
)
from replication.states import MemberState
from tests.support.examples import examples
from tests.unit.replication.sharing.coordinator import Site

LOGS = [TopicPartition(f"containers.{number}", number % 3) for number in range(300)]
SOON = 25.0  # seconds after several faults at once; one fault takes less than ten
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["start", "kill", "stop", "hang", "wake", "away", "back", "forget", "drop"]),
        st.integers(0, 5),
        st.floats(0.0, 12.0),
    ),
    max_size=14,
)


def complete(site: Site) -> None:
    """Check that every log is followed by exactly one of the live members, and that all of them agree."""
    live = site.live()
    assert {each.state for each in live.values()} <= {MemberState.MEMBER}, live
    assert len({each.member_id for each in live.values()}) == len(live)
    for member in live.values():
        assert member.roster is not None
        assert set(member.roster.members) == {each.member_id for each in live.values()}
    if live:
        owners: Counter[TopicPartition] = Counter()
        for member in live.values():
            share = WorkShare(group=True)
            share.update(member.roster, member.member_id, 0.0)
            owners.update(tp for tp in LOGS if share.owns(tp))
        assert owners == dict.fromkeys(LOGS, 1)
        assert (
            sum(member.roster is not None and member.roster.leader == member.member_id for member in live.values()) == 1
        )


def happen(site: Site, what: str, number: int) -> None:
    names = sorted(site.processes)
    one = names[number % len(names)] if names else None
    match what:
        case "start" if len(names) < 5:
            site.start()
        case "away":
            site.is_away = True
        case "back" if site.is_away:
            site.coordinator.come_back(site.now)
            site.is_away = False
        case "forget":
            site.coordinator.forget()
        case _ if one is None:
            pass
        case "kill":
            site.kill(one)
        case "stop" if not site.is_away:
            site.stop(one)
        case "hang":
            site.processes[one].is_hung = True
        case "wake":
            site.processes[one].is_hung = False
        case "drop":  # a request's answer is lost
            process = site.processes[one]
            process.member, process.asked_at = process.member.failed("lost"), None
            process.due = site.now + process.member.wait


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(1, 3), EVENTS)
def test_whatever_happens_soon_every_log_has_one_owner(members: int, events: list[tuple[str, int, float]]) -> None:
    site = Site()
    for _ in range(members):
        site.start()
    for what, number, pause in events:
        site.run(pause)
        happen(site, what, number)
    if site.is_away:
        happen(site, "back", 0)
    site.run(SOON)
    complete(site)
    for process in site.processes.values():
        process.is_hung = False
    site.run(SOON)
    complete(site)


@pytest.mark.parametrize("fault", ["kill", "hang", "stop"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_that_is_gone_is_replaced_within_ten_seconds(fault: str, number: int) -> None:
    site = Site()
    for _ in range(3):
        site.start()
    site.run(15.0)
    complete(site)
    happen(site, fault, number)
    site.run(9.0)
    complete(site)
    assert len(site.live()) == 2


def test_members_go_on_with_their_list_while_the_coordinator_is_away() -> None:
    site = Site()
    site.start(), site.start()
    site.run(15.0)
    before = {number: each.roster for number, each in site.live().items()}
    happen(site, "away", 0)
    site.run(60.0)
    assert {each.state for each in site.live().values()} == {MemberState.UNAVAILABLE}
    assert {number: each.roster for number, each in site.live().items()} == before
    happen(site, "back", 0)
    site.run(3.0)
    complete(site)
    assert {number: each.roster for number, each in site.live().items()} == before  # nobody joined anew


def test_a_member_that_was_removed_follows_nothing_until_it_has_joined_again() -> None:
    member = joined()
    removed = member.answered(UNKNOWN_MEMBER)
    assert (removed.roster, removed.member_id, removed.phase) == (None, "", MemberPhase.JOIN)
    assert removed.state is MemberState.JOINING


def joined() -> Membership:
    member = Membership(group_id("g"), MemberInfo("a")).answered(Coordinator(0, 1))
    member = member.answered(Joined(0, 1, "m", "m", {"m": b'{"name":"a"}', "n": b"nonsense"}))
    assert member.given == Roster("m", {"m": MemberInfo("a"), "n": MemberInfo("n")})
    member = member.answered(Synced(0, b'{"leader":"m","members":{"m":{"name":"a"},"n":{"name":"b"}}}'))
    assert member.state is MemberState.MEMBER
    return member


def test_a_member_keeps_its_logs_while_others_join() -> None:
    member = joined().answered(REBALANCE)
    assert (member.phase, member.wait) == (MemberPhase.JOIN, 0.0)
    assert member.roster is not None and member.member_id == "m"


@pytest.mark.parametrize(
    ("code", "state", "words"),
    [
        (INCONSISTENT_PROTOCOL, MemberState.INCOMPATIBLE, "release"),
        (NOT_AUTHORIZED, MemberState.REFUSED, "acl apply"),
        (26, MemberState.REFUSED, "group.min.session.timeout.ms"),
        (81, MemberState.REFUSED, "group.max.size"),
        (COORDINATOR_LOADING, MemberState.UNAVAILABLE, "loading"),
    ],
)
def test_a_coordinator_that_refuses_is_named_and_asked_again(code: int, state: MemberState, words: str) -> None:
    member = Membership(group_id("g"), MemberInfo("a")).answered(Coordinator(0, 1))
    refused = member.answered(Joined(code, -1, "", "", {}))
    assert refused.state is state and words in refused.cause and refused.wait > 0
    assert refused.roster is None


NOT_IN_IT = b'{"leader":"n","members":{"n":{"name":"n"}}}'


@pytest.mark.parametrize("data", [b"", b"{", b'{"leader":"x","members":{}}', NOT_IN_IT])
def test_a_list_that_makes_no_sense_is_named(data: bytes) -> None:
    member = Membership(group_id("g"), MemberInfo("a")).answered(Coordinator(0, 1))
    member = member.answered(Joined(0, 1, "n", "m", {})).answered(Synced(0, data))
    assert member.state is MemberState.INCOMPATIBLE and member.roster is None


def test_a_login_that_is_refused_after_joining_changes_nothing_about_the_logs() -> None:
    """The coordinator's broker alone may refuse it: then the member goes on, and others may follow its logs as well."""
    member = joined().failed("the broker refused the login", refused=True)
    assert member.state is MemberState.REFUSED and member.roster is not None
    again = member.answered(Coordinator(0, 2))
    assert again.phase is MemberPhase.HEARTBEAT
    assert again.answered(0).state is MemberState.MEMBER


# ---- the division


@given(st.sets(st.text("abcdef0123", min_size=1, max_size=6), min_size=1, max_size=6))
def test_a_member_that_leaves_moves_its_own_logs_only(members: set[str]) -> None:
    before = divide(frozenset(members))
    for gone in members if len(members) > 1 else ():
        after = divide(frozenset(members - {gone}))
        for tp in LOGS:
            if before.owner(tp) != gone:
                assert after.owner(tp) == before.owner(tp)
            else:
                assert after.owner(tp) != gone


@pytest.mark.parametrize("members", [2, 3, 5])
def test_many_logs_are_divided_evenly(members: int) -> None:
    logs = [TopicPartition(f"metrics.east.{number}") for number in range(9000)]
    division = divide(frozenset(f"fairlead-replicator.beta-{number}" for number in range(members)))
    counts = Counter(map(division.owner, logs))
    assert all(abs(count - 9000 / members) < 900 / members for count in counts.values()), counts


def test_how_long_a_log_was_owned() -> None:
    share = WorkShare(group=True)
    tp = next(tp for tp in LOGS if divide(frozenset("ab")).owner(tp) == "a")
    both = Roster("a", {"a": MemberInfo("a"), "b": MemberInfo("b")})
    other = Roster("b", {"b": MemberInfo("b")})
    assert not share.owned_since(tp, 0.0)
    assert share.update(both, "a", 100.0) and not share.update(both, "a", 110.0)
    assert share.owned_since(tp, 100.0) and not share.owned_since(tp, 99.0)
    assert share.update(None, "", 200.0)
    assert not share.owned_since(tp, 200.0)
    assert share.update(both, "a", 201.0)
    assert share.owned_since(tp, 202.0) and not share.owned_since(tp, 150.0)
    assert share.members == 2 and share.leads
    assert share.update(other, "b", 300.0)
    assert share.members == 1 and share.changes == 4


def test_alone_everything_is_owned() -> None:
    share = WorkShare(group=False)
    assert all(share.owns(tp) and share.owned_since(tp, -1.0) for tp in LOGS)
    assert share.leads and share.members == 1


def test_other_groups_and_other_links_are_named() -> None:
    same = Roster("a", {"a": MemberInfo("a", links="x"), "b": MemberInfo("b", links="x")})
    other = Roster("a", {"a": MemberInfo("host-1:7", "1.0", "x"), "b": MemberInfo("host-2:7", "1.1", "y")})
    mine, another = group_id("g"), group_id("h")
    assert warning(mine, same, {mine: "Stable", another: "Empty", "shore.x": "Stable"}) == ""
    assert "the group h copies" in warning(mine, same, {mine: "Stable", another: "Stable"})
    assert "host-2:7 (release 1.1)" in warning(mine, other, {})
    both = warning(mine, other, {mine: "Stable", another: "Stable"})
    assert "different links" in both
    assert "the group h copies" in both


def test_the_session_is_one_that_brokers_allow_by_default() -> None:
    assert 6.0 <= SESSION_SECONDS < 10.0
