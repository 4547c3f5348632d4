"""Judge whether settings of brokers and topics keep copies equal. Pure.

The rules cover only the settings that can differ on a Kafka that Fairlead did not start. docs/append-convention.md and
docs/foreign-clusters.md give the reason for each rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
REQUEST_BYTES: Final = 16 << 20  # room for a Produce of many logs that has one very large batch

Settings = Mapping[str, str | None]


class CheckedEnd(StrEnum):
    """An end of a link."""

    SOURCE = "source"
    TARGET = "target"


class Severity(StrEnum):
    """The severity of a finding."""

    BREAKS = "breaks-equality"  # copies can differ, or stop, because of it
    ADVICE = "advice"


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """One setting or right that should be changed.

    Args:
        subject: ``broker 1``, ``topic NAME``, ``12 topics, first NAME``, or ``user NAME``.
        setting: The Kafka setting, or the right that is missing or should not be there.
        change: The command or the step that fixes it.
    """

    end: CheckedEnd
    site: str
    subject: str
    setting: str
    found: str
    needed: str
    why: str
    severity: Severity
    change: str

    def as_json(self) -> dict[str, str]:
        return {name: str(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class CheckedTopic:
    """The topic of one log at one end of a link."""

    name: str
    settings: Settings
    replicas: int


def broker_findings(end: CheckedEnd, site: str, broker: int, settings: Settings) -> Iterator[ClusterFinding]:
    """Yield findings about one broker's settings; unknown settings are left out."""

    def found(name: str, needed: str, why: str, severity: Severity, *, dynamic: bool = False) -> ClusterFinding:
        how = f"kafka-configs.sh --alter --entity-type brokers --entity-default --add-config {name}={needed}"
        change = how if dynamic else f"{name}={needed} in server.properties of every broker, then restart"
        return ClusterFinding(end, site, f"broker {broker}", name, settings[name] or "", needed, why, severity, change)

    target = end is CheckedEnd.TARGET
    for name in ("producer.id.expiration.ms", "producer.id.expiration.check.interval.ms"):
        if target and _below(settings, name, MAX_INT):
            why = (
                "a broker that has forgotten the writer of a log accepts any batch once: a second replicator, or a "
                "repeated batch, could append it at another offset (misplaced)"
            )
            yield found(name, str(MAX_INT), why, Severity.BREAKS, dynamic=name == "producer.id.expiration.ms")
    if _is(settings, "unclean.leader.election.enable", "true"):
        why = "a new leader without the newest records discards them after they were copied"
        yield found("unclean.leader.election.enable", "false", why, Severity.BREAKS, dynamic=True)
    if target and "authorizer.class.name" in settings and not settings["authorizer.class.name"]:
        why = "every client can write to replicas, and one foreign record shifts all later offsets"
        needed = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        yield found("authorizer.class.name", needed, why, Severity.BREAKS)
    if target and _below(settings, "socket.request.max.bytes", REQUEST_BYTES):
        why = "one request carries appends to many logs; the broker would close the connection on it"
        yield found("socket.request.max.bytes", str(100 << 20), why, Severity.BREAKS)
    if _is(settings, "auto.create.topics.enable", "true"):
        why = "a client that asks for a log that does not exist yet creates it, with the broker's defaults"
        yield found("auto.create.topics.enable", "false", why, Severity.ADVICE)
    if target and _below(settings, "log.message.timestamp.after.max.ms", MAX_LONG):
        why = "topics that Fairlead did not create refuse records whose clock is ahead"
        yield found("log.message.timestamp.after.max.ms", str(MAX_LONG), why, Severity.ADVICE, dynamic=True)
    if target and _is_not(settings, "compression.type", "producer"):
        why = "the broker recompresses topics that Fairlead did not create: other bytes than at the source"
        yield found("compression.type", "producer", why, Severity.ADVICE, dynamic=True)
    if target and _is(settings, "delete.topic.enable", "false"):
        why = "fairlead link resolve --refill cannot delete and copy a damaged replica"
        yield found("delete.topic.enable", "true", why, Severity.ADVICE)


def source_findings(site: str, topic: CheckedTopic) -> Iterator[ClusterFinding]:
    """Yield findings about a log's settings at its source."""

    def found(name: str, needed: str, why: str, severity: Severity) -> ClusterFinding:
        return _of_topic(CheckedEnd.SOURCE, site, topic, name, needed, why, severity)

    settings = topic.settings
    if _is(settings, "unclean.leader.election.enable", "true"):
        why = "a new leader without the newest records discards them after they were copied (diverged)"
        yield found("unclean.leader.election.enable", "false", why, Severity.BREAKS)
    if topic.replicas > 1 and _below(settings, "min.insync.replicas", 2):
        why = "one broker alone acknowledges: if it fails, the source loses records that were copied already"
        yield found("min.insync.replicas", "2", why, Severity.BREAKS)
    kept = _number(settings, "retention.ms")
    if kept is not None and kept >= 0 and _has(settings, "cleanup.policy", "delete"):
        why = f"after an outage longer than {_days(kept)} the source has deleted records (behind-retention)"
        yield found("retention.ms", "longer than any outage", why, Severity.ADVICE)
    if _has(settings, "cleanup.policy", "compact"):
        why = "the target gets marked fillers for records that compaction removed; the others are equal"
        yield found("cleanup.policy", "delete, if every record counts", why, Severity.ADVICE)


def replica_findings(site: str, topic: CheckedTopic, source: CheckedTopic | None) -> Iterator[ClusterFinding]:
    """Yield findings about a replica's settings. ``source`` is the same log at the other end, if visible."""

    def found(name: str, needed: str, why: str, severity: Severity = Severity.BREAKS) -> ClusterFinding:
        return _of_topic(CheckedEnd.TARGET, site, topic, name, needed, why, severity)

    settings, theirs = topic.settings, source.settings if source else {}
    if _is_not(settings, "message.timestamp.type", "CreateTime"):
        yield found("message.timestamp.type", "CreateTime", "the broker would write its own time into every batch")
    if _is_not(settings, "compression.type", "producer"):
        yield found("compression.type", "producer", "the broker would recompress: other bytes than at the source")
    for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        if _below(settings, name, MAX_LONG):
            why = "the broker would refuse records of a wrong clock that the source accepted (quarantined)"
            yield found(name, str(MAX_LONG), why)
    largest = _number(theirs, "max.message.bytes")
    if largest is not None and _below(settings, "max.message.bytes", largest):
        yield found("max.message.bytes", str(largest), "the broker would refuse large batches (quarantined)")
    if largest is not None and _below(settings, "segment.bytes", largest):
        yield found("segment.bytes", str(largest), "a batch must fit into a segment; larger ones are refused")
    compacted = _has(settings, "cleanup.policy", "compact")
    if compacted and theirs and not _has(theirs, "cleanup.policy", "compact"):
        why = "this site would remove records that the source keeps, and refuse records without a key"
        yield found("cleanup.policy", theirs.get("cleanup.policy") or "delete", why)
    kept = _number(settings, "retention.ms")
    if kept is not None and kept >= 0 and not (compacted and not _has(settings, "cleanup.policy", "delete")):
        why = (
            "Kafka deletes by record time and may empty the log, which then forgets its writer; set the site's "
            "retention in the topology, and the replicator deletes without emptying the log"
        )
        yield found("retention.ms", "-1", why)
    if _is(settings, "unclean.leader.election.enable", "true"):
        why = "a new leader without the newest records discards acknowledged ones"
        yield found("unclean.leader.election.enable", "false", why)
    least = _number(settings, "min.insync.replicas")
    if least is not None and least > topic.replicas:
        yield found("min.insync.replicas", str(topic.replicas), "the broker can acknowledge no append (unavailable)")


def merge_findings(findings: Iterable[ClusterFinding]) -> tuple[ClusterFinding, ...]:
    """Merge equal findings of many topics or brokers; those that break equality come first."""
    alike: dict[ClusterFinding, list[str]] = {}
    for each in findings:
        kind, _, _ = each.subject.partition(" ")
        alike.setdefault(replace(each, subject=kind, change=each.change.replace(each.subject, kind)), []).append(
            each.subject
        )
    out = [replace(like, subject=_subjects(like.subject, subjects)) for like, subjects in alike.items()]
    order = list(Severity)
    return tuple(sorted(out, key=lambda each: order.index(each.severity)))


def _subjects(kind: str, subjects: Sequence[str]) -> str:
    if len(subjects) == 1:
        return subjects[0]
    return f"{len(subjects)} {kind}s, first {min(subjects).removeprefix(kind).strip()}"


def _of_topic(
    end: CheckedEnd, site: str, topic: CheckedTopic, name: str, needed: str, why: str, severity: Severity
) -> ClusterFinding:
    settable = needed.lstrip("-").isalnum()
    change = f"kafka-configs.sh --alter --entity-type topics --entity-name TOPIC --add-config {name}={needed}"
    return ClusterFinding(
        end,
        site,
        f"topic {topic.name}",
        name,
        topic.settings[name] or "",
        needed,
        why,
        severity,
        change if settable else f"set {name} of the topic",
    )


def _number(settings: Settings, name: str) -> int | None:
    try:
        return int(settings.get(name) or "")
    except ValueError:
        return None


def _below(settings: Settings, name: str, least: int) -> bool:
    value = _number(settings, name)
    return value is not None and value < least


def _is(settings: Settings, name: str, value: str) -> bool:
    return settings.get(name) == value


def _is_not(settings: Settings, name: str, value: str) -> bool:
    return settings.get(name) not in (None, value)


def _has(settings: Settings, name: str, word: str) -> bool:
    return word in (settings.get(name) or "").split(",")


def _days(ms: int) -> str:
    return f"{ms / 86_400_000:.3g} days"
