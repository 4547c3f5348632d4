"""A scripted cluster of fake brokers on loopback sockets: real frames, kafka-python's codec, faults on demand."""

from __future__ import annotations

import asyncio
import ssl
import struct
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.admin import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from pydantic import SecretStr

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from tests.support.kafka.fake_log import FakeLog
from tests.support.kafka.fake_scram import ScramServer

PRODUCE, FETCH, LIST_OFFSETS, METADATA, DELETE_TOPICS, DELETE_RECORDS, DESCRIBE_PRODUCERS = 0, 1, 2, 3, 20, 21, 61
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
UNKNOWN_TOPIC_ID = 100
REQUESTS = {
    PRODUCE: ProduceRequest,
    FETCH: FetchRequest,
    LIST_OFFSETS: ListOffsetsRequest,
    METADATA: MetadataRequest,
    DELETE_TOPICS: DeleteTopicsRequest,
    DELETE_RECORDS: DeleteRecordsRequest,
    DESCRIBE_PRODUCERS: DescribeProducersRequest,
    SASL_HANDSHAKE: SaslHandshakeRequest,
    SASL_AUTHENTICATE: SaslAuthenticateRequest,
}
OFFERED = {0: 13, 1: 18, 2: 11, 3: 13, 17: 1, 18: 4, 20: 6, 21: 2, 36: 2, 61: 0}


@dataclass
class Fault:
    """What happens to one request.

    Args:
        code: Answered for every log instead of doing anything.
        lose: The connection is cut: "before" doing anything, or "after" doing it but before the answer.
        hang: No answer ever.
        late: Seconds until the answer.
        raw: These bytes are sent instead of an answer.
        cut: Only so many bytes of the answer's body are sent, in a frame of that size.
        throttle_ms: The answer's ``throttle_time_ms``; for so long the broker reads nothing from the connection.
        first: Called before the request is looked at.
    """

    code: int = 0
    lose: str = ""
    hang: bool = False
    late: float = 0.0
    raw: bytes = b""
    cut: int | None = None
    throttle_ms: int = 0
    first: Callable[[], object] | None = None


@dataclass
class Session:
    """A fetch session as the broker keeps it."""

    epoch: int = 1
    wanted: dict[tuple[uuid.UUID, int], int] = field(default_factory=dict)
    told: dict[tuple[uuid.UUID, int], tuple[int, int]] = field(default_factory=dict)


class FakeCluster:
    """Logs, users and what goes wrong; brokers share them all. Use through ``running``."""

    def __init__(self, *, users: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.logs: dict[str, FakeLog] = {}
        self.users = users
        self.lifetime_ms = 0
        self.lying = False
        self.offered = dict(OFFERED)
        self.faults: dict[int, deque[Fault]] = {}
        self.requests: list[tuple[int, int, Any]] = []  # (node, API key, request)
        self.ports: dict[int, int] = {}
        self.sessions: dict[int, Session] = {}
        self.connections: dict[int, int] = {}  # accepted so far, by node
        self.errors: list[BaseException] = []
        self._servers: dict[int, asyncio.Server] = {}
        self._writers: dict[int, set[asyncio.StreamWriter]] = {}
        self._handlers: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._next_session = 100

    # --- what tests do

    def endpoint(self, *, user: str | None = None, password: str = "") -> KafkaEndpoint:
        addresses = tuple(("127.0.0.1", port) for port in self.ports.values())
        return KafkaEndpoint("fake", addresses, user=user, password=SecretStr(password) if user else None)

    def log(self, name: str, **settings: Any) -> FakeLog:
        self.logs[name] = FakeLog(**settings)
        self.change()
        return self.logs[name]

    def fault(self, api_key: int, *faults: Fault) -> None:
        """The next requests of this kind meet these faults, one each; None-like ``Fault()`` lets one pass."""
        self.faults.setdefault(api_key, deque()).extend(faults)

    def seen(self, api_key: int) -> list[Any]:
        return [request for _, key, request in self.requests if key == api_key]

    def change(self) -> None:
        """Wake long polls."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def start(self, node: int) -> None:
        server = await asyncio.start_server(
            lambda reader, writer: self._accept(node, reader, writer),
            "127.0.0.1",
            self.ports.get(node, 0),
            ssl=self.tls,
        )
        self._servers[node] = server
        self.ports[node] = server.sockets[0].getsockname()[1]

    async def stop(self, node: int) -> None:
        """As kill -9: all connections are cut, the port is closed."""
        server = self._servers.pop(node)
        server.close()
        self.cut(node)

    def cut(self, node: int) -> None:
        """Cut all connections of a broker."""
        for writer in list(self._writers.get(node, ())):
            writer.transport.abort()

    async def close(self) -> None:
        for node in list(self._servers):
            await self.stop(node)
        for task in list(self._handlers):
            task.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    # --- serving

    async def _accept(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self.connections[node] = self.connections.get(node, 0) + 1
        self._writers.setdefault(node, set()).add(writer)
        try:
            await self._serve(node, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except Exception as error:
            self.errors.append(error)
            raise
        finally:
            self._handlers.discard(task)
            self._writers[node].discard(writer)
            writer.transport.abort()

    async def _serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        login: list[ScramServer] = []
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(size)
            key, version, correlation, client = struct.unpack_from(">hhih", frame)
            flexible = key != API_VERSIONS and bool(REQUESTS[key].flexible_version_q(version))
            body = frame[10 + client + flexible :]
            request = None if key == API_VERSIONS else REQUESTS[key].decode(body, version=version)
            self.requests.append((node, key, request))
            queue = self.faults.get(key)
            fault = queue.popleft() if queue else Fault()
            if fault.first is not None:
                fault.first()
            if fault.lose == "before":
                return
            answer = await self._answer(node, key, version, request, fault.code, login)
            if fault.lose == "after":
                return
            if fault.throttle_ms:
                throttled = struct.pack(">i", fault.throttle_ms)
                answer = answer[:-5] + throttled + answer[-1:] if key == PRODUCE else throttled + answer[4:]
            answer = answer[: fault.cut]
            if fault.hang:
                await asyncio.Event().wait()
            await asyncio.sleep(fault.late)
            head = struct.pack(">i", correlation) + (b"\0" if flexible else b"")
            payload = fault.raw or struct.pack(">i", len(head) + len(answer)) + head + answer
            writer.write(payload)
            await writer.drain()
            await asyncio.sleep(fault.throttle_ms / 1000)

    async def _answer(
        self, node: int, key: int, version: int, request: Any, code: int, login: list[ScramServer]
    ) -> bytes:
        handler = {
            PRODUCE: self._produce,
            LIST_OFFSETS: self._list_offsets,
            METADATA: self._metadata,
            DELETE_TOPICS: self._delete_topics,
            DELETE_RECORDS: self._delete_records,
            DESCRIBE_PRODUCERS: self._describe_producers,
        }
        if key == FETCH:
            answer = await self._fetch(node, request, code)
        elif key == API_VERSIONS:
            version_type = ApiVersionsResponse.ApiVersion
            keys = [version_type(version=0, api_key=k, min_version=0, max_version=v) for k, v in self.offered.items()]
            answer = ApiVersionsResponse(version=0, error_code=0, api_keys=keys)
        elif key == SASL_HANDSHAKE:
            login[:] = [ScramServer(self.users or {}, lying=self.lying)]
            answer = SaslHandshakeResponse(version=version, error_code=code, mechanisms=["SCRAM-SHA-512"])
        elif key == SASL_AUTHENTICATE:
            step = login[0].step(bytes(request.auth_bytes))
            answer = SaslAuthenticateResponse(
                version=version,
                error_code=58 if step is None else 0,
                error_message="Authentication failed" if step is None else None,
                auth_bytes=step or b"",
                session_lifetime_ms=self.lifetime_ms,
            )
        else:
            answer = handler[key](node, version, request, code)
        return bytes(answer.encode(version=version))

    def _routed(self, node: int, name: str) -> int:
        if name not in self.logs:
            return 3
        return 0 if self.logs[name].leader == node else 6

    def _metadata(self, node: int, version: int, request: Any, code: int) -> Any:
        names = [topic.name for topic in request.topics] if request.topics is not None else list(self.logs)
        topics = []
        for name in names:
            log = self.logs.get(name)
            partitions = []
            if log is not None and not code:
                partitions.append(
                    MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
                        version=version,
                        error_code=0 if log.leader >= 0 else 5,
                        partition_index=0,
                        leader_id=log.leader,
                        leader_epoch=0,
                        replica_nodes=list(range(log.replicas)),
                        isr_nodes=list(range(log.replicas)),
                        offline_replicas=[],
                    )
                )
            topics.append(
                MetadataResponse.MetadataResponseTopic(
                    version=version,
                    error_code=code or (0 if log is not None else 3),
                    name=name,
                    topic_id=log.topic_id if log is not None else uuid.UUID(int=0),
                    is_internal=False,
                    partitions=partitions,
                )
            )
        brokers = [
            MetadataResponse.MetadataResponseBroker(
                version=version, node_id=n, host="127.0.0.1", port=self.ports[n], rack=None
            )
            for n in self._servers
        ]
        return MetadataResponse(
            version=version, throttle_time_ms=0, brokers=brokers, cluster_id="fake", controller_id=0, topics=topics
        )

    def _produce(self, node: int, version: int, request: Any, code: int) -> Any:
        topic_type = ProduceResponse.TopicProduceResponse
        topics = []
        by_id = {log.topic_id: name for name, log in self.logs.items()} if version >= 13 else None
        for topic in request.topic_data:
            answers = []
            name: str | None = topic.name if by_id is None else by_id.get(topic.topic_id)
            topic.name = name  # for tests that look at requests
            for part in topic.partition_data:
                error = code or (UNKNOWN_TOPIC_ID if name is None else self._routed(node, name))
                base, time = -1, -1
                if not error and name is not None:
                    error, base, time = self.logs[name].append(bytes(part.records))
                answers.append(
                    topic_type.PartitionProduceResponse(
                        version=version,
                        index=part.index,
                        error_code=error,
                        base_offset=base,
                        log_append_time_ms=time,
                        log_start_offset=0,
                        record_errors=[],
                        error_message=None,
                    )
                )
            topics.append(
                topic_type(version=version, name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
        self.change()
        return ProduceResponse(version=version, responses=topics, throttle_time_ms=0)

    def _list_offsets(self, node: int, version: int, request: Any, code: int) -> Any:
        topic_type = ListOffsetsResponse.ListOffsetsTopicResponse
        topics = []
        for topic in request.topics:
            answers = []
            for part in topic.partitions:
                error = code or self._routed(node, topic.name)
                offset = -1
                if not error:
                    log = self.logs[topic.name]
                    offset = {-1: log.high_watermark, -2: log.start}.get(part.timestamp, -1)
                    if part.timestamp >= 0:
                        later = (h.base_offset for h, _ in log.batches if h.max_timestamp >= part.timestamp)
                        offset = next(later, -1)
                answers.append(
                    topic_type.ListOffsetsPartitionResponse(
                        version=version,
                        partition_index=part.partition_index,
                        error_code=error,
                        timestamp=-1,
                        offset=offset,
                        leader_epoch=0,
                    )
                )
            topics.append(topic_type(version=version, name=topic.name, partitions=answers))
        return ListOffsetsResponse(version=version, throttle_time_ms=0, topics=topics)

    def _describe_producers(self, node: int, version: int, request: Any, code: int) -> Any:
        topic_type = DescribeProducersResponse.TopicResponse
        topics = []
        for topic in request.topics:
            error = code or self._routed(node, topic.name)
            log = self.logs.get(topic.name)
            states = [
                topic_type.PartitionResponse.ProducerState(
                    version=version,
                    producer_id=pid,
                    producer_epoch=state.epoch,
                    last_sequence=state.last_sequence,
                    last_timestamp=state.last_timestamp,
                    coordinator_epoch=-1,
                    current_txn_start_offset=-1,
                )
                for pid, state in (log.producers.items() if log is not None and not error else ())
            ]
            answers = [
                topic_type.PartitionResponse(
                    version=version,
                    partition_index=number,
                    error_code=error,
                    error_message=None,
                    active_producers=states,
                )
                for number in topic.partition_indexes
            ]
            topics.append(topic_type(version=version, name=topic.name, partitions=answers))
        return DescribeProducersResponse(version=version, throttle_time_ms=0, topics=topics)

    def _delete_records(self, node: int, version: int, request: Any, code: int) -> Any:
        topic_type = DeleteRecordsResponse.DeleteRecordsTopicResult
        topics = []
        for topic in request.topics:
            answers = []
            for part in topic.partitions:
                error = code or self._routed(node, topic.name)
                if not error:
                    self.logs[topic.name].start = part.offset
                answers.append(
                    topic_type.DeleteRecordsPartitionResult(
                        version=version,
                        partition_index=part.partition_index,
                        low_watermark=-1 if error else part.offset,
                        error_code=error,
                    )
                )
            topics.append(topic_type(version=version, name=topic.name, partitions=answers))
        return DeleteRecordsResponse(version=version, throttle_time_ms=0, topics=topics)

    def _delete_topics(self, _node: int, version: int, request: Any, code: int) -> Any:
        """By their ids, as only ids are asked for."""
        result = DeleteTopicsResponse.DeletableTopicResult
        answers = []
        for topic in request.topics:
            name = next((name for name, log in self.logs.items() if log.topic_id == topic.topic_id), None)
            if name is not None and not code:
                del self.logs[name]
                self.change()
            error = code or (UNKNOWN_TOPIC_ID if name is None else 0)
            answers.append(
                result(version=version, name=name, topic_id=topic.topic_id, error_code=error, error_message=None)
            )
        return DeleteTopicsResponse(version=version, throttle_time_ms=0, responses=answers)

    # --- fetch

    async def _fetch(self, node: int, request: Any, code: int) -> Any:
        if code in (70, 71):
            if code == 70:
                self.sessions.pop(request.session_id, None)
            return fetch_response(code, 0, {})
        wanted = {(topic.topic_id, part.partition): part for topic in request.topics for part in topic.partitions}
        offsets = {key: part.fetch_offset for key, part in wanted.items()}
        session: Session | None = None
        session_id = 0
        if request.session_epoch == 0:
            self.sessions.pop(request.session_id, None)
            self._next_session += 1
            session_id, session = self._next_session, Session(wanted=offsets)
            self.sessions[session_id] = session
        elif request.session_epoch > 0:
            session_id = request.session_id
            session = self.sessions.get(session_id)
            if session is None:
                return fetch_response(70, 0, {})
            if request.session_epoch != session.epoch:
                return fetch_response(71, 0, {})
            session.epoch += 1
            session.wanted.update(offsets)
            for topic in request.forgotten_topics_data:
                for number in topic.partitions:
                    session.wanted.pop((topic.topic_id, number), None)
        else:
            self.sessions.pop(request.session_id, None)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.max_wait_ms / 1000
        while True:
            changed = self._changed
            found = self._read(node, session.wanted if session else offsets, code, request.rack_id)
            urgent = any(error or records or preferred >= 0 for error, _, _, records, preferred in found.values())
            left = deadline - loop.time()
            if urgent or left <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                break
        if session is not None and request.session_epoch > 0:
            found = {
                key: entry
                for key, entry in found.items()
                if entry[0] or entry[3] or entry[4] >= 0 or session.told.get(key) != (entry[1], entry[2])
            }
        if session is not None:
            session.told.update({key: (entry[1], entry[2]) for key, entry in found.items()})
        return fetch_response(0, session_id, found)

    def _read(
        self, node: int, wanted: Mapping[tuple[uuid.UUID, int], int], code: int, rack: str
    ) -> dict[tuple[uuid.UUID, int], tuple[int, int, int, bytes, int]]:
        by_id = {log.topic_id: name for name, log in self.logs.items()}
        found = {}
        for (topic_id, number), offset in wanted.items():
            name = by_id.get(topic_id)
            error = code or (100 if name is None else self._routed(node, name))
            if name is not None and error == 6 and node in self.logs[name].near.values():
                error = 0
            if error or name is None:
                found[topic_id, number] = (error, -1, -1, b"", -1)
                continue
            log = self.logs[name]
            if not log.start <= offset <= log.end:
                found[topic_id, number] = (1, -1, -1, b"", -1)
            elif node == log.leader and rack in log.near:
                found[topic_id, number] = (0, log.high_watermark, log.start, b"", log.near[rack])
            else:
                found[topic_id, number] = (0, log.high_watermark, log.start, log.read(offset, 1 << 20), -1)
        return found


def fetch_response(
    code: int, session_id: int, found: Mapping[tuple[uuid.UUID, int], tuple[int, int, int, bytes, int]]
) -> Any:
    """A FetchResponse v13."""
    topic_type = FetchResponse.FetchableTopicResponse
    topics = [
        topic_type(
            version=13,
            topic_id=topic_id,
            partitions=[
                topic_type.PartitionData(
                    version=13,
                    partition_index=number,
                    error_code=error,
                    high_watermark=high,
                    last_stable_offset=high,
                    log_start_offset=start,
                    aborted_transactions=None,
                    preferred_read_replica=preferred,
                    records=records,
                )
            ],
        )
        for (topic_id, number), (error, high, start, records, preferred) in found.items()
    ]
    return FetchResponse(version=13, throttle_time_ms=0, error_code=code, session_id=session_id, responses=topics)


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for a condition of the fake or a client that nobody signals."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@asynccontextmanager
async def running(
    *, brokers: int = 1, users: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeCluster]:
    """A cluster with brokers 0, 1, ... for the length of a block; a mistake of the fake itself fails the test."""
    cluster = FakeCluster(users=users, tls=tls)
    for node in range(brokers):
        await cluster.start(node)
    try:
        yield cluster
    finally:
        await cluster.close()
    if cluster.errors:
        raise AssertionError("the fake broker failed") from cluster.errors[0]


async def open_cluster(fake: FakeCluster, *, seconds: float = 2.0) -> Cluster:
    """A client of the fake whose requests time out after ``seconds``."""
    return await Cluster.open(fake.endpoint(), client_id="test", request_timeout=seconds)
