"""The rule by which committed offsets are copied: properties of one decision, and of whole networks of links.

Metadata of a copied commit names the site, time and offset it came from.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.groups.rules import (
    CLOCKS,
    COPIED,
    METADATA_LIMIT,
    REASON,
    Commit,
    GroupLogState,
    GroupPosition,
    ReplicaBounds,
    SeenCommit,
    copied_position,
    copy_metadata,
    decide_commit,
    origins_of,
    own_metadata,
    probe_name,
    select_groups,
    summarize_states,
    unmatched_patterns,
)
from topologies.model import Topology

LINK = ("alpha", "beta")
ORIGINS = frozenset({"alpha", "gamma"})
WIDE = ReplicaBounds(0, 1000)
offsets = st.integers(0, 40)
stamps = st.integers(0, 30)
positions = st.builds(GroupPosition, st.sampled_from(("alpha", "beta", "gamma")), offsets, stamps)
commits = st.one_of(
    st.builds(Commit, offsets, st.sampled_from(("", "app data", "fairlead:", "fairlead:alpha:x:1"))),
    st.builds(lambda offset, position: Commit(offset, copy_metadata(position)), offsets, positions),
)
bounds = st.tuples(offsets, offsets).map(lambda pair: ReplicaBounds(min(pair), max(pair)))
seen = st.none() | st.builds(
    SeenCommit, st.tuples(st.sampled_from(("alpha", "gamma")), offsets), st.none() | commits, st.booleans()
)


def rule(
    source: Commit,
    target: Commit | None = None,
    log: ReplicaBounds | None = WIDE,
    last: SeenCommit | None = None,
    *,
    active: bool = False,
    now: int = 50,
) -> tuple[GroupLogState, Commit | None, int, SeenCommit | None]:
    return decide_commit(source, target, log, last, link=LINK, origins=ORIGINS, active=active, now_ms=now)


# ---- which metadata is believed

NOW = 1_000_000_000
AHEAD = NOW + CLOCKS + 1


@pytest.mark.parametrize(
    "position",
    [
        GroupPosition("alpha", 900, 10**18),
        GroupPosition("gamma", 900, AHEAD),
        GroupPosition("delta", 900, NOW),
        GroupPosition("zz", 900, 1),
    ],
    ids=["a huge stamp", "a time to come", "a site without a way to the source", "no site"],
)
@pytest.mark.parametrize("target", [None, Commit(3), Commit(3, copy_metadata(GroupPosition("gamma", 3, NOW - 1)))])
def test_a_mark_that_cannot_be_is_not_followed(position: GroupPosition, target: Commit | None) -> None:
    """Copied offsets with an impossible time or origin in their metadata are not followed."""
    state, write, _, last = rule(Commit(900, copy_metadata(position)), target, now=NOW)
    assert (state, write, last) == (GroupLogState.UNBELIEVED, None, None)
    assert REASON[state] and state not in COPIED


def test_a_clock_that_is_a_little_ahead_is_believed() -> None:
    """A time slightly in the future is believed."""
    position = GroupPosition("gamma", 9, NOW + CLOCKS)
    assert rule(Commit(9, copy_metadata(position)), now=NOW)[:2] == (
        GroupLogState.FOLLOWING,
        Commit(9, copy_metadata(position)),
    )


@pytest.mark.parametrize(
    "source", [Commit(9), Commit(9, copy_metadata(GroupPosition("alpha", 9, NOW)))], ids=["own", "copied"]
)
def test_a_mark_of_a_time_to_come_that_is_here_gives_way(source: Commit) -> None:
    """A commit here with a time far in the future is replaced.

    It was written before such times were refused, or by any client that may commit here.
    """
    state, write, _, _ = rule(source, Commit(900, copy_metadata(GroupPosition("alpha", 900, 10**18))), now=NOW)
    assert state is GroupLogState.FOLLOWING
    assert write is not None and copied_position(write) == GroupPosition("alpha", 9, NOW)


def test_positions_come_along_links_that_name_groups_and_never_by_way_of_a_ship() -> None:
    """Offsets are copied along links that name groups, and never by way of a ship."""

    def link(source: str, target: str, *groups: str) -> dict[str, object]:
        return {"from": source, "to": target, "streams": {"numbers": "all"}, "groups": groups}

    shape = Topology.model_validate(
        {
            "name": "groups",
            "sites": {name: {"kind": "datacentre"} for name in ("a", "b", "c", "d")}
            | {"s": {"kind": "ship", "imo": "9074729"}},
            "streams": {"numbers": {}},
            "links": [
                link("a", "b", "x"),
                link("b", "c", "x"),
                link("c", "d"),
                link("d", "s", "x"),
                link("s", "c", "x"),
            ],
        }
    )
    ways = {each.name: origins_of(shape, each) for each in shape.directed_links()}
    assert ways["a->b"] == {"a"}
    assert ways["b->c"] == {"a", "b"}
    assert ways["c->d"] == {"a", "b", "c", "s"}  # offsets of the ship's own consumers, not those that came to it from d
    assert ways["s->c"] == {"s"}
    assert ways["d->s"] == {"d"}


# ---- metadata of copies


@given(positions, st.text())
def test_a_mark_is_read_back_with_the_consumers_own_metadata(position: GroupPosition, metadata: str) -> None:
    """The metadata of a copy is read back together with the consumer's own metadata."""
    commit = Commit(1, copy_metadata(position, metadata))
    assert copied_position(commit) == position
    assert own_metadata(commit) == metadata


def test_metadata_that_would_be_too_long_is_left_out() -> None:
    """Consumer metadata that would make the total too long is left out."""
    position = GroupPosition("alpha", 7, 1)
    fits = "é" * ((METADATA_LIMIT - len(copy_metadata(position)) - 1) // 2)
    assert copy_metadata(position, fits).endswith(fits)
    assert copy_metadata(position, fits + "éé") == copy_metadata(position)


@pytest.mark.parametrize(
    "text", ["", "fairlead:alpha:1", "fairlead:alpha:1:", "fairlead:Alpha:1:1", "x fairlead:a:1:1"]
)
def test_other_metadata_is_no_mark(text: str) -> None:
    """Other metadata is not mistaken for that of a copy."""
    assert copied_position(Commit(1, text)) is None
    assert own_metadata(Commit(1, text)) == text


# ---- one decision


@given(commits, st.none() | commits, st.none() | bounds, seen, st.booleans())
def test_a_decision_is_safe_whatever_was_seen(
    source: Commit, target: Commit | None, log: ReplicaBounds | None, last: SeenCommit | None, active: bool
) -> None:
    """Whatever the state, a decision never moves a group unsafely."""
    state, write, behind, _ = rule(source, target, log, last, active=active)
    assert behind >= 0
    if write is None:
        return
    assert not active and log is not None and state in COPIED
    assert log.start <= write.offset <= log.end
    position = copied_position(write)
    assert position is not None and position.site != "beta"  # a copy never returns to its origin
    assert write != target
    there = copied_position(target) if target else None
    if target is not None and (there is None or there.site != position.site):
        assert write.offset > target.offset  # a commit of another client is never moved back
        assert last is None or last.source != (position.site, position.offset) or last.due
    if target is not None and there is not None and there.site == position.site:
        assert (position.stamp, position.offset) >= (there.stamp, there.offset)


@given(commits, st.none() | commits, bounds, seen, st.booleans())
def test_deciding_again_changes_nothing(
    source: Commit, target: Commit | None, log: ReplicaBounds, last: SeenCommit | None, active: bool
) -> None:
    """Deciding a second time changes nothing."""
    _, write, _, remembered = rule(source, target, log, last, active=active)
    after = write or target
    _, again, _, remembered = rule(source, after, log, remembered, active=active, now=60)
    assert again is None
    assert rule(source, after, log, remembered, active=active, now=70)[1] is None


@given(offsets, offsets, bounds, bounds)
def test_an_untouched_copy_follows_its_origin_everywhere(
    first: int, then: int, log: ReplicaBounds, later: ReplicaBounds
) -> None:
    """A copy that nobody has used follows its origin in all directions."""
    _, copy, _, last = rule(Commit(first), None, log)
    assert copy is not None
    state, moved, behind, _ = rule(Commit(then), copy, later, last)
    stands = moved or copy
    assert stands.offset == min(max(then, later.start), later.end)
    assert behind == max(0, then - stands.offset)
    assert (state is GroupLogState.FOLLOWING) == (stands.offset == then)


def test_a_reset_at_the_source_follows() -> None:
    """A reset at the source is copied."""
    _, copy, _, last = rule(Commit(100))
    _, back, _, _ = rule(Commit(10), copy, last=last)
    assert copy is not None and copy.offset == 100 and back is not None and back.offset == 10


def test_the_consumers_metadata_goes_along_and_no_mark_twice() -> None:
    """The consumer's metadata is copied too, and that of a copy occurs only once."""
    _, first, _, _ = rule(Commit(5, "app data"))
    assert first is not None and first.metadata == "fairlead:alpha:50:5 app data"
    relayed = Commit(5, copy_metadata(GroupPosition("gamma", 5, 3), "app data"))
    _, second, _, _ = rule(relayed)
    assert second is not None and second.metadata == "fairlead:gamma:3:5 app data"


def test_a_group_that_was_used_at_the_target_is_not_pulled_back() -> None:
    """A group that was used at the target is not moved back."""
    _, _, _, last = rule(Commit(100))
    state, write, _, last = rule(Commit(100), Commit(300), last=last)
    assert (state, write) == (GroupLogState.USED, None)
    state, write, _, _ = rule(Commit(120), Commit(300), last=last)  # one consumer still runs at the source
    assert (state, write) == (GroupLogState.USED, None)


def test_a_reset_at_the_target_holds_until_the_source_moves_on() -> None:
    """A reset at the target holds until the source commits again."""
    _, copy, _, last = rule(Commit(100))
    _, _, _, last = rule(Commit(100), copy, last=last)
    for _ in range(3):
        state, write, behind, last = rule(Commit(100), Commit(0), last=last)
        assert (state, write, behind) == (GroupLogState.USED, None, 100)
    _, write, _, _ = rule(Commit(101), Commit(0), last=last)
    assert write is not None and write.offset == 101


def test_what_is_found_at_the_first_look_counts_as_later() -> None:
    """A commit at the source that is found by the first pass counts as newer."""
    state, write, _, _ = rule(Commit(500), Commit(120))
    assert state is GroupLogState.FOLLOWING and write is not None and write.offset == 500


def test_members_at_the_target_are_left_alone_and_what_they_commit_is_later() -> None:
    """A group with members at the target is left alone, and their commits count as newer."""
    state, write, behind, last = rule(Commit(500), Commit(120), active=True)
    assert (state, write, behind) == (GroupLogState.ACTIVE, None, 380)
    state, write, _, last = rule(Commit(500), Commit(200), last=last)
    assert (state, write) == (GroupLogState.USED, None)
    _, write, _, _ = rule(Commit(501), Commit(200), last=last)
    assert write is not None and write.offset == 501


def test_what_the_source_had_when_members_came_is_not_brought_after_they_left() -> None:
    """The source's position at the time that members joined at the target is not copied after they left."""
    _, _, _, last = rule(Commit(500), Commit(120), active=True)
    assert rule(Commit(500), Commit(120), last=last)[:2] == (GroupLogState.USED, None)


def test_a_clamped_copy_of_another_site_counts_as_the_position_that_it_stands_for() -> None:
    """A copy cut to the end of the log counts as the position it stands for."""
    assert rule(Commit(90), Commit(80, copy_metadata(GroupPosition("gamma", 100, 3))))[:2] == (GroupLogState.USED, None)


def test_the_way_home_waits_for_the_log() -> None:
    """The offset is copied only as far as the log has arrived at the target."""
    state, write, _, last = rule(Commit(500), Commit(120), ReplicaBounds(0, 120))
    assert (state, write) == (GroupLogState.CLAMPED, None)
    state, write, behind, last = rule(Commit(500), Commit(120), ReplicaBounds(0, 200), last)
    assert state is GroupLogState.CLAMPED and write is not None and write.offset == 200 and behind == 300
    state, write, _, _ = rule(Commit(500), write, ReplicaBounds(0, 800), last)
    assert state is GroupLogState.FOLLOWING and write is not None and write.offset == 500


def test_exactly_at_the_end_is_plain_and_beyond_is_clamped() -> None:
    """An offset at the end of the log is copied as it is; one beyond the end is cut to the end."""
    assert rule(Commit(10), log=ReplicaBounds(0, 10))[0] is GroupLogState.FOLLOWING
    state, write, behind, _ = rule(Commit(11), log=ReplicaBounds(0, 10))
    assert state is GroupLogState.CLAMPED and write is not None and write.offset == 10 and behind == 1


def test_before_the_start_is_raised_so_that_no_consumer_resets_to_the_end() -> None:
    """An offset before the start is raised to the start, so that no consumer resets to the end."""
    state, write, behind, _ = rule(Commit(3), log=ReplicaBounds(7, 10))
    assert state is GroupLogState.RAISED and write is not None and write.offset == 7 and behind == 0


def test_a_clamped_copy_goes_on_as_the_position_that_it_stands_for() -> None:
    """A copy cut to the end of a log is passed on as the position it stands for."""
    clamped = Commit(80, copy_metadata(GroupPosition("gamma", 100, 3)))
    assert rule(clamped, Commit(100, copy_metadata(GroupPosition("gamma", 100, 3))))[1] is None
    _, write, _, _ = rule(clamped)
    assert write is not None and write.offset == 100


def test_a_copy_does_not_go_home_even_where_its_group_was_deleted() -> None:
    """A copy does not return to its origin even if the group was deleted there."""
    assert rule(Commit(100, copy_metadata(GroupPosition("beta", 100, 3))))[:2] == (GroupLogState.HOME, None)


def test_without_the_log_there_is_nothing_to_commit_to() -> None:
    """Where the log does not exist, nothing is committed."""
    assert rule(Commit(100), log=None)[:2] == (GroupLogState.ABSENT, None)


def test_a_clock_that_jumps_back_does_not_make_new_positions_old() -> None:
    """A clock that jumps back does not make new positions look old."""
    _, copy, _, last = rule(Commit(100), now=1000)
    _, write, _, _ = rule(Commit(50), copy, last=last, now=1)
    assert write is not None and copied_position(write) == GroupPosition("alpha", 50, 1001)


# ---- networks of links


@dataclass
class World:
    """Sites with one log of 40 records each, one group, and links that sync when the test says so."""

    links: list[tuple[str, str]]
    clock_skew: dict[str, int]
    committed: dict[str, Commit] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    last: dict[tuple[str, str], SeenCommit | None] = field(default_factory=dict)
    clock: int = 100

    def sync_once(self, link: tuple[str, str]) -> bool:
        """Sync once over a link; return whether anything was committed."""
        source, target = link
        self.clock += 1
        if source not in self.committed:
            return False
        before = self.committed.get(target)
        verdict = decide_commit(
            self.committed[source],
            before,
            ReplicaBounds(0, self.ends.get(target, 40)),
            self.last.get(link),
            link=link,
            origins=SITES,
            active=target in self.active,
            now_ms=max(0, self.clock + self.clock_skew[target]),
        )
        self.last[link] = verdict.seen
        if verdict.write is not None:
            self.committed[target] = verdict.write
        return verdict.write is not None

    def settle(self) -> None:
        """Sync over all links until nothing changes; fail if this never happens."""
        for _ in range(20):
            if not any([self.sync_once(link) for link in self.links]):
                return
        raise AssertionError(f"the links write for ever: {self.committed}")


SITES = ("alpha", "beta", "gamma", "delta")
PAIRS = tuple(itertools.permutations(SITES, 2))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    links = draw(st.lists(st.sampled_from(PAIRS), unique=True, min_size=1, max_size=12))
    skew = {site: draw(st.sampled_from((0, 0, -50, 50))) for site in SITES}
    return World(links, skew)


happenings = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from(SITES), offsets),
        st.tuples(st.just("delete"), st.sampled_from(SITES), offsets),
        st.tuples(st.just("end"), st.sampled_from(SITES), offsets),
        st.tuples(st.just("look"), st.integers(0, 11), offsets),
        st.tuples(st.just("restart"), st.integers(0, 11), offsets),
    ),
    max_size=25,
)


@given(worlds(), happenings)
def test_any_graph_of_links_comes_to_rest_whatever_happened(
    world: World, story: list[tuple[str, str | int, int]]
) -> None:
    """Any network of links comes to rest, whatever happened in it."""
    for what, where, offset in story:
        if isinstance(where, int):
            link = world.links[where % len(world.links)]
            if what == "look":
                world.sync_once(link)
            else:
                world.last.pop(link, None)
        elif what == "commit":
            world.committed[where] = Commit(offset)
        elif what == "delete":
            world.committed.pop(where, None)
        else:
            world.ends[where] = offset
    world.settle()
    for source, target in world.links:  # every offset that a link could copy is there
        assert target in world.committed or source not in world.committed or _is_home(world.committed[source], target)


def _is_home(commit: Commit, site: str) -> bool:
    position = copied_position(commit)
    return position is not None and position.site == site


@given(worlds(), st.lists(offsets, min_size=1, max_size=6))
def test_where_only_one_site_is_used_all_that_it_reaches_have_its_last_position(world: World, story: list[int]) -> None:
    """If the group is used at one site only, all sites that links reach from there get its last position."""
    for offset in story:  # both forwards and backwards
        world.committed["alpha"] = Commit(offset)
        world.settle()
    reached, found = {"alpha"}, {"alpha"}
    while found:
        found = {target for source, target in world.links if source in reached} - reached
        reached |= found
    assert {site: commit.offset for site, commit in world.committed.items()} == dict.fromkeys(reached, story[-1])


moves = st.lists(
    st.tuples(st.sampled_from(SITES), st.integers(0, 9), st.lists(st.integers(0, 11), max_size=8), st.booleans()),
    min_size=1,
    max_size=8,
)


@given(worlds(), moves)
def test_one_consumer_that_moves_about_never_misses_a_record(
    world: World, story: list[tuple[str, int, list[int], bool]]
) -> None:
    """A consumer that moves between sites never misses a record.

    It starts at the site's committed offset. Links sync at any time; the ends of all logs are far away.
    """
    world.ends = dict.fromkeys(SITES, 1000)
    furthest = 0
    for site, count, looks, settled in story:
        begin = world.committed[site].offset if site in world.committed else 0
        assert begin <= furthest
        world.active = {site}
        for index in looks:
            world.sync_once(world.links[index % len(world.links)])
        world.committed[site] = Commit(begin + count)
        furthest = max(furthest, begin + count)
        world.active = set()
        if settled:
            world.settle()


@given(st.lists(st.tuples(st.sampled_from(LINK), st.integers(1, 9), st.booleans()), min_size=1, max_size=8))
def test_between_two_sites_it_goes_on_exactly_where_it_was(story: list[tuple[str, int, bool]]) -> None:
    """Between two sites a consumer continues exactly where it was.

    This needs a sync since it stopped; the links may have restarted in between.
    """
    world = World([LINK, LINK[::-1]], {"alpha": 0, "beta": 7}, ends=dict.fromkeys(LINK, 1000))
    furthest = 0
    for site, count, restarted in story:
        begin = world.committed[site].offset if site in world.committed else 0
        assert begin == furthest
        world.active = {site}
        for link in world.links:
            world.sync_once(link)
        furthest = begin + count
        world.committed[site] = Commit(furthest)
        world.active = set()
        if restarted:
            world.last.clear()
        world.settle()


# ---- groups by name


def test_groups_are_selected_by_shell_patterns() -> None:
    """Groups are selected by shell patterns."""
    groups = ["billing-a", "billing-b", "Billing-c", "audit", "auditor"]
    assert select_groups(("billing-*", "audit"), groups) == ["audit", "billing-a", "billing-b"]
    assert select_groups((), groups) == []
    assert unmatched_patterns(("billing-*", "nobody", "shop.*"), groups) == ["nobody", "shop.*"]


def test_a_pattern_is_probed_by_a_name_that_its_prefix_permits() -> None:
    """Access for a pattern is tested with a name that begins with its prefix."""
    assert [probe_name(pattern) for pattern in ("billing-*", "audit", "a[bc]*")] == ["billing-", "audit", "a"]


def test_a_group_in_a_word() -> None:
    """A group's state is summarised in one word."""
    assert summarize_states([GroupLogState.FOLLOWING] * 3) == (True, "")
    assert summarize_states([GroupLogState.ACTIVE] * 2) == (False, REASON[GroupLogState.ACTIVE])
    copied, reason = summarize_states([GroupLogState.FOLLOWING, GroupLogState.USED, GroupLogState.FOLLOWING])
    assert copied and reason == f"1 of 3 logs: {REASON[GroupLogState.USED]}"
    assert summarize_states([]) == (False, "")
