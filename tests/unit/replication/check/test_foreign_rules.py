"""Which topic and broker settings would make copies differ, tested without a broker."""

from __future__ import annotations

import pytest

from fairlead.kafka.admin import LOG_DEFAULTS
from replication.check.rules import (
    CheckedEnd,
    CheckedTopic,
    Severity,
    broker_findings,
    merge_findings,
    replica_findings,
    source_findings,
)

GOOD = {
    **LOG_DEFAULTS,
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
    "segment.bytes": "16777216",
}


def test_a_log_as_fairlead_makes_it_is_fine_at_both_ends() -> None:
    """A topic created by Fairlead has no finding at either end."""
    topic = CheckedTopic("s.a", GOOD, 1)
    assert list(replica_findings("beta", topic, topic)) == []
    assert list(source_findings("alpha", topic)) == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("message.timestamp.type", "LogAppendTime"),
        ("compression.type", "zstd"),
        ("message.timestamp.after.max.ms", "3600000"),
        ("message.timestamp.before.max.ms", "0"),
        ("max.message.bytes", "1000"),
        ("segment.bytes", "1000"),
        ("cleanup.policy", "compact"),
        ("retention.ms", "0"),
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "2"),
    ],
)
def test_one_bad_setting_of_a_replica_is_one_finding(setting: str, value: str) -> None:
    """One bad setting of a replica is one finding."""
    (found,) = replica_findings("beta", CheckedTopic("s.a", {**GOOD, setting: value}, 1), CheckedTopic("s.a", GOOD, 1))
    assert (found.setting, found.found, found.severity) == (setting, value, Severity.BREAKS)
    assert setting in found.change
    assert found.subject == "topic s.a"


def test_what_the_source_has_too_is_no_difference() -> None:
    """A setting that the source has too is no difference."""
    compacted = CheckedTopic("s.a", {**GOOD, "cleanup.policy": "compact", "retention.ms": "604800000"}, 3)
    assert list(replica_findings("beta", compacted, compacted)) == []  # no retention without delete
    large = {**GOOD, "max.message.bytes": "9000000"}
    assert list(replica_findings("beta", CheckedTopic("s.a", large, 1), CheckedTopic("s.a", large, 1))) == []


def test_settings_that_are_not_told_are_not_judged() -> None:
    """Settings that the broker does not report are not judged."""
    assert list(replica_findings("beta", CheckedTopic("s.a", {}, 1), None)) == []
    assert list(broker_findings(CheckedEnd.TARGET, "beta", 1, {})) == []
    assert list(broker_findings(CheckedEnd.TARGET, "beta", 1, {"producer.id.expiration.ms": None})) == []


def test_one_in_sync_replica_of_three_is_a_risk_at_the_source_only() -> None:
    """``min.insync.replicas`` of one with three replicas is a risk at the source only."""
    topic = CheckedTopic("s.a", GOOD, 3)
    assert [each.setting for each in source_findings("alpha", topic)] == ["min.insync.replicas"]
    assert list(replica_findings("beta", topic, topic)) == []


def test_a_broker_without_authorizer_is_open_to_everybody() -> None:
    """A broker without an authorizer lets everybody write, which is a finding."""
    (found,) = broker_findings(CheckedEnd.TARGET, "beta", 1, {"authorizer.class.name": ""})
    assert found.severity is Severity.BREAKS
    assert list(broker_findings(CheckedEnd.SOURCE, "alpha", 1, {"authorizer.class.name": ""})) == []


def test_many_topics_and_brokers_with_one_fault_are_one_finding_and_the_worst_come_first() -> None:
    """The same fault at many topics or brokers is one finding; the worst findings come first."""
    bad = {**GOOD, "compression.type": "zstd"}
    topics = [each for n in range(12) for each in replica_findings("beta", CheckedTopic(f"s.{n:02}", bad, 1), None)]
    brokers = [
        each
        for n in (1, 2)
        for each in broker_findings(CheckedEnd.TARGET, "beta", n, {"auto.create.topics.enable": "true"})
    ]
    first, second = merge_findings([*brokers, *topics])
    assert (first.subject, first.severity) == ("12 topics, first s.00", Severity.BREAKS)
    assert (second.subject, second.severity) == ("2 brokers, first 1", Severity.ADVICE)
    assert first.as_json()["severity"] == "breaks-equality"
