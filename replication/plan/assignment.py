"""Decide which logs a target follows over which of its links. Pure functions.

Urgent classes are followed over every open link that carries them; the first copy is used and the others are dropped.
An exception is a link with a rate if there is another link, and its source neither holds the log nor has more:
otherwise the ledger would return over the satellite that it was sent over. Other classes are followed over one link at
a time: the holder's if it is open, else one whose source has more than the target. So a full mesh does not carry every
byte once per neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from fairlead.kafka.protocol.types import TopicPartition


@dataclass(frozen=True, slots=True)
class LinkSource:
    """One open link that carries a log. ``end`` is the source's last known log end, None if unknown."""

    link: str
    site: str
    end: int | None = None
    slow: bool = False  # the link has a rate


def choose_links(
    sources: Sequence[LinkSource],
    *,
    every: bool,
    current: Collection[str],
    holder: str | None,
    end: int,
) -> frozenset[str]:
    """Return the links over which to follow one log.

    Args:
        sources: Open links that carry it, without those on which it is stopped.
        every: Whether it is followed over all of them.
        current: Links over which it is followed now.
        holder: The site that appends to it, if known.
        end: The target's log end.
    """
    if len(sources) < 2:
        return frozenset(source.link for source in sources)
    if every:
        worth = [each for each in sources if not each.slow or each.site == holder or (each.end or 0) > end]
        return frozenset(source.link for source in worth or sources)

    def behind(source: LinkSource) -> bool:
        return source.end is not None and source.end < end

    def more(source: LinkSource) -> int:
        return source.end if source.end is not None else -1

    direct = [source for source in sources if source.site == holder and not behind(source)]
    if direct:
        return frozenset({min(direct, key=lambda source: (source.slow, source.link)).link})
    ahead = [source for source in sources if more(source) > end]
    kept = [source for source in sources if source.link in current]
    if kept and (kept[0].end is None or more(kept[0]) > end or not ahead):
        return frozenset({kept[0].link})
    best = min(ahead or list(sources), key=lambda source: (-more(source), source.slow, source.link))
    return frozenset({best.link})


def to_survey(
    followed: Mapping[TopicPartition, Collection[str]],
    carried: Mapping[str, Mapping[TopicPartition, str]],
    holder: Callable[[TopicPartition], str | None],
) -> dict[str, list[TopicPartition]]:
    """Return per link the logs whose ends at that source must be asked for, because they are followed elsewhere.

    A log that is followed at its holder needs no survey, because no site has more.

    Args:
        followed: Links over which each log is followed now.
        carried: Per link, the logs it carries and the source's site.
    """
    asked: dict[str, list[TopicPartition]] = {}
    for link, logs in carried.items():
        for tp in logs:
            over = followed.get(tp, ())
            if link in over:
                continue
            at = holder(tp)
            if at is not None and any(carried.get(other, {}).get(tp) == at for other in over):
                continue
            asked.setdefault(link, []).append(tp)
    return asked
