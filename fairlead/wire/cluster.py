"""One Kafka cluster seen by one user: the requests that the data plane needs. ``routing`` finds the leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final

from fairlead.endpoint import Endpoint
from fairlead.wire import fetch_codec, offsets, produce_codec, settings
from fairlead.wire import metadata as md
from fairlead.wire.batch import Buffer
from fairlead.wire.connection import body_at
from fairlead.wire.errors import (
    NETWORK_EXCEPTION,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    ConnectionLost,
    RequestTimeout,
    broker_error,
    is_retriable,
)
from fairlead.wire.routing import BACKGROUND, Router
from fairlead.wire.types import TP, Coded, FetchedPartition, ProduceResult, ProducerState

if TYPE_CHECKING:
    from fairlead.wire.fetch_session import FetchSession

PRODUCE: Final = "produce"
FETCH: Final = "fetch"


class Cluster(Router):
    """One cluster; reconnects by itself. Not thread safe, belongs to one event loop. Made by ``open``.

    Reading calls retry routing errors and lost connections inside until ``request_timeout``; then a log's error is in
    the answer, or ``ConnectionLost`` is raised where no broker can be reached.
    """

    def __init__(self, endpoint: Endpoint, *, client_id: str, request_timeout: float) -> None:
        super().__init__(endpoint, client_id=client_id, request_timeout=request_timeout)
        self._lanes: dict[int, asyncio.Lock] = {}
        self._sessions = 0

    @classmethod
    async def open(cls, endpoint: Endpoint, *, client_id: str, request_timeout: float = 30.0) -> Cluster:
        """Connect and log in; an endpoint that can be asked is asked again at every later connect.

        Raises:
            ConnectionLost: no bootstrap address can be reached; retriable, address in ``fields``.
            AuthenticationFailed: the login was refused.
        """
        cluster = cls(endpoint, client_id=client_id, request_timeout=request_timeout)
        try:
            await cluster.ask_metadata(())
        except BaseException:
            await cluster.close()
            raise
        return cluster

    async def close(self) -> None:
        """Close all connections, those of its fetch sessions too; calls under way fail with ``ConnectionLost``."""
        await self.pool.close()

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- offsets and producers

    async def end_offsets(self, logs: Collection[TP]) -> dict[TP, int | BrokerError]:
        """The offset after the last committed record of each log (its high watermark)."""
        return await self._list_offsets(dict.fromkeys(logs, offsets.LATEST))

    async def start_offsets(self, logs: Collection[TP]) -> dict[TP, int | BrokerError]:
        """The first offset that each log still has."""
        return await self._list_offsets(dict.fromkeys(logs, offsets.EARLIEST))

    async def offsets_at(self, logs: Collection[TP], timestamp_ms: int) -> dict[TP, int | BrokerError]:
        """The first offset whose record is at or after ``timestamp_ms``; -1 where there is none."""
        return await self._list_offsets(dict.fromkeys(logs, timestamp_ms))

    async def offsets_at_times(self, times: Mapping[TP, int]) -> dict[TP, int | BrokerError]:
        """As ``offsets_at``, each log at a time of its own."""
        return await self._list_offsets(times)

    async def _list_offsets(
        self, times: Mapping[TP, int], *, seconds: float | None = None, patient: bool = False
    ) -> dict[TP, int | BrokerError]:
        async def ask(node: int, part: list[TP]) -> Mapping[TP, Coded[int]]:
            return await self.control(node, offsets.list_request({log: times[log] for log in part}))

        return await self.per_leader(list(times), ask, seconds=seconds, patient=patient)

    async def producer_states(self, logs: Collection[TP]) -> dict[TP, tuple[ProducerState, ...]]:
        """What the brokers remember of each log's producers (DescribeProducers; needs READ on the topics).

        Raises:
            BrokerError: for the first log that has an error.
        """
        states: dict[TP, tuple[ProducerState, ...]] = {}
        for log, found in (await self.describe_producers(logs)).items():
            if isinstance(found, BrokerError):
                raise found
            states[log] = found
        return states

    async def describe_producers(self, logs: Collection[TP]) -> dict[TP, tuple[ProducerState, ...] | BrokerError]:
        """``producer_states`` with each log's error in the answer."""

        async def ask(node: int, part: list[TP]) -> Mapping[TP, Coded[tuple[ProducerState, ...]]]:
            return await self.control(node, offsets.producers_request(part))

        return await self.per_leader(logs, ask)

    async def topic_settings(self, topics: Collection[str], names: Collection[str]) -> dict[str, dict[str, str]]:
        """These settings of these topics, as they are in effect (DescribeConfigs; needs DESCRIBE_CONFIGS on each).
        Topics that are unknown or not permitted are left out.

        Raises:
            ConnectionLost, RequestTimeout: no broker answers.
        """
        connection = await self.pool.any(BACKGROUND)
        return await connection.call(settings.request(topics, names))

    async def topic_defaults(self, topic: str, names: Collection[str]) -> dict[str, str]:
        """What these settings of a topic would be without any of its own; empty when it is unknown or not permitted.
        Raises as ``topic_settings``.
        """
        connection = await self.pool.any(BACKGROUND)
        return await connection.call(settings.defaults_request(topic, names))

    async def delete_records(self, before: Mapping[TP, int]) -> dict[TP, int | BrokerError]:
        """Delete everything before an offset; the answer is each log's new start."""

        async def ask(node: int, part: list[TP]) -> Mapping[TP, Coded[int]]:
            timeout_ms = int(self.request_timeout * 1000)
            return await self.control(node, offsets.delete_request({log: before[log] for log in part}, timeout_ms))

        return await self.per_leader(list(before), ask)

    async def wait_writable(self, topics: Collection[str | TP], timeout: float = 60) -> None:  # noqa: ASYNC109
        """Wait until the brokers serve topics (partition 0 of each) or logs that were just created.

        Raises:
            RequestTimeout: some are still not served; their names are in ``fields['logs']``.
            BrokerError: the first one that fails for good.
        """
        logs = [TP(each) if isinstance(each, str) else each for each in topics]
        answers = await self._list_offsets(dict.fromkeys(logs, offsets.LATEST), seconds=timeout, patient=True)
        late: list[str] = []
        for log, answer in answers.items():
            if isinstance(answer, BrokerError):
                if not answer.retriable:
                    raise answer
                late.append(str(log))
        if late:
            raise RequestTimeout(
                f"{len(late)} of {len(logs)} new topics are not served after {timeout:g} s, first {late[0]}",
                hint="look at the broker's log; one with very many topics needs longer, and may open no more files",
                logs=late,
            )

    # --- produce

    async def produce(self, batches: Mapping[TP, Buffer], *, timeout_ms: int = 30_000) -> dict[TP, ProduceResult]:
        """Append one batch to each log: one request per leader, acks=all.

        Calls may overlap; per leader the requests go out in the order of the calls. Batches must not change until the
        answer is there. One log's or leader's trouble never raises: a lost connection gives code 13, a timeout 7
        (outcome unknown in both cases), a topic that the cluster does not know 3. Nothing is retried, but the next
        call finds the new leader.

        Raises:
            AuthenticationFailed: the login was refused.
        """
        try:
            groups = await self.by_leader(batches)
        except (ConnectionLost, RequestTimeout):
            return dict.fromkeys(batches, ProduceResult(NETWORK_EXCEPTION))
        results: dict[TP, ProduceResult] = {}
        nowhere = groups.pop(md.NO_LEADER, [])
        for log in nowhere:
            results[log] = ProduceResult(self.metadata.why_no_leader(log))
        answers = await asyncio.gather(
            *(self.produce_to(node, {log: batches[log] for log in logs}, timeout_ms) for node, logs in groups.items())
        )
        for answer in answers:
            results.update(answer)
        await self.refresh_after(results)
        return results

    async def produce_to(
        self, node: int, batches: Mapping[TP, Buffer], timeout_ms: int, incarnation: int | None = None
    ) -> dict[TP, ProduceResult]:
        """``produce`` to one leader. With ``incarnation`` (of the pool), nothing is sent, and the code is 13, when the
        connection has been replaced since."""
        seconds = self.request_timeout
        lane = self._lanes.get(node)
        if lane is None:
            lane = self._lanes[node] = asyncio.Lock()  # fair, so the order of the calls is the order of the requests
        try:
            async with lane:
                if incarnation is not None and incarnation != self.pool.incarnation(PRODUCE, node):
                    return dict.fromkeys(batches, ProduceResult(NETWORK_EXCEPTION))
                connection = await self.pool.get(PRODUCE, node)
                body = produce_codec.encode_request(batches, min(timeout_ms, int(seconds * 1000)))
                answer = connection.send(produce_codec.API_KEY, produce_codec.VERSION, body)
            frame = await answer
        except ConnectionLost:
            return dict.fromkeys(batches, ProduceResult(NETWORK_EXCEPTION))
        except RequestTimeout:
            return dict.fromkeys(batches, ProduceResult(REQUEST_TIMED_OUT))
        results = produce_codec.decode_response(frame, body_at(frame))
        if len(results) < len(batches):
            missing = ProduceResult(UNKNOWN_TOPIC_OR_PARTITION)
            results = {log: results.get(log, missing) for log in batches}
        return results

    async def refresh_after(self, results: Mapping[TP, ProduceResult]) -> None:
        """Ask for the leaders of what failed, where the error says that they may have moved; never raises for it."""
        stale = {log.topic for log, result in results.items() if result.error_code and needs_refresh(result.error_code)}
        if stale:
            try:
                await self.refresh(stale)
            except (ConnectionLost, RequestTimeout):
                return  # the next call finds out by itself

    # --- fetch

    async def fetch(
        self,
        positions: Mapping[TP, int],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 16 << 20,
        partition_max_bytes: int = 1 << 20,
        isolation: int = 0,
    ) -> dict[TP, FetchedPartition]:
        """Read once, without a session. Every log is in the answer; what went wrong is in its ``error_code``."""

        async def ask(node: int, part: list[TP]) -> Mapping[TP, Coded[FetchedPartition]]:
            wanted, names = [], {}
            for log in part:
                topic_id = self.metadata.topic_id(log.topic)
                if topic_id is not None:
                    wanted.append(fetch_codec.Wanted(topic_id, log.partition, positions[log]))
                    names[topic_id, log.partition] = log
            body = fetch_codec.encode_request(
                wanted,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                partition_max_bytes=partition_max_bytes,
                isolation=isolation,
            )
            connection = await self.pool.get(FETCH, node)
            seconds = self.request_timeout + max_wait_ms / 1000
            frame = await connection.send(fetch_codec.API_KEY, fetch_codec.VERSION, [body], seconds=seconds)
            answer = fetch_codec.decode_response(frame, body_at(frame))
            if answer.error_code:
                return dict.fromkeys(part, (answer.error_code, None))
            found: dict[TP, Coded[FetchedPartition]] = {}
            for topic_id, partition, content in answer.partitions:
                retry = content.error_code and is_retriable(content.error_code)
                found[names[topic_id, partition]] = (content.error_code, None) if retry else (0, content)
            return {log: found.get(log, (UNKNOWN_TOPIC_ID, None)) for log in part}

        results = await self.per_leader(list(positions), ask, chunk=1 << 30)
        return {
            log: fetch_codec.failed(found.code) if isinstance(found, BrokerError) else found
            for log, found in results.items()
        }

    def fetch_session(self, *, isolation: int = 0) -> FetchSession:
        """A session with its own connections, so a long poll blocks nobody."""
        from fairlead.wire.fetch_session import FetchSession

        self._sessions += 1
        return FetchSession(self, role=f"session {self._sessions}", isolation=isolation)


def needs_refresh(code: int) -> bool:
    """True for codes after which the leader may be another one."""
    return code == REQUEST_TIMED_OUT or bool(broker_error(code).retriable)
