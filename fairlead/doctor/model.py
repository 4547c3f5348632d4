"""What the doctor says: findings, and what is needed here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """How bad it is. Only ``FAILED`` means that something that is needed will not work."""

    OK = "ok"
    NOTE = "note"  # nothing is wrong, but somebody may want to know
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was examined: what was found, what is needed and why, and what to do (empty: nothing)."""

    name: str
    verdict: Verdict
    found: str
    needed: str
    why: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a topology will ask of this machine.

    Attributes:
        sites: Its sites on this machine.
        brokers: Kafka brokers of theirs, running or not.
        stopped: How many of these do not run yet.
        logs: Logs (topics of one partition) that each broker is to hold.
    """

    topology: str
    sites: tuple[str, ...]
    brokers: int
    stopped: int
    logs: int


def worst(findings: Iterable[Finding]) -> Verdict:
    """The worst verdict among them."""
    order = list(Verdict)
    return max((each.verdict for each in findings), key=order.index, default=Verdict.OK)


def as_data(needs: Needs, findings: Iterable[Finding]) -> dict[str, Any]:
    """JSON-ready."""
    found = list(findings)
    return {
        "topology": needs.topology,
        "needs": {"sites": list(needs.sites), "brokers": needs.brokers, "logs_per_broker": needs.logs},
        "verdict": str(worst(found)),
        "checks": [{**asdict(each), "verdict": str(each.verdict)} for each in found],
    }
