"""Finding each log's leader and asking it: metadata, retries, and what the protocol says about trying again."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from fairlead.endpoint import Endpoint, KafkaEndpoint
from fairlead.wire import metadata as md
from fairlead.wire.coding import Question
from fairlead.wire.connection import body_at
from fairlead.wire.errors import (
    NETWORK_EXCEPTION,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    ConnectionLost,
    RequestTimeout,
    broker_error,
    is_retriable,
)
from fairlead.wire.metadata_codec import decode_response
from fairlead.wire.pool import Pool
from fairlead.wire.retry import backoff
from fairlead.wire.types import TP, Coded, TopicInfo

T = TypeVar("T")

CONTROL: Final = "control"
BACKGROUND: Final = "background"  # questions that may be late: nothing else waits behind them
UNKNOWN_FOR: Final = 1.0  # seconds until a topic that metadata does not know counts as missing
_NO_ANSWER: Final = (NETWORK_EXCEPTION, REQUEST_TIMED_OUT)
LOGS_PER_REQUEST: Final = 2000  # of ListOffsets and the like: some 10 ms of coding each


class Router:
    """The half of ``Cluster`` that knows where logs are. Not thread safe, belongs to one event loop."""

    def __init__(self, endpoint: Endpoint, *, client_id: str, request_timeout: float) -> None:
        self.request_timeout = request_timeout
        self.metadata = md.MetadataCache()
        self.pool = Pool(endpoint, client_id, request_timeout)
        self.logs_per_request = LOGS_PER_REQUEST  # to be lowered where the way to the cluster is thin
        self._loop = asyncio.get_running_loop()
        self._refreshing = asyncio.Lock()
        self._wanted: set[str] = set()
        self._asked_at: dict[str, float] = {}
        self._seen = b""  # digest of the last answer with all topics
        self.whole_bytes = 0

    @property
    def endpoint(self) -> KafkaEndpoint:
        return self.pool.endpoint()

    async def topics(self, names: Collection[str] | None = None, *, refresh: bool = False) -> dict[str, TopicInfo]:
        """Topics by name; unknown and unauthorised ones are left out.

        ``names`` None means all visible ones, always asked from the cluster; named ones come from the cache where it
        knows them, unless ``refresh``.
        """
        if names is None:
            await self._retry(lambda: self.ask_metadata(None))
            return self.metadata.topics()
        missing = set(names) if refresh else set(names).difference(self.metadata.topics(names))
        if missing:
            await self._retry(lambda: self.refresh(missing))
        return self.metadata.topics(names)

    async def refresh(self, names: Collection[str]) -> None:
        """Ask for these topics anew. Callers at the same time share one request.

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

    async def all_topics(self) -> Mapping[str, TopicInfo] | None:
        """All visible topics, or None when nothing is different from the last call.

        For watching clusters of very many topics: an answer that is the same bytes as the last one is not decoded,
        which is nearly all of the cost. ``whole_bytes`` then tells the size of such an answer.

        Raises:
            ConnectionLost, RequestTimeout: no broker answered in time.
        """
        known: Mapping[str, TopicInfo] | None = None

        async def ask() -> None:
            nonlocal known
            body = await self._metadata_of(None)
            self.whole_bytes = len(body)
            seen = hashlib.blake2b(body, digest_size=16).digest()
            if seen != self._seen:
                self._take_over(body, None)
                self._seen = seen
                known = self.metadata.topics()

        await self._retry(ask)
        return known

    async def ask_metadata(self, names: Collection[str] | None) -> None:
        """One Metadata request to any broker, taken over; None asks for all visible topics."""
        self._take_over(await self._metadata_of(names), names)

    async def _metadata_of(self, names: Collection[str] | None) -> memoryview:
        connection = await self.pool.any(CONTROL)
        frame = await connection.ask(md.request(names))
        return memoryview(frame)[body_at(frame) :]

    def _take_over(self, body: memoryview, names: Collection[str] | None) -> None:
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
        """Logs by the node id of their leader, those without one under -1. Asks only for topics never asked for."""
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
        """Ask every log's leader, again where the protocol says so. ``patient``: unknown topics are waited for too."""
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
            for log in groups.pop(md.NO_LEADER, ()):
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
                absent = code == UNKNOWN_TOPIC_OR_PARTITION and self.metadata.leader(log) == md.NO_LEADER
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
        """Ask one leader about its logs, one request after the other: the coded requests and answers of very many logs
        take a multiple of their bytes in memory."""
        out: dict[TP, Coded[T]] = {}
        for part in chunks(logs, size):
            answer = await self._ask(node, part, ask)
            out |= answer
            if any(code in _NO_ANSWER for code, _ in answer.values()):
                return dict.fromkeys(logs, (NETWORK_EXCEPTION, None)) | out  # the others would only wait as long
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
        """Ask one broker, on the connection that no data goes over."""
        connection = await self.pool.get(CONTROL, node)
        return await connection.call(question)


def chunks(items: Sequence[TP], size: int) -> Iterable[list[TP]]:
    """``items`` in pieces of at most ``size``."""
    return (list(items[start : start + size]) for start in range(0, len(items), size))
