"""Consumer groups of one cluster through confluent-kafka: list them, read and commit their offsets. Only making
a client blocks.

Rights (each tested alone on Kafka 4.3): DESCRIBE on the group and the topics to list a group and read its offsets; READ
on both to commit. A cluster leaves out what may not be described, without an error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
)
from confluent_kafka import TopicPartition as ClientPartition

from fairlead.errors import FairleadError, RefusedError
from fairlead.kafka.admin import ClientErrors, admin_client, ask_coordinator, explain, kafka_error
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TopicPartition
from replication.groups.rules import Commit

T = TypeVar("T")
TIMEOUT: Final = 10.0  # seconds for a request
DOWN: Final = 1.0  # seconds after which a request ends when no broker can be reached
LOOK: Final = 0.25
COUNT_EVERY: Final = 1.0  # seconds
COMMITS_AT_ONCE: Final = 1000  # a coordinator stores a request as one batch, which has to fit its topic
_IDLE: Final = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
_HAS_MEMBERS: Final = frozenset(
    {
        "UNKNOWN_MEMBER_ID",
        "ILLEGAL_GENERATION",
        "REBALANCE_IN_PROGRESS",
        "STALE_MEMBER_EPOCH",
        "FENCED_MEMBER_EPOCH",
        "FENCED_INSTANCE_ID",
    }
)
_LOADING: Final = frozenset({"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"})


class Groups(NamedTuple):
    """A cluster's groups: name to whether it has members; and errors that kept it from listing all."""

    active: dict[str, bool]
    errors: tuple[str, ...]


class Refusal(NamedTuple):
    """The refusal of a commit: the protocol's name of the error, and whether members of the group caused it."""

    name: str
    by_members: bool


class _Traffic(msgspec.Struct):
    """Bytes that a client has sent and received, from its statistics."""

    tx_bytes: int
    rx_bytes: int


_traffic: Final = msgspec.json.Decoder(_Traffic).decode


class _Meter:
    """Reports bytes sent and received since its last report. Not part of ``GroupClient``, to avoid a reference cycle
    (``ClientErrors``)."""

    def __init__(self, on_bytes: Callable[[int], object]) -> None:
        self._on_bytes = on_bytes
        self._counted = 0

    def on_stats(self, statistics: str) -> None:
        """Return the client's ``stats_cb``."""
        found = _traffic(statistics)
        total = found.tx_bytes + found.rx_bytes
        if total > self._counted:
            self._on_bytes(total - self._counted)
            self._counted = total


class GroupClient:
    """One cluster's groups as one user sees them. Connects when it is used; a new one sees new passwords.

    Make it in a thread: it may first ask for a token, or which password is in force.

    Args:
        on_bytes: Called with the bytes sent and received, about every second during requests and at ``flush_counts``;
            in any thread.
    """

    def __init__(self, endpoint: KafkaEndpoint, *, on_bytes: Callable[[int], object] | None = None) -> None:
        self.endpoint = endpoint
        self._on_bytes = on_bytes
        self._client_errors = ClientErrors()
        settings: dict[str, Any] = {"error_cb": self._client_errors.on_error, "reconnect.backoff.max.ms": 1000}
        if on_bytes is not None:
            settings |= {"stats_cb": _Meter(on_bytes).on_stats, "statistics.interval.ms": int(COUNT_EVERY * 1000)}
        self._admin = admin_client(endpoint, settings)

    async def groups(self) -> Groups:
        """Return all groups that the user may see.

        Raises:
            UnavailableError: the cluster does not answer. RefusedError: it refused the login, or a right is missing.
            FairleadError: any other answer.
        """
        listed = await self._wait(self._admin.list_consumer_groups(request_timeout=TIMEOUT), "list groups")
        # States unknown to this client (assigning, reconciling) are those of groups with members.
        active = {str(each.group_id): each.state not in _IDLE for each in listed.valid or ()}
        return Groups(active, tuple(sorted({kafka_error(error).name() for error in listed.errors or ()})))

    async def offsets(self, group: str) -> dict[TopicPartition, Commit]:
        """Return the offsets that a group has committed in topics that the user may see; empty for an unknown group.

        A coordinator that is still loading its groups is asked again for up to ``TIMEOUT`` seconds.

        Raises:
            FairleadError: see ``groups``.
        """
        end = time.monotonic() + TIMEOUT
        while True:
            try:
                return await self._offsets(group)
            except FairleadError as error:
                if error.fields.get("code") not in _LOADING or time.monotonic() >= end:
                    raise
            await asyncio.sleep(LOOK)

    async def _offsets(self, group: str) -> dict[TopicPartition, Commit]:
        doing = f"read the offsets of group {group}"
        await self._wait(ask_coordinator(self._admin, group, TIMEOUT), doing)
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=TIMEOUT)
        answer = await self._wait(asked[group], doing)
        return {
            TopicPartition(each.topic, each.partition): Commit(each.offset, each.metadata or "")
            for each in answer.topic_partitions or ()
            if each.error is None and each.offset >= 0  # negative: nothing committed
        }

    async def commit(self, group: str, commits: Mapping[TopicPartition, Commit]) -> dict[TopicPartition, Refusal]:
        """Commit for a group without members; return the refused partitions.

        Commits have no leader epoch: epochs differ between clusters, and a consumer would wait for an unknown one. A
        coordinator that is still loading its groups is asked again for up to ``TIMEOUT`` seconds.

        Raises:
            As ``groups``; commits of earlier requests stay.
        """
        refused: dict[TopicPartition, Refusal] = {}
        wanted = [ClientPartition(tp.topic, tp.partition, *commit) for tp, commit in commits.items()]
        for first in range(0, len(wanted), COMMITS_AT_ONCE):
            left, end = wanted[first : first + COMMITS_AT_ONCE], time.monotonic() + TIMEOUT
            while left:
                errors = await self._commit(group, left)
                loading = {tp for tp, name in errors.items() if name in _LOADING} if time.monotonic() < end else set()
                refused |= {tp: Refusal(name, name in _HAS_MEMBERS) for tp, name in errors.items() if tp not in loading}
                left = [each for each in left if TopicPartition(each.topic, each.partition) in loading]
                if left:
                    await asyncio.sleep(LOOK)
        return refused

    async def _commit(self, group: str, some: list[ClientPartition]) -> dict[TopicPartition, str]:
        """Send one request; return the names of the errors."""
        request = ConsumerGroupTopicPartitions(group, some)
        asked = self._admin.alter_consumer_group_offsets([request], request_timeout=TIMEOUT)
        answer = await self._wait(asked[group], f"commit offsets of group {group}")
        return {
            TopicPartition(each.topic, each.partition): each.error.name()
            for each in answer.topic_partitions or ()
            if each.error is not None
        }

    async def flush_counts(self) -> None:
        """Report all bytes up to now; waits for the next statistics."""
        if self._on_bytes is not None:
            await asyncio.sleep(COUNT_EVERY + LOOK)
            await self._poll()

    async def _poll(self) -> None:
        """Deliver troubles and counts."""
        if self.endpoint.login.tokens is None:
            self._admin.poll(0)
        else:  # this may also get a token, from a service that may be away
            await asyncio.to_thread(self._admin.poll, 0)

    async def _wait(self, future: Future[T], doing: str) -> T:
        """Wait for a request's answer; give up early if the login is refused or no broker can be reached, which the
        client itself would retry until its timeout."""
        answer, began = asyncio.wrap_future(future), time.monotonic()
        try:
            while not answer.done():
                await asyncio.wait({answer}, timeout=LOOK)
                await self._poll()
                down = self._client_errors.down is not None and time.monotonic() - began > DOWN
                if self._client_errors.refused is not None or down:
                    break
            if not answer.done():
                raise KafkaException(self._client_errors.refused or self._client_errors.down)
            result = answer.result()
        except KafkaException as error:
            raise self._translate(error, doing) from None
        finally:
            answer.cancel()
        self._client_errors.down = None
        return result

    def _translate(self, error: KafkaException, doing: str) -> FairleadError:
        name = kafka_error(error).name()
        if not name.endswith("AUTHORIZATION_FAILED"):
            return explain(error, self.endpoint, doing)
        return RefusedError(
            f"{self.endpoint.site}'s Kafka did not let {self.endpoint.user} {doing}: {name}",
            hint="grant its rights from the topology: fairlead acl apply",
            site=self.endpoint.site,
            user=self.endpoint.user,
            code=name,
        )
