"""Records of ``ends.<site>``: the ends of the logs that a site has, so that others may delete what it keeps longer.

Only the site's replicator appends to ``ends.<site>``, under the append convention. See docs/replication-reference.md.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from fairlead.records.reading import Base, Count


class LogEnd(NamedTuple):
    """Where a site's copy of a log ends, and the term of its last batch; term 0 outside the append convention.

    ``end`` 0 takes earlier ends back: the site no longer has the log, or its copy is not the log any more.
    """

    end: Count
    term: Annotated[int, msgspec.Meta(ge=0, le=32767)]


class EndsEntry(Base, frozen=True, kw_only=True):
    """The ends of at most 1,000 logs that changed since the last entry, or a part of the list of all.

    Args:
        site: The site that confirms; the same as in the log's name.
        ends: By log: ``topic``, or ``topic/3`` for a partition other than 0.
        part: Number of this part of a list of all logs, from 1; 0 for changes only.
        parts: How many parts that list has.
    """

    site: str
    ends: dict[str, LogEnd]
    part: Count = 0
    parts: Count = 0
