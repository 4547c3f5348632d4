"""When a verb would be unsafe: one reason per log, each with what to do instead. Pure.

A log may be written at one site only. So a log whose writer follows from its name, or moves by custody, is never
released here; and a promotion must lose nothing, so everything that could hide records refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fairlead.errors import RefusedError
from replication.verbs.facts import End, Facts
from replication.verbs.plan import Verb
from replication.verbs.status import Status


class Reason(NamedTuple):
    """Why, and what to do instead. ``log`` is empty when it is not about one log."""

    log: str
    why: str
    hint: str


def refuse(verb: Verb, reasons: Sequence[Reason]) -> RefusedError:
    """One error for all reasons: the first one in words, all of them in ``fields["refused"]``."""
    first = reasons[0]
    what = f"cannot {verb} {first.log}: {first.why}" if first.log else f"cannot {verb}: {first.why}"
    others = len({reason.log for reason in reasons[1:] if reason.log} - {first.log})
    more = f" (and {others} more logs)" if others else ""
    listed: list[dict[str, Any]] = [reason._asdict() for reason in reasons]
    return RefusedError(what + more, hint=first.hint, verb=str(verb), refused=listed)


def may_be_released(facts: Facts, topic: str) -> Iterator[Reason]:
    """Whether a log is one that people may move from site to site at all."""
    known = facts.catalog.facts(topic)
    link = facts.link
    if known is None or not facts.catalog.takes(link, topic):
        carrying = [each.name for each in facts.topology.directed_links() if facts.catalog.takes(each, topic)]
        others = ", ".join(carrying) or "none"
        yield Reason(topic, f"link {link.name} does not carry it", f"links that carry it: {others}")
        return
    if known.moves:
        yield Reason(
            topic,
            "it is a container's log, which moves with the container, by custody",
            "fairlead custody grant, or seize when its holder is lost (these commands come with a later version)",
        )
    elif known.fixed_holder is not None:
        yield Reason(
            topic,
            f"by its name it is written at {known.fixed_holder}, and at no other site ever",
            "write to a log of your own site instead, or give the stream keys that do not begin with a site or ship",
        )


def nothing_lost(facts: Facts, topic: str) -> Iterator[Reason]:
    """Whether everything that the source has of a log is here."""
    source, target = facts.source.partitions(topic), facts.target.partitions(topic)
    if not source:
        yield Reason(
            topic, f"{facts.source.site} has no such log", f"fairlead link failover, if {facts.target.site} has"
        )
        return
    lag = {tp: end - target.get(tp, 0) for tp, end in source.items() if end != target.get(tp)}
    if any(tp not in source for tp in target):
        yield Reason(topic, f"{facts.source.site} has fewer partitions of it than {facts.target.site}", _COMPARE)
    elif any(records < 0 for records in lag.values()):
        tp, records = next((tp, records) for tp, records in lag.items() if records < 0)
        yield Reason(
            topic, f"{facts.target.site} has {-records} records more of {tp} than {facts.source.site}", _COMPARE
        )
    elif lag:
        where = ", ".join(f"{tp} by {records}" for tp, records in list(lag.items())[:3])
        yield Reason(
            topic,
            f"{facts.target.site} is behind {facts.source.site}: {where} records",
            "stop its writers, wait for lag 0 (fairlead link list), and try again; or failover, which loses the rest",
        )


def not_ahead(facts: Facts, topic: str) -> Iterator[Reason]:
    """Whether the source has nothing of a log that the target, where it is written now, has not."""
    target = facts.target.partitions(topic)
    for tp, end in facts.source.partitions(topic).items():
        if end > target.get(tp, 0):
            more = end - target.get(tp, 0)
            yield Reason(
                topic, f"{facts.source.site} has {more} records more of {tp} than {facts.target.site}", _COMPARE
            )
            return


def in_order(status: Status | None, topic: str) -> Iterator[Reason]:
    """Whether a log is free of trouble at the site of a replicator."""
    for log, trouble in (status.troubles() if status else {}).items():
        if log.partition("/")[0] == topic:
            yield Reason(
                topic,
                f"it is {trouble['state']} at {status.site if status else ''}: {trouble['cause']}",
                f"fairlead link resolve {log} --at {status.site if status else ''}",
            )


def reachable(end: End, verb: Verb) -> Iterator[Reason]:
    """Whether the other end could be asked."""
    if end.error is not None:
        instead = "; fairlead link failover does without it" if verb is Verb.PROMOTE else ""
        yield Reason("", f"{end.site} cannot be reached ({end.error})", f"start it, or mend the network{instead}")


def running(status: Status | None, site: str, verb: Verb) -> Iterator[Reason]:
    """Whether a site's replicator is there to let go of a log, or to follow it."""
    if status is None or not status.running:
        instead = ", or fairlead link failover" if verb is Verb.PROMOTE else ""
        yield Reason(
            "",
            f"no replicator of {site} runs on this machine",
            f"fairlead replicate --at {site}, or give the order where it runs{instead}",
        )


_COMPARE = "compare the two with fairlead audit; fairlead link resolve keeps both versions"
