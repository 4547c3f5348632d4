"""A group's coordinator that has just started: which errors of commits are retried; asking it for offsets is safe."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

from fairlead.errors import FairleadError
from fairlead.kafka.endpoint import KafkaEndpoint, KafkaLogin
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.kafka.tokens import MskRegion
from replication.groups import client as group_client
from replication.groups.client import GroupClient, Refusal
from replication.groups.rules import Commit
from tests.support.loading_coordinator import loading_coordinator
from tests.support.waits import PATIENCE

LOADING, FENCED = KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID
ONE, OTHER = TopicPartition("a", 0), TopicPartition("a", 1)


class Coordinator:
    """Answer each request with the next errors by partition, later ones with none; ``asked`` has the partitions."""

    def __init__(self, *answers: dict[int, int]) -> None:
        self.answers = list(answers)
        self.asked: list[list[int]] = []
        self.polled_in: set[bool] = set()  # whether in the main thread
        self.loads = 0  # how often it answers that it is not ready to be asked for offsets

    def alter_consumer_group_offsets(
        self, requests: list[ConsumerGroupTopicPartitions], *, request_timeout: float
    ) -> dict[str, Future[Any]]:
        (request,) = requests
        partitions = [each.partition for each in request.topic_partitions or ()]
        self.asked.append(partitions)
        errors = self.answers.pop(0) if self.answers else {}
        found = [
            SimpleNamespace(topic="a", partition=n, error=KafkaError(errors[n]) if n in errors else None)
            for n in partitions
        ]
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(topic_partitions=found))
        return {request.group_id: answer}

    def describe_consumer_groups(self, groups: list[str], *, request_timeout: float) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        if self.loads:
            answer.set_exception(KafkaException(KafkaError(LOADING)))
        else:
            answer.set_result(None)
        self.loads -= 1
        return dict.fromkeys(groups, answer)

    def list_consumer_group_offsets(
        self, requests: list[ConsumerGroupTopicPartitions], *, request_timeout: float
    ) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_result(
            SimpleNamespace(
                topic_partitions=[SimpleNamespace(topic="a", partition=0, offset=3, metadata="", error=None)]
            )
        )
        return {request.group_id: answer for request in requests}

    def poll(self, _: float) -> None:
        """Return nothing: there is nothing to deliver."""
        self.polled_in.add(threading.current_thread() is threading.main_thread())


def client(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, login: KafkaLogin | None = None) -> GroupClient:
    monkeypatch.setattr(group_client, "admin_client", lambda *_: coordinator)
    monkeypatch.setattr(group_client, "LOOK", 0.01)
    return GroupClient(KafkaEndpoint("tokyo", (("localhost", 1),), login=login or KafkaLogin()))


async def test_what_is_being_loaded_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions whose group is still being loaded are retried."""
    coordinator = Coordinator({0: LOADING, 1: LOADING}, {1: LOADING})
    commits = {ONE: Commit(3, ""), OTHER: Commit(4, "")}
    assert await client(coordinator, monkeypatch).commit("g", commits) == {}
    assert coordinator.asked == [[0, 1], [0, 1], [1]]


async def test_offsets_of_a_group_that_is_being_loaded_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator()
    coordinator.loads = 2
    assert await client(coordinator, monkeypatch).offsets("g") == {ONE: Commit(3, "")}
    monkeypatch.setattr(group_client, "TIMEOUT", 0.0)
    coordinator.loads = 1
    with pytest.raises(FairleadError):
        await client(coordinator, monkeypatch).offsets("g")


@pytest.mark.parametrize("tokens", [None, MskRegion("eu-west-1")])
async def test_who_signs_for_a_token_while_it_is_polled_holds_up_nothing_else(
    tokens: MskRegion | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = Coordinator()
    await client(coordinator, monkeypatch, KafkaLogin(tokens=tokens)).commit("g", {ONE: Commit(3, "")})
    assert coordinator.polled_in == {tokens is None}


async def test_what_is_refused_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused partitions are not retried."""
    coordinator = Coordinator({0: FENCED, 1: LOADING})
    refused = await client(coordinator, monkeypatch).commit("g", {ONE: Commit(3, ""), OTHER: Commit(4, "")})
    assert refused == {ONE: Refusal("UNKNOWN_MEMBER_ID", by_members=True)}
    assert coordinator.asked == [[0, 1], [1]]


async def test_a_coordinator_that_never_loads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that never finishes loading is an error."""
    monkeypatch.setattr(group_client, "TIMEOUT", 0.0)
    refused = await client(Coordinator({0: LOADING}), monkeypatch).commit("g", {ONE: Commit(3, "")})
    assert refused == {ONE: Refusal("COORDINATOR_LOAD_IN_PROGRESS", by_members=False)}


ROOT = Path(__file__).parents[4]
ASKS = """\
import asyncio, sys
from acl import probe
from acl.kafka import Client
from fairlead.errors import UnavailableError
from fairlead.kafka.endpoint import KafkaEndpoint
from replication.groups.client import GroupClient

endpoint = KafkaEndpoint(site="tokyo", bootstrap=(("127.0.0.1", int(sys.argv[2])),))
try:
    if sys.argv[1] == "replication":
        asyncio.run(GroupClient(endpoint).offsets("g"))
    else:
        with Client(endpoint) as client:
            probe.read_group_offsets(client, "g")
except UnavailableError as error:
    print(error.what)
"""


@pytest.mark.parametrize("asking", ["replication", "acl"])
def test_a_coordinator_that_is_not_ready_ends_no_process(asking: str) -> None:
    """librdkafka 2.16 dies where it asks such a coordinator for offsets (its issue 5040)."""
    with loading_coordinator() as port:
        command = [sys.executable, "-c", ASKS, asking, str(port)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)  # noqa: S603
    assert ran.returncode == 0, ran
    assert "tokyo" in ran.stdout
