"""Decide which committed offsets of consumer groups are copied over a link. Pure functions.

Offsets are the same at both ends, so a group follows by copying numbers. A copy has a mark in its metadata: the site of
the position, its offset, and the time when it was first seen. Consumers and tools commit without the mark, so their
commits can be recognised. The rule, for one partition:

- An **untouched copy** follows its origin wherever that goes, backwards as well: a reset at the source follows.
- A commit of **another client at the target** is never moved back. Only a position replaces it that has a higher offset
  and was committed later, as far as the rounds show. Positions in the first round count as later, so that a group that
  was used at another site meanwhile can return.
- Nothing is written under a group with members, beyond the log's end, or before its start.
- A copy is passed on with its origin's mark, never back to its origin, and only if it is newer. Marks of one origin are
  ordered, so copying around a circle of links ends.
- A client that may commit at the source can write any mark. A mark is ignored if it names a site from which no group
  reaches the source, or a time in the future.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from topologies.model import Link, SiteKind, Topology

CLOCKS: Final = 300_000  # ms by which the clocks of two sites may differ
METADATA_LIMIT: Final = 4096  # bytes: Kafka's default for offset.metadata.max.bytes
_MARK: Final = re.compile(r"fairlead:([a-z][a-z0-9-]*):(\d{1,19}):(\d{1,19})(?: (.*))?", re.DOTALL)
_WILDCARD: Final = re.compile(r"[*?\[]")


class Commit(NamedTuple):
    """A committed offset as the group's coordinator has it."""

    offset: int
    metadata: str = ""


class ReplicaBounds(NamedTuple):
    """A log at the target: its first offset, and the one after its last."""

    start: int
    end: int


class GroupPosition(NamedTuple):
    """Position of the consumers at ``site``. ``stamp`` orders positions of one site: ms when first seen."""

    site: str
    offset: int
    stamp: int


class GroupLogState(StrEnum):
    """State of one partition of a group. The first three are copied."""

    FOLLOWING = "following"
    CLAMPED = "clamped"  # the replica ends before the source's offset
    RAISED = "raised"  # the replica begins after the source's offset
    ACTIVE = "active"
    USED = "used"
    HOME = "home"
    ABSENT = "absent"
    REFUSED = "refused"
    UNBELIEVED = "unbelieved"


COPIED: Final = frozenset({GroupLogState.FOLLOWING, GroupLogState.CLAMPED, GroupLogState.RAISED})

REASON: Final[dict[GroupLogState, str]] = {
    GroupLogState.FOLLOWING: "",
    GroupLogState.CLAMPED: "the replica ends before the source's offset; the commit follows as it grows",
    GroupLogState.RAISED: "the replica begins after the source's offset: the target lacks the records between",
    GroupLogState.ACTIVE: "the group has members at the target",
    GroupLogState.USED: "used at the target, and the source has no newer and larger offset",
    GroupLogState.HOME: "the source's offset is a copy of the target's own",
    GroupLogState.ABSENT: "the target does not have the log yet",
    GroupLogState.REFUSED: "the target refused the commit",
    GroupLogState.UNBELIEVED: "the source's offset has a mark from the future, or of a site that cannot have made it",
}


class SeenCommit(NamedTuple):
    """The result of the last round for one partition. ``due``: the source's position is later than the target's."""

    source: tuple[str, int]
    target: Commit | None
    due: bool


class CommitDecision(NamedTuple):
    """The decision about one partition.

    Args:
        write: The offset to commit at the target; None to commit nothing.
        behind: Records that consumers moved to the target would read again.
        seen: Passed to the next round; None if there is nothing to remember.
    """

    state: GroupLogState
    write: Commit | None
    behind: int
    seen: SeenCommit | None


def copy_metadata(position: GroupPosition, metadata: str = "") -> str:
    """Return the metadata of a copy: the mark, then the consumer's own ``metadata`` unless that is too long."""
    head = f"fairlead:{position.site}:{position.stamp}:{position.offset}"
    whole = f"{head} {metadata}" if metadata else head
    return whole if len(whole.encode()) <= METADATA_LIMIT else head


def copied_position(commit: Commit) -> GroupPosition | None:
    """Return the position that a commit is a copy of; None for a commit of a consumer or tool."""
    found = _MARK.fullmatch(commit.metadata)
    return GroupPosition(found[1], int(found[3]), int(found[2])) if found else None


def own_metadata(commit: Commit) -> str:
    """Return a commit's metadata without the mark."""
    found = _MARK.fullmatch(commit.metadata)
    return (found[4] or "") if found else commit.metadata


def decide_commit(
    source: Commit,
    target: Commit | None,
    bounds: ReplicaBounds | None,
    seen: SeenCommit | None,
    *,
    link: tuple[str, str],
    origins: Collection[str],
    active: bool,
    now_ms: int,
) -> CommitDecision:
    """Decide about one partition of one group.

    Args:
        source, target: What is committed at either end; ``target`` None for nothing.
        bounds: The log at the target; None if it is not there.
        seen: From the last round; None at the first.
        link: The names of source and target.
        origins: The sites whose positions the source may have (``origins_of``).
        active: Whether the group has members at the target.
        now_ms: Wall time, for a new position's stamp.
    """
    wanted = _wanted(source, target, link[0], now_ms)
    if wanted.site == link[1]:
        return CommitDecision(GroupLogState.HOME, None, 0, seen)
    if copied_position(source) is not None and (wanted.site not in origins or wanted.stamp > now_ms + CLOCKS):
        return CommitDecision(GroupLogState.UNBELIEVED, None, 0, seen)
    if bounds is None:
        return CommitDecision(GroupLogState.ABSENT, None, 0, seen)
    due = _due((wanted.site, wanted.offset), target, seen) and not active
    reach = min(max(wanted.offset, bounds.start), bounds.end)
    state, write = GroupLogState.ACTIVE, False
    if not active:
        state, write = _follow(wanted, reach, target, due, now_ms)
    commit = Commit(reach, copy_metadata(wanted, own_metadata(source))) if write else None
    reached = reach if write else bounds.start if target is None else target.offset
    next_seen = SeenCommit((wanted.site, wanted.offset), target, due)
    return CommitDecision(state, commit, max(0, wanted.offset - reached), next_seen)


def _wanted(source: Commit, target: Commit | None, at: str, now_ms: int) -> GroupPosition:
    """Return the position to copy: the one that the source's commit is a copy of, else the source's own.

    An own position that the target already has keeps its stamp; a new one gets a stamp above the target's, whatever the
    clocks show.
    """
    copy = copied_position(source)
    if copy is not None:
        return copy
    there = _known(target, now_ms)
    if there is None or there.site != at:
        return GroupPosition(at, source.offset, now_ms)
    stamp = there.stamp if there.offset == source.offset else max(now_ms, there.stamp + 1)
    return GroupPosition(at, source.offset, stamp)


def _due(source: tuple[str, int], target: Commit | None, seen: SeenCommit | None) -> bool:
    """Return whether the source's position counts as later than the target's."""
    if seen is None or seen.source != source:
        return True
    return seen.due and seen.target == target


def _known(target: Commit | None, now_ms: int) -> GroupPosition | None:
    """Return the position that the target's commit is a copy of; one with a future time counts as oldest."""
    there = copied_position(target) if target is not None else None
    return there if there is None or there.stamp <= now_ms + CLOCKS else there._replace(stamp=0)


def _follow(
    wanted: GroupPosition, reach: int, target: Commit | None, due: bool, now_ms: int
) -> tuple[GroupLogState, bool]:
    """Return the state, and whether to write ``reach``, for a group without members at the target."""
    state = _reached(wanted, reach)
    if target is None:
        return state, True
    there = _known(target, now_ms)
    if there is not None and there.site == wanted.site:
        newer, known = (wanted.stamp, wanted.offset), (there.stamp, there.offset)
        if newer < known:
            return GroupLogState.FOLLOWING, False  # the target has a newer position of that origin, over another link
        return state, newer != known or reach != target.offset
    used = max(target.offset, there.offset if there else 0)
    if not due or wanted.offset <= used:
        return GroupLogState.USED, False
    return state, reach > target.offset


def _reached(wanted: GroupPosition, reach: int) -> GroupLogState:
    if reach < wanted.offset:
        return GroupLogState.CLAMPED
    return GroupLogState.RAISED if reach > wanted.offset else GroupLogState.FOLLOWING


# ---- groups


def select_groups(patterns: Iterable[str], groups: Iterable[str]) -> list[str]:
    """Return the groups that any of the shell-style patterns names, sorted."""
    patterns = tuple(patterns)
    return sorted(group for group in groups if any(fnmatch.fnmatchcase(group, pattern) for pattern in patterns))


def unmatched_patterns(patterns: Iterable[str], groups: Collection[str]) -> list[str]:
    """Return the patterns that name none of the groups."""
    return [pattern for pattern in patterns if not select_groups((pattern,), groups)]


def origins_of(topology: Topology, link: Link) -> frozenset[str]:
    """Return the sites whose positions the source of a link may have: itself, and those that links with groups copy to
    it. A ship passes on neither positions nor records of others."""
    ships = {name for name, site in topology.sites.items() if site.kind is SiteKind.SHIP}
    found, new = {link.from_}, {link.from_} - ships
    while new:
        new = {each.from_ for each in topology.directed_links() if each.groups and each.to in new} - found
        found |= new
        new -= ships
    return frozenset(found)


def probe_name(pattern: str) -> str:
    """Return a group name that is permitted if the pattern is.

    Without rights a cluster lists no groups and returns no error. A request for this name shows whether rights are
    missing.
    """
    wildcard = _WILDCARD.search(pattern)
    return pattern[: wildcard.start()] if wildcard else pattern


def summarize_states(states: Iterable[GroupLogState]) -> tuple[bool, str]:
    """Return whether anything of a group is copied, and which of its logs have special states."""
    counts = Counter(states)
    special = [state for state in GroupLogState if counts[state] and REASON[state]]
    if len(counts) == 1:
        return bool(COPIED & counts.keys()), "".join(REASON[state] for state in special)
    reasons = (f"{counts[state]} of {counts.total()} logs: {REASON[state]}" for state in special)
    return bool(COPIED & counts.keys()), "; ".join(reasons)
