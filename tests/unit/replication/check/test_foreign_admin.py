"""How the check of a link reads the answers of confluent-kafka's admin client; no broker."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from fairlead.kafka.endpoint import KafkaEndpoint
from replication.check import ask as foreign_admin
from replication.check.ask import RIGHTS, broker_settings, foreign_writers, missing_rights
from replication.check.rules import CheckedEnd, Severity
from topologies.model import Topology

ENDPOINT = KafkaEndpoint("east", (("localhost", 9092),), user="replicator")
TOPOLOGY = Topology.model_validate(
    {
        "name": "w",
        "sites": {name: {"kind": "port", "unlocode": f"DEX{name[:2].upper()}"} for name in ("west", "east")},
        "streams": {"orders": {}},
        "links": [{"from": "west", "to": "east", "streams": {"orders": "all"}}],
    }
)


class Client:
    """An admin client that raises an error answer when its future's result is read."""

    def __init__(self) -> None:
        self.rules: list[AclBinding] | KafkaException = []
        self.rights: dict[str, Collection[AclOperation] | KafkaException | None] = {}
        self.settings: dict[str, str] | KafkaException = {}
        self.asked = 0

    def describe_acls(self, _: object, **__: Any) -> Future[Any]:
        return self._future(self.rules)

    def describe_topics(self, _: object, **__: Any) -> dict[str, Future[Any]]:
        return {
            name: self._future(
                each if isinstance(each, KafkaException) else SimpleNamespace(authorized_operations=each)
            )
            for name, each in self.rights.items()
        }

    def describe_cluster(self, **_: Any) -> Future[Any]:
        return self._future(SimpleNamespace(nodes=[SimpleNamespace(id=1)]))

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        settings = self.settings
        if not isinstance(settings, KafkaException):
            return {resources[0]: self._future({name: SimpleNamespace(value=v) for name, v in settings.items()})}
        return {resources[0]: self._future(settings)}

    def _future(self, answer: object) -> Future[Any]:
        self.asked += 1
        future: Future[Any] = Future()
        if isinstance(answer, KafkaException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(foreign_admin, "require_answer", lambda endpoint: made)
    return made


def refused(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def rule(
    principal: str,
    name: str = "orders.a",
    *,
    operation: AclOperation = AclOperation.WRITE,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, pattern, principal, "*", operation, permission)


@pytest.mark.parametrize(
    "asks",
    [
        lambda: foreign_writers(TOPOLOGY, ENDPOINT, ["orders.a"]),
        lambda: missing_rights(CheckedEnd.TARGET, ENDPOINT, ["orders.a"]),
        lambda: broker_settings(CheckedEnd.TARGET, ENDPOINT),
    ],
    ids=["writers", "rights", "settings"],
)
def test_the_cluster_is_asked_before_the_call_returns(asks: Callable[[], object], client: Client) -> None:
    """The check makes all requests before it returns.

    The requests block, so they run in a thread; whoever reads the findings must not have to make another one.
    """
    client.rights = {"orders.a": None}
    asks()
    assert client.asked > 0


def test_only_services_and_the_replicator_may_write(client: Client) -> None:
    """Write access of Fairlead's services and the replicator is no finding."""
    client.rules = [rule("User:replicator"), rule("User:bridge", "*"), rule("User:ann", operation=AclOperation.READ)]
    assert foreign_writers(TOPOLOGY, ENDPOINT, ["orders.a"]) == []


@pytest.mark.parametrize(
    ("found", "subject"),
    [
        (rule("User:ann"), "topic orders.a"),
        (rule("User:ann", "*"), "2 topics, first orders.a"),
        (rule("User:ann", "orders.", pattern=ResourcePatternType.PREFIXED), "2 topics, first orders.a"),
        (rule("User:ann", operation=AclOperation.ALL), "topic orders.a"),
    ],
)
def test_another_writer_is_found(found: AclBinding, subject: str, client: Client) -> None:
    """Another user with write access is a finding."""
    client.rules = [found]
    (finding,) = foreign_writers(TOPOLOGY, ENDPOINT, ["orders.a", "orders.b"])
    assert finding.subject == subject
    assert finding.severity is Severity.BREAKS
    assert "--allow-principal User:ann" in finding.change


@pytest.mark.parametrize(
    "harmless",
    [rule("User:ann", "elsewhere"), rule("User:ann", permission=AclPermissionType.DENY)],
    ids=["another topic", "a denial"],
)
def test_a_rule_that_lets_nobody_write_here_is_none(harmless: AclBinding, client: Client) -> None:
    """An ACL that gives nobody write access is no finding."""
    client.rules = [harmless]
    assert foreign_writers(TOPOLOGY, ENDPOINT, ["orders.a"]) == []


def test_a_cluster_without_an_authorizer(client: Client) -> None:
    """A cluster without an authorizer is a finding."""
    client.rules = refused(KafkaError.SECURITY_DISABLED)
    (finding,) = foreign_writers(TOPOLOGY, ENDPOINT, ["orders.a"])
    assert finding.setting == "authorizer.class.name"
    assert finding.severity is Severity.BREAKS


def test_what_may_not_be_seen_is_advice(client: Client) -> None:
    """Facts that the user may not read become advice."""
    client.rules = client.settings = refused(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    found = [*foreign_writers(TOPOLOGY, ENDPOINT, ["orders.a"]), *broker_settings(CheckedEnd.TARGET, ENDPOINT)]
    assert [each.severity for each in found] == [Severity.ADVICE, Severity.ADVICE]
    assert [each.subject for each in found] == ["access rules", "settings of brokers"]


def test_rights_that_are_there_are_no_finding(client: Client) -> None:
    """Sufficient access is no finding."""
    client.rights = {"orders.a": RIGHTS[CheckedEnd.TARGET], "orders.b": None}  # the cluster reports none for b
    assert missing_rights(CheckedEnd.TARGET, ENDPOINT, ["orders.a", "orders.b"]) == []
    assert missing_rights(CheckedEnd.TARGET, ENDPOINT, []) == []


def test_rights_that_lack_are_named(client: Client) -> None:
    """Missing access is reported by topic and operation."""
    client.rights = {
        "orders.a": [AclOperation.READ],
        "orders.b": refused(KafkaError.TOPIC_AUTHORIZATION_FAILED),
    }
    found = missing_rights(CheckedEnd.SOURCE, ENDPOINT, ["orders.a", "orders.b"])
    assert [(each.subject, each.setting) for each in found] == [
        ("topic orders.a", "DESCRIBE_CONFIGS of User:replicator"),
        ("topic orders.b", "DESCRIBE of User:replicator"),
    ]
