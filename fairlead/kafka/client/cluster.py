"""One Kafka cluster seen by one user: find each log's leader and send the requests that the data plane needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, TypeVar

from fairlead.kafka.client.connection import Connection, backoff, body_at
from fairlead.kafka.client.fetch_session import FetchSession
from fairlead.kafka.client.metadata import NO_LEADER, MetadataCache, TopicChanges
from fairlead.kafka.client.pool import Pool
from fairlead.kafka.endpoint import Endpoint, KafkaEndpoint
from fairlead.kafka.protocol import admin_codec, fetch_codec, offsets_codec, produce_codec
from fairlead.kafka.protocol.batch import Buffer
from fairlead.kafka.protocol.coding import Question
from fairlead.kafka.protocol.errors import (
    NETWORK_EXCEPTION,
    NOT_CONTROLLER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    ConnectionLost,
    RequestTimeout,
    broker_error,
    is_retriable,
)
from fairlead.kafka.protocol.metadata_codec import TopicListing, decode_response, metadata_request
from fairlead.kafka.protocol.types import TP, Coded, FetchedPartition, ProduceResult, ProducerState, TopicInfo

T = TypeVar("T")

PRODUCE: Final = "produce"
FETCH: Final = "fetch"
CONTROL: Final = "control"
BACKGROUND: Final = "background"  # for requests that may take long, so that no other request waits behind them
UNKNOWN_FOR: Final = 1.0  # seconds until a topic that metadata does not know counts as missing
_PRODUCE_MS: Final = 30_000  # for a leader to answer; no longer than the request
_NO_ANSWER: Final = (NETWORK_EXCEPTION, REQUEST_TIMED_OUT)
SERVED: Final = (1.0, 10.0)  # seconds to wait for new logs: at first, and then as long as more of them are served
LOGS_PER_REQUEST: Final = 2000  # in ListOffsets and similar requests: some 10 ms of coding each


class Cluster:
    """A connection to one cluster that reconnects by itself. Not thread safe; belongs to one event loop.

    Create it with ``open``. Reading calls retry routing errors and lost connections until ``request_timeout``
    (seconds); after that, a log's error is in the result, or ``ConnectionLost`` is raised where no broker can be
    reached.
    """

    def __init__(self, endpoint: Endpoint, *, client_id: str, request_timeout: float) -> None:
        self.request_timeout = request_timeout
        self.metadata = MetadataCache()
        self.pool = Pool(endpoint, client_id, request_timeout)
        self.logs_per_request = LOGS_PER_REQUEST  # lower it for a cluster behind a slow link
        self._loop = asyncio.get_running_loop()
        self._refreshing = asyncio.Lock()
        self._wanted: set[str] = set()
        self._asked_at: dict[str, float] = {}
        self._listing = TopicListing()
        self.whole_bytes = 0
        self._produce_locks: dict[int, asyncio.Lock] = {}
        self._sessions = 0

    def wait_for_answers(self, seconds: float) -> None:
        """Let requests of connections that are opened from now on, and retries, wait so long."""
        self.request_timeout = self.pool.request_timeout = seconds

    @classmethod
    async def open(cls, endpoint: Endpoint, *, client_id: str, request_timeout: float = 30.0) -> Cluster:
        """Connect and log in; a callable ``endpoint`` is called again at every later connect.

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
        """Close all connections, also those of its fetch sessions; calls under way fail with ``ConnectionLost``."""
        await self.pool.close()

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- metadata: topics and their leaders

    @property
    def endpoint(self) -> KafkaEndpoint:
        return self.pool.endpoint()

    async def topics(self, names: Collection[str] | None = None, *, refresh: bool = False) -> dict[str, TopicInfo]:
        """Return topics by name, without unknown and unauthorised ones.

        ``names`` None means all visible topics, always asked from the cluster. Named topics come from the cache if it
        has them, unless ``refresh``.
        """
        if names is None:
            await self._retry(lambda: self.ask_metadata(None))
            return self.metadata.topics()
        missing = set(names) if refresh else set(names).difference(self.metadata.topics(names))
        if missing:
            await self._retry(lambda: self.refresh(missing))
        return self.metadata.topics(names)

    async def refresh(self, names: Collection[str]) -> None:
        """Request the metadata of these topics again. Concurrent callers share one request.

        Raises:
            ConnectionLost: no broker can be reached.
        """
        called_at = self._loop.time()
        self._wanted.update(names)
        async with self._refreshing:
            if all(self._asked_at.get(name, -1.0) >= called_at for name in names):
                return
            wanted, self._wanted = self._wanted | set(names), set()
            asked_at = self._loop.time()
            await self.ask_metadata(wanted)
            self._asked_at.update(dict.fromkeys(wanted, asked_at))

    async def topic_changes(self) -> TopicChanges | None:
        """List all visible topics and return what has changed since the last call, None for nothing.

        For watching clusters of very many topics, by one caller. ``whole_bytes`` is the size of the last answer.

        Raises:
            ConnectionLost, RequestTimeout: no broker answered in time.
        """
        found: TopicChanges | None = None

        async def ask() -> None:
            nonlocal found
            connection, body = await self._metadata_of(None)
            self.whole_bytes = len(body)
            is_first = not len(self._listing)
            with connection.decoding():
                changes = self._listing.update(body)
            if changes is not None:
                found = self.metadata.apply_listing(changes, is_whole=is_first)
                self.pool.set_brokers(self.metadata.brokers)
                if len(self.metadata.names) > len(self._listing):  # one was deleted that no listing had
                    self._take_over(connection, body, None)

        await self._retry(ask)
        return found

    async def ask_metadata(self, names: Collection[str] | None) -> None:
        """Send one Metadata request to any broker and apply its answer; None asks for all visible topics."""
        self._take_over(*await self._metadata_of(names), names)

    async def _metadata_of(self, names: Collection[str] | None) -> tuple[Connection, memoryview]:
        connection = await self.pool.any(CONTROL)
        frame = await connection.ask(metadata_request(names))
        with connection.decoding():
            return connection, memoryview(frame)[body_at(frame) :]

    def _take_over(self, connection: Connection, body: memoryview, names: Collection[str] | None) -> None:
        with connection.decoding():
            self.metadata.apply(decode_response(body), names)
        self.pool.set_brokers(self.metadata.brokers)

    async def _retry(self, action: Callable[[], Awaitable[None]]) -> None:
        deadline = self._loop.time() + self.request_timeout
        attempt = 0
        while True:
            try:
                return await action()
            except (ConnectionLost, RequestTimeout):
                if self._loop.time() >= deadline:
                    raise
            await asyncio.sleep(backoff(attempt, 1.0))
            attempt += 1

    async def by_leader(self, logs: Iterable[TP]) -> dict[int, list[TP]]:
        """Group logs by the node id of their leader, those without a leader under -1.

        Requests metadata only for topics that were never asked for.
        """
        logs = list(logs)
        unknown = self.metadata.unknown(logs)
        if unknown:
            await self.refresh(unknown)
        groups: dict[int, list[TP]] = {}
        leader = self.metadata.leader
        for log in logs:
            groups.setdefault(leader(log), []).append(log)
        return groups

    async def per_leader(
        self,
        logs: Collection[TP],
        ask: Callable[[int, list[TP]], Awaitable[Mapping[TP, Coded[T]]]],
        *,
        seconds: float | None = None,
        patient: bool = False,
        chunk: int | None = None,
    ) -> dict[TP, T | BrokerError]:
        """Send a request to every log's leader, and again after retriable errors.

        Args:
            seconds: How long to retry; ``request_timeout`` by default.
            patient: Wait that long also for unknown topics, and not only ``UNKNOWN_FOR`` seconds.
            chunk: Logs per request; ``logs_per_request`` by default.
        """
        started = self._loop.time()
        deadline = started + (self.request_timeout if seconds is None else seconds)
        results: dict[TP, T | BrokerError] = {}
        left: list[TP] = list(dict.fromkeys(logs))
        attempt = 0
        while left:
            last_loss: ConnectionLost | RequestTimeout | None = None
            codes: dict[TP, int] = {}
            try:
                if attempt:
                    await self.refresh({log.topic for log in left})
                groups = await self.by_leader(left)
            except (ConnectionLost, RequestTimeout) as error:
                last_loss, groups = error, {}
                codes = dict.fromkeys(left, NETWORK_EXCEPTION)
            for log in groups.pop(NO_LEADER, ()):
                codes[log] = self.metadata.why_no_leader(log)
            size = chunk or self.logs_per_request
            answers = await asyncio.gather(*(self._ask_all(node, some, size, ask) for node, some in groups.items()))
            for answer in answers:
                for log, (code, value) in answer.items():
                    if code:
                        codes[log] = code
                    else:
                        results[log] = value  # type: ignore[assignment]
            now = self._loop.time()
            left = []
            for log, code in codes.items():
                absent = code == UNKNOWN_TOPIC_OR_PARTITION and self.metadata.leader(log) == NO_LEADER
                give_up = deadline if patient or not absent else min(deadline, started + UNKNOWN_FOR)
                if is_retriable(code) and now < give_up:
                    left.append(log)
                elif last_loss is not None:
                    raise last_loss
                else:
                    results[log] = broker_error(code, log)
            if left:
                await asyncio.sleep(backoff(attempt, 0.5))
                attempt += 1
        return results

    async def _ask_all(
        self,
        node: int,
        logs: Sequence[TP],
        size: int,
        ask: Callable[[int, list[TP]], Awaitable[Mapping[TP, Coded[T]]]],
    ) -> Mapping[TP, Coded[T]]:
        """Ask one leader about its logs, in chunks of ``size``, one request after the other.

        The coded requests and answers of very many logs take a multiple of their bytes in memory.
        """
        out: dict[TP, Coded[T]] = {}
        for part in chunks(logs, size):
            answer = await self._ask(node, part, ask)
            out |= answer
            if any(code in _NO_ANSWER for code, _ in answer.values()):
                return dict.fromkeys(logs, (NETWORK_EXCEPTION, None)) | out  # the other requests would time out as well
        return out

    async def _ask(
        self, node: int, logs: list[TP], ask: Callable[[int, list[TP]], Awaitable[Mapping[TP, Coded[T]]]]
    ) -> Mapping[TP, Coded[T]]:
        try:
            answer = await ask(node, logs)
        except ConnectionLost:
            return dict.fromkeys(logs, (NETWORK_EXCEPTION, None))
        except RequestTimeout:
            return dict.fromkeys(logs, (REQUEST_TIMED_OUT, None))
        return {log: answer.get(log, (UNKNOWN_TOPIC_OR_PARTITION, None)) for log in logs}

    async def control(self, node: int, question: Question[T]) -> T:
        """Send one request to one broker, on a connection that carries no data."""
        connection = await self.pool.get(CONTROL, node)
        return await connection.call(question)

    # --- offsets and producers

    async def end_offsets(self, logs: Collection[TP], *, seconds: float | None = None) -> dict[TP, int | BrokerError]:
        """Return the offset after the last committed record of each log (its high watermark).

        Args:
            seconds: How long to retry a log that cannot be asked about now; ``request_timeout`` by default.
        """
        return await self._list_offsets(dict.fromkeys(logs, offsets_codec.LATEST), seconds=seconds)

    async def start_offsets(self, logs: Collection[TP], *, seconds: float | None = None) -> dict[TP, int | BrokerError]:
        """Return the first offset that each log still has; ``seconds`` as for ``end_offsets``."""
        return await self._list_offsets(dict.fromkeys(logs, offsets_codec.EARLIEST), seconds=seconds)

    async def offsets_at(self, times: Mapping[TP, int]) -> dict[TP, int | BrokerError]:
        """Return each log's first offset whose record is at or after its time in ms; -1 where there is none."""
        return await self._list_offsets(times)

    async def newest_times(self, logs: Collection[TP]) -> dict[TP, int | BrokerError]:
        """Return the latest time of a record in each log, in ms since 1970; -1 where there is none.

        The broker reads a batch of each log from disk; ``describe_producers`` answers from memory.
        """

        async def ask(node: int, part: list[TP]) -> Mapping[TP, Coded[int]]:
            return await self.control(node, offsets_codec.newest_request(part))

        return await self.per_leader(logs, ask)

    async def _list_offsets(
        self, times: Mapping[TP, int], *, seconds: float | None = None, patient: bool = False
    ) -> dict[TP, int | BrokerError]:
        async def ask(node: int, part: list[TP]) -> Mapping[TP, Coded[int]]:
            return await self.control(node, offsets_codec.list_request({log: times[log] for log in part}))

        return await self.per_leader(list(times), ask, seconds=seconds, patient=patient)

    async def producer_states(self, logs: Collection[TP]) -> dict[TP, tuple[ProducerState, ...]]:
        """Return what the brokers remember of each log's producers (DescribeProducers; needs READ on the topics).

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
        """Do as ``producer_states``, with each log's error in the result."""

        async def ask(node: int, part: list[TP]) -> Mapping[TP, Coded[tuple[ProducerState, ...]]]:
            return await self.control(node, offsets_codec.producers_request(part))

        return await self.per_leader(logs, ask)

    async def log_sizes(self, logs: Collection[TP]) -> dict[TP, int | BrokerError | None]:
        """Return the bytes of each log on its leader's disk (DescribeLogDirs; needs DESCRIBE on the cluster).

        None for a log on a disk that is offline. ``BrokerError`` for each log of a leader that does not allow it.
        """

        async def ask(node: int, part: list[TP]) -> Mapping[TP, Coded[int | None]]:
            answer = await self.control(node, admin_codec.log_dirs_request(part))
            return {log: (answer.error_code, answer.sizes.get(log)) for log in part}

        return await self.per_leader(logs, ask)

    async def topic_settings(self, topics: Collection[str], names: Collection[str]) -> dict[str, dict[str, str]]:
        """Return these settings of these topics, as they are in effect; needs DESCRIBE_CONFIGS on each topic.

        Leaves out topics that are unknown or not permitted.

        Raises:
            ConnectionLost, RequestTimeout: no broker answers.
        """
        connection = await self.pool.any(BACKGROUND)
        return await connection.call(admin_codec.describe_settings_request(topics, names))

    async def topic_defaults(self, topic: str, names: Collection[str]) -> dict[str, str]:
        """Return the values that these settings of a topic would have if the topic set none itself.

        Empty when the topic is unknown or not permitted. Raises as ``topic_settings``.
        """
        connection = await self.pool.any(BACKGROUND)
        return await connection.call(admin_codec.describe_defaults_request(topic, names))

    async def delete_records(self, before: Mapping[TP, int]) -> dict[TP, int | BrokerError]:
        """Delete all records before an offset, by log, and return each log's new start offset."""

        async def ask(node: int, part: list[TP]) -> Mapping[TP, Coded[int]]:
            timeout_ms = int(self.request_timeout * 1000)
            return await self.control(
                node, offsets_codec.delete_request({log: before[log] for log in part}, timeout_ms)
            )

        return await self.per_leader(list(before), ask)

    async def delete_topic(self, topic_id: bytes) -> bool:
        """Delete the topic with this id; a newer topic of the same name stays.

        Returns:
            False when no topic has the id any more.

        Raises:
            BrokerError: not permitted, or not now. ConnectionLost, RequestTimeout: no broker answers.
        """
        question = admin_codec.delete_topic_request(topic_id, int(self.request_timeout * 1000))
        code = NOT_CONTROLLER
        for node in self.metadata.brokers:  # a broker forwards it to the controller, except with ZooKeeper
            code = await self.control(node, question)
            if code != NOT_CONTROLLER:
                break
        if code in (0, UNKNOWN_TOPIC_ID):
            return code == 0
        raise broker_error(code)

    async def unserved(self, topics: Collection[str | TP], timeout: float = 60) -> dict[TP, BrokerError]:  # noqa: ASYNC109
        """Wait until the brokers serve newly created topics (partition 0 of each) or logs; return those that they do
        not serve until then, each with its error.

        Raises:
            ConnectionLost, RequestTimeout: no broker answers.
        """
        logs = [TP(each) if isinstance(each, str) else each for each in topics]
        answers = await self._list_offsets(dict.fromkeys(logs, offsets_codec.LATEST), seconds=timeout, patient=True)
        return {log: answer for log, answer in answers.items() if isinstance(answer, BrokerError)}

    async def wait_writable(self, topics: Collection[str | TP], timeout: float = 60) -> None:  # noqa: ASYNC109
        """Wait until the brokers serve newly created topics (partition 0 of each) or logs.

        Raises:
            RequestTimeout: some are still not served; their names are in ``fields['logs']``.
            BrokerError: the first one that fails for good.
        """
        late: list[str] = []
        for log, error in (await self.unserved(topics, timeout)).items():
            if not error.retriable:
                raise error
            late.append(str(log))
        if late:
            raise RequestTimeout(
                f"{len(late)} of {len(topics)} new topics are not served after {timeout:g} s, first {late[0]}",
                hint="look at the broker's log; one with very many topics needs longer, and may open no more files",
                logs=late,
            )

    # --- produce

    async def produce(
        self, batches: Mapping[TP, Buffer], *, topic_ids: Mapping[TP, bytes] | None = None
    ) -> dict[TP, ProduceResult]:
        """Append one batch to each log: one request per leader, acks=all.

        Calls may overlap; the requests to a leader go out in the order of the calls. Batches must not change until the
        answer has arrived. Errors of a log or leader are in the result, never raised: code 13 for a lost connection and
        7 for a timeout (outcome unknown in both cases), 3 for a topic that the cluster does not know. Nothing is
        retried, but the next call finds the new leader.

        Args:
            topic_ids: The topics to which the logs must belong; by default those of the last metadata. From Kafka 4.1
                on, a broker refuses a batch with code 100 if the topic was deleted since, also if there is a new one
                of its name. An older broker appends to the new one.

        Raises:
            AuthenticationFailed: the login was refused.
        """
        try:
            groups = await self.by_leader(batches)
        except (ConnectionLost, RequestTimeout):
            return dict.fromkeys(batches, ProduceResult(NETWORK_EXCEPTION))
        results: dict[TP, ProduceResult] = {}
        nowhere = groups.pop(NO_LEADER, [])
        for log in nowhere:
            results[log] = ProduceResult(self.metadata.why_no_leader(log))
        answers = await asyncio.gather(
            *(
                self.produce_to(node, {log: batches[log] for log in logs}, _PRODUCE_MS, None, topic_ids)
                for node, logs in groups.items()
            )
        )
        for answer in answers:
            results.update(answer)
        await self.refresh_after(results)
        return results

    async def produce_to(
        self,
        node: int,
        batches: Mapping[TP, Buffer],
        timeout_ms: int,
        incarnation: int | None,
        topic_ids: Mapping[TP, bytes] | None,
    ) -> dict[TP, ProduceResult]:
        """Do as ``produce``, to one leader.

        With ``incarnation`` (see ``Pool.incarnation``), send nothing and return code 13 when the connection has been
        replaced since.
        """
        seconds = self.request_timeout
        ids: Mapping[TP, bytes] | None = None
        names: dict[bytes, str] | None = None
        lock = self._produce_locks.get(node)
        if lock is None:
            lock = self._produce_locks[node] = asyncio.Lock()  # fair, so requests go out in the order of the calls
        try:
            async with lock:
                if incarnation is not None and incarnation != self.pool.incarnation(PRODUCE, node):
                    return dict.fromkeys(batches, ProduceResult(NETWORK_EXCEPTION))
                connection = await self.pool.get(PRODUCE, node)
                sent, version = batches, connection.produce_version
                if version == produce_codec.BY_ID:
                    ids = topic_ids or self.topic_ids(batches)
                    names = {ids[log]: log.topic for log in batches if log in ids}
                    if not batches.keys() <= ids.keys():  # the answer has no result for the others: code 3
                        sent = {log: batch for log, batch in batches.items() if log in ids}
                body = produce_codec.encode_request(sent, min(timeout_ms, int(seconds * 1000)), ids)
                answer = connection.send(produce_codec.API_KEY, version, body)
            frame = await answer
            with connection.decoding():
                results, throttle_time_ms = produce_codec.decode_response(frame, body_at(frame), names)
        except ConnectionLost:
            return dict.fromkeys(batches, ProduceResult(NETWORK_EXCEPTION))
        except RequestTimeout:
            return dict.fromkeys(batches, ProduceResult(REQUEST_TIMED_OUT))
        connection.throttle(throttle_time_ms)
        if len(results) < len(batches):
            missing = ProduceResult(UNKNOWN_TOPIC_OR_PARTITION)
            results = {log: results.get(log, missing) for log in batches}
        return results

    def topic_ids(self, logs: Iterable[TP]) -> dict[TP, bytes]:
        """Return the topic id of each log as last seen in metadata, without logs whose topic is not known."""
        topic_id = self.metadata.topic_id
        return {log: found for log in logs if (found := topic_id(log.topic)) is not None}

    async def refresh_after(self, results: Mapping[TP, ProduceResult]) -> None:
        """Refresh the leaders of logs whose error says that the leader may have moved; ignore a failed refresh."""
        stale = {log.topic for log, result in results.items() if result.error_code and needs_refresh(result.error_code)}
        if stale:
            try:
                await self.refresh(stale)
            except (ConnectionLost, RequestTimeout):
                return  # the next call refreshes again

    # --- fetch

    async def fetch(
        self,
        positions: Mapping[TP, int],
        *,
        max_wait_ms: int = 500,
        max_bytes: int = 16 << 20,
        partition_max_bytes: int = 1 << 20,
        isolation: int = 0,
        seconds: float | None = None,
    ) -> dict[TP, FetchedPartition]:
        """Read once, without a session. The result has every log; its ``error_code`` says what failed.

        ``seconds`` as for ``end_offsets``.
        """

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
                min_bytes=1,
                max_bytes=max_bytes,
                partition_max_bytes=partition_max_bytes,
                isolation=isolation,
            )
            connection = await self.pool.get(FETCH, node)
            wait = self.request_timeout + max_wait_ms / 1000
            frame = await connection.send(fetch_codec.API_KEY, fetch_codec.VERSION, [body], seconds=wait)
            with connection.decoding():
                answer = fetch_codec.decode_response(frame, body_at(frame))
                if answer.error_code:
                    return dict.fromkeys(part, (answer.error_code, None))
                found: dict[TP, Coded[FetchedPartition]] = {}
                for topic_id, partition, content in answer.partitions:
                    retry = content.error_code and is_retriable(content.error_code)
                    found[names[topic_id, partition]] = (content.error_code, None) if retry else (0, content)
            return {log: found.get(log, (UNKNOWN_TOPIC_ID, None)) for log in part}

        results = await self.per_leader(list(positions), ask, seconds=seconds, chunk=1 << 30)
        return {
            log: fetch_codec.failed(found.code) if isinstance(found, BrokerError) else found
            for log, found in results.items()
        }

    def fetch_session(self, *, isolation: int = 0) -> FetchSession:
        """Return a session with its own connections, so that its long polls block no other request."""
        self._sessions += 1
        role = f"session {self._sessions}"
        return FetchSession(self.pool, self.metadata, self.refresh, self.by_leader, role=role, isolation=isolation)


async def until_served(
    cluster: Cluster, logs: Collection[TP]
) -> AsyncIterator[tuple[list[TP], dict[TP, BrokerError], bool]]:
    """Wait for newly created logs while the brokers serve more of them.

    Yields:
        After each wait: the logs waited for, those of them that are not served yet, each with its error, and whether
        this was the last wait.
    """
    asked, seconds, is_last = list(logs), SERVED[0], False
    while not is_last:
        late = await cluster.unserved(asked, seconds)
        is_last = not late or (seconds == SERVED[1] and len(late) == len(asked))
        yield asked, late, is_last
        asked, seconds = list(late), SERVED[1]


def needs_refresh(code: int) -> bool:
    """Whether the leader may have changed after this error code."""
    return code == REQUEST_TIMED_OUT or bool(broker_error(code).retriable)


def chunks(items: Sequence[TP], size: int) -> Iterable[list[TP]]:
    """Split ``items`` into lists of at most ``size``."""
    return (list(items[start : start + size]) for start in range(0, len(items), size))
