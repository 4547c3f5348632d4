"""Incremental fetch sessions (KIP-227): follow thousands of logs with requests that name only changes.

There is one session per broker, each with at most one request under way. A poll waits for the first answer and leaves
the other requests under way for the next poll.

A log is fetched from its leader. With a rack, the leader may name a follower that is nearer (KIP-392). The log is then
fetched from that follower until it fails, or ``PREFERRED_SECONDS`` have passed: then from the leader again. A leader
goes on naming a follower that has just died, so after a failure leaders are not told the rack for ``LEADER_SECONDS``.

After an answer that came too late, the session asks again and waits longer (``Patience``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from fairlead.kafka.client.connection import Connection, backoff, body_at
from fairlead.kafka.client.metadata import NO_LEADER, MetadataCache
from fairlead.kafka.client.pool import Pool
from fairlead.kafka.protocol import fetch_codec
from fairlead.kafka.protocol.errors import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NETWORK_EXCEPTION,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_ID,
    ConnectionLost,
    RequestTimeout,
    broker_error,
    is_retriable,
)
from fairlead.kafka.protocol.fetch_codec import EPOCH_NONE, EPOCH_OPEN, NO_SESSION, FetchAnswer, Wanted
from fairlead.kafka.protocol.types import TP, FetchedPartition
from fairlead.waiting import Patience

Partition = tuple[bytes, int]  # (topic id, partition number)


class BrokerSession:
    """The fetch session with one leader: the positions that the broker has, and the changes to send next. No I/O."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = EPOCH_OPEN
        self.logs: dict[TP, Partition] = {}
        self.names: dict[Partition, TP] = {}
        self.sent: dict[Partition, int] = {}  # the offsets that the broker has
        self._pending: dict[TP, None] = {}
        self._forgotten: dict[Partition, None] = {}

    def add(self, log: TP, topic_id: bytes) -> None:
        """Follow ``log``, which is not followed yet."""
        key = topic_id, log.partition
        self.logs[log] = key
        self.names[key] = log
        self._pending[log] = None
        self._forgotten.pop(key, None)

    def move(self, log: TP) -> None:
        """Note that the log's position changed."""
        self._pending[log] = None

    def remove(self, log: TP) -> None:
        """Stop following ``log``."""
        key = self.logs.pop(log, None)
        if key is None:
            return
        self.names.pop(key, None)
        self._pending.pop(log, None)
        if key in self.sent:
            self._forgotten[key] = None

    @property
    def has_changes(self) -> bool:
        """Whether the next request would name any change."""
        return bool(self._pending or self._forgotten)

    def next_request(self, offsets: dict[TP, int]) -> tuple[list[Wanted], list[Partition]]:
        """Return the changes for the next request, and mark them as sent."""
        if self.epoch == EPOCH_OPEN:
            changed = list(self.logs)
            self.sent.clear()
            self._forgotten.clear()
        else:
            changed = [log for log in self._pending if self.sent.get(self.logs[log]) != offsets[log]]
        self._pending.clear()
        forgotten = list(self._forgotten)
        self._forgotten.clear()
        for key in forgotten:
            del self.sent[key]
        wanted = []
        for log in changed:
            key = self.logs[log]
            self.sent[key] = offset = offsets[log]
            wanted.append(Wanted(*key, offset))
        return wanted, forgotten

    def answered(self, answer: FetchAnswer) -> None:
        """Take id and epoch from a successful answer; id 0 means that the broker keeps no session."""
        if answer.session_id == NO_SESSION:
            self.reset(NO_SESSION)
        elif self.epoch == EPOCH_OPEN:
            self.session_id, self.epoch = answer.session_id, 1
        else:
            self.epoch = 1 if self.epoch == 0x7FFFFFFF else self.epoch + 1

    def reset(self, session_id: int) -> None:
        """Start over with the full list of logs; the next request closes the session with this id."""
        self.session_id, self.epoch = session_id, EPOCH_OPEN


_SESSION_CODES: Final = {FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR}
_GOODBYE: Final = 1.0  # seconds to wait for the closing request
PREFERRED_SECONDS: Final = 300.0  # as Kafka's consumer, by metadata.max.age.ms
LEADER_SECONDS: Final = 30.0
_RACK_WAIT: Final = 1.0
_RACK_WAIT_PER_LOG: Final = 0.2e-3  # a broker spends about 12 microseconds on each log of a session at each request
_SLOWEST_ROUTE: Final = 1.0  # most seconds between two lookups of a log's leader


@dataclass(slots=True)
class _Failing:
    """A log that no broker serves. Times are on the loop's clock.

    Args:
        since: When it failed first.
        code: The last error.
        failures: How often it failed, without success in between.
        retry_at: When it is looked up again.
    """

    since: float
    code: int = 0
    failures: int = 0
    retry_at: float = 0.0


class FetchSession:
    """Follows many logs of one cluster. Created by ``Cluster.fetch_session``; allows one poll at a time.

    Every poll returns a log's data again until ``set`` moves its position or ``forget`` drops the log.
    """

    def __init__(
        self,
        pool: Pool,
        metadata: MetadataCache,
        refresh: Callable[[Collection[str]], Awaitable[None]],
        by_leader: Callable[[Iterable[TP]], Awaitable[dict[int, list[TP]]]],
        *,
        role: str,
        isolation: int,
    ) -> None:
        """``refresh`` and ``by_leader`` are the cluster's."""
        self._pool = pool
        self._metadata = metadata
        self._refresh = refresh
        self._by_leader = by_leader
        self._patience = Patience(pool.request_timeout)
        self._role = role
        self._isolation = isolation
        self._rack = pool.endpoint().rack
        self._rack_from = 0.0  # on the loop's clock: until then the leaders are not told the rack
        self._preferred: dict[TP, int] = {}  # followers that leaders named
        self._leaders_at = 0.0  # when all of them are given up, on the loop's clock
        self._loop = asyncio.get_running_loop()
        self._offsets: dict[TP, int] = {}
        self._ids: dict[TP, bytes] = {}
        self._home: dict[TP, int] = {}
        self._sessions: dict[int, BrokerSession] = {}
        self._requests: dict[int, asyncio.Task[FetchAnswer]] = {}
        self._unrouted: dict[TP, None] = {}
        self._failing: dict[TP, _Failing] = {}
        self._woken = asyncio.Event()
        self._cut_wanted = False  # long polls are cut short as soon as new logs are routed
        self.received = 0  # total bytes of all answers, with their frame headers
        self.seconds = 0.0  # that the last answer took from its first byte to its last

    def __len__(self) -> int:
        """Return how many logs are followed."""
        return len(self._offsets)

    def set(self, log: TP, offset: int) -> None:
        """Follow ``log`` from ``offset`` on; moves the position of a log that is already followed."""
        self._offsets[log] = offset
        node = self._home.get(log)
        if node is not None:
            self._sessions[node].move(log)
        else:
            self._unrouted[log] = None
            self._woken.set()

    def forget(self, log: TP) -> None:
        """Stop following ``log``; ignored when it is not followed."""
        self._leave_home(log)
        self._offsets.pop(log, None)
        self._ids.pop(log, None)
        self._unrouted.pop(log, None)
        self._preferred.pop(log, None)
        self._failing.pop(log, None)

    def unserved(self, seconds: float) -> dict[TP, int]:
        """Return the logs that no broker has served for so many seconds, each with the code of its last error."""
        now = self._loop.time()
        return {log: each.code for log, each in self._failing.items() if now - each.since >= seconds}

    async def poll(
        self, *, max_wait_ms: int = 500, max_bytes: int = 16 << 20, partition_max_bytes: int = 1 << 20
    ) -> dict[TP, FetchedPartition]:
        """Wait for changes: new records, a moved high watermark or start, or an error; {} when nothing changed in time.

        Retries routing errors (a leader moved, a topic not known yet). Returns any other error once, after which the
        log is not fetched until ``set`` is called again: 1 (the offset is not in the log), 29 (not authorised), 100
        (the topic was deleted and created again). Cancelling loses no data: the next poll returns it.

        Raises:
            ConnectionLost: no broker of the cluster can be reached now; call again after a pause.
            AuthenticationFailed: the login was refused.
        """
        deadline = self._loop.time() + max_wait_ms / 1000
        results: dict[TP, FetchedPartition] = {}
        while True:
            self._woken.clear()
            if self._preferred and self._loop.time() >= self._leaders_at:
                self._return_to_leaders()
            await self._route(results)
            if self._cut_wanted:
                self._cut_wanted = False
                self._cut_short()
            left = 0.0 if results else max(0.0, deadline - self._loop.time())
            for node, session in list(self._sessions.items()):
                if node not in self._requests and session.logs:
                    # Try at least once even when the time is up, so that short polls make progress.
                    wait_ms = int(min(left, self._longest_wait()) * 1000)
                    request = self._request(node, session, wait_ms, max_bytes, partition_max_bytes)
                    self._requests[node] = self._loop.create_task(request)
            await self._wait(self._next_moment(left), patient=not results)
            self._collect(results)
            if results or self._loop.time() >= deadline:
                return results

    def cut_poll_short(self) -> None:
        """Apply changed positions and new logs now instead of after the long poll that is under way.

        A request cannot be cancelled, so this closes its connection and starts the session over with the full list:
        some 30 bytes a log and a login. Call it rarely, and not over a slow link.
        """
        self._cut_wanted = True
        self._woken.set()

    def _cut_short(self) -> None:
        """End the requests under way to brokers that do not know of a change yet."""
        for node, request in list(self._requests.items()):
            session = self._sessions[node]
            if session.has_changes and not request.done():
                request.cancel()
                del self._requests[node]
                self._pool.drop(self._role, node)
                session.reset(session.session_id)

    async def close(self) -> None:
        """End the sessions and close their connections."""
        for node, session in self._sessions.items():
            if node not in self._requests and session.session_id != NO_SESSION:
                await self._say_goodbye(node, session)
        requests = list(self._requests.values())
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        self._requests.clear()
        self._sessions.clear()
        self._home.clear()
        self._pool.close_role(self._role)

    async def _say_goodbye(self, node: int, session: BrokerSession) -> None:
        connection = self._pool.ready(self._role, node)
        if connection is None:
            return
        body = self._body([], [], session.session_id, EPOCH_NONE, 0, 0, 0)
        try:
            await connection.send(fetch_codec.API_KEY, fetch_codec.VERSION, [body], seconds=_GOODBYE)
        except (ConnectionLost, RequestTimeout):
            return  # the broker drops the session by itself when it needs the room

    # --- where logs are

    async def _route(self, results: dict[TP, FetchedPartition]) -> None:
        """Assign each log without a session to the session of the follower that its leader named, or of its leader."""
        now = self._loop.time()
        due = [log for log in self._unrouted if self._retry_at(log) <= now]
        if not due:
            return
        suspect = {log.topic for log in due if log in self._failing}
        if suspect:
            await self._refresh(suspect)
        found = await self._by_leader(due)
        groups: dict[int, list[TP]] = {}
        for leader, logs in found.items():
            for log in logs:
                if log in self._unrouted:  # the caller may have forgotten it while the cluster was asked
                    node = leader if leader == NO_LEADER else self._preferred.get(log, leader)
                    groups.setdefault(node, []).append(log)
        for log in groups.pop(NO_LEADER, ()):
            code = self._metadata.why_no_leader(log)
            if is_retriable(code):
                self._delay(log, code)
            else:
                self._report(log, code, results)
        for node, logs in groups.items():
            session = self._sessions.get(node)
            if session is None:
                session = self._sessions[node] = BrokerSession()
            for log in logs:
                topic_id = self._metadata.topic_id(log.topic)
                if topic_id is None or self._ids.setdefault(log, topic_id) != topic_id:
                    self._report(log, UNKNOWN_TOPIC_ID, results)
                    continue
                session.add(log, topic_id)
                self._home[log] = node
                del self._unrouted[log]

    def _prefer(self, log: TP, node: int) -> None:
        """Fetch the log from a follower from now on."""
        if not self._preferred:
            self._leaders_at = self._loop.time() + PREFERRED_SECONDS
        self._preferred[log] = node
        self._leave_home(log)
        self._unrouted[log] = None

    def _leave_follower(self, log: TP) -> None:
        """Fetch the log from its leader after a failure; ignored if it is fetched from there."""
        if self._preferred.pop(log, None) is not None:
            self._rack_from = self._loop.time() + LEADER_SECONDS

    def _return_to_leaders(self) -> None:
        """Ask the leaders again: another follower may be nearer, or better, by now."""
        for log in self._preferred:
            self._leave_home(log)
            self._unrouted[log] = None
        self._preferred.clear()

    def _leave_home(self, log: TP) -> None:
        node = self._home.pop(log, None)
        if node is not None:
            self._sessions[node].remove(log)

    def _delay(self, log: TP, code: int) -> None:
        now = self._loop.time()
        failing = self._failing.setdefault(log, _Failing(now))
        failing.code, failing.retry_at = code, now + backoff(failing.failures, _SLOWEST_ROUTE)
        failing.failures += 1
        self._unrouted[log] = None

    def _retry_at(self, log: TP) -> float:
        failing = self._failing.get(log)
        return failing.retry_at if failing is not None else 0.0

    def _report(self, log: TP, code: int, results: dict[TP, FetchedPartition]) -> None:
        self.forget(log)
        results[log] = fetch_codec.failed(code)

    # --- requests

    def _next_moment(self, left: float) -> float:
        if not self._unrouted:
            return left
        now = self._loop.time()
        first = min(map(self._retry_at, self._unrouted))
        return min(left, max(0.0, first - now))

    def _longest_wait(self) -> float:
        """Return how many seconds a request may wait at a broker.

        With a rack, logs move between brokers, and one that comes waits for the request that is under way there.
        """
        return _RACK_WAIT + _RACK_WAIT_PER_LOG * len(self._offsets) if self._rack else 1e6

    async def _wait(self, seconds: float, *, patient: bool) -> None:
        """Wait until a request is answered, a log is added, or the time is up; return at once unless ``patient``."""
        if not patient:
            return
        woken = self._loop.create_task(self._woken.wait())
        # A broker answers a little after the wait that it was given: allow 50 ms, instead of returning with nothing.
        grace = 0.05 if self._requests else 0.0
        try:
            await asyncio.wait(
                [woken, *self._requests.values()], timeout=seconds + grace, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            woken.cancel()

    async def _request(
        self, node: int, session: BrokerSession, wait_ms: int, max_bytes: int, partition_max_bytes: int
    ) -> FetchAnswer:
        connection: Connection = await self._pool.get(self._role, node)
        wanted, forgotten = session.next_request(self._offsets)
        body = self._body(wanted, forgotten, session.session_id, session.epoch, wait_ms, max_bytes, partition_max_bytes)
        seconds = max(self._pool.request_timeout, self._patience.seconds) + wait_ms / 1000
        frame = await connection.send(fetch_codec.API_KEY, fetch_codec.VERSION, [body], seconds=seconds)
        self.seconds = connection.seconds
        self.received += len(frame) + 4
        with connection.decoding():
            return fetch_codec.decode_response(frame, body_at(frame))

    def _body(
        self,
        wanted: list[Wanted],
        forgotten: list[Partition],
        session_id: int,
        epoch: int,
        wait_ms: int,
        max_bytes: int,
        partition_max_bytes: int,
    ) -> bytearray:
        return fetch_codec.encode_request(
            wanted,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
            isolation=self._isolation,
            session_id=session_id,
            session_epoch=epoch,
            forgotten=forgotten,
            rack=self._rack if self._rack and self._loop.time() >= self._rack_from else "",
        )

    def _collect(self, results: dict[TP, FetchedPartition]) -> None:
        """Apply all answers that have arrived; raise a failed request's error only after that."""
        failure: BaseException | None = None
        for node, request in list(self._requests.items()):
            if not request.done():
                continue
            del self._requests[node]
            error = request.exception()
            if error is None:
                self._take(node, request.result(), results)
                continue
            self._abandon(node, REQUEST_TIMED_OUT if isinstance(error, RequestTimeout) else NETWORK_EXCEPTION)
            if isinstance(error, RequestTimeout):
                self._patience.note_late()
            if not isinstance(error, ConnectionLost | RequestTimeout):
                failure = error
        if failure is not None:
            raise failure

    def _take(self, node: int, answer: FetchAnswer, results: dict[TP, FetchedPartition]) -> None:
        session = self._sessions[node]
        if answer.error_code:
            if answer.error_code not in _SESSION_CODES and not is_retriable(answer.error_code):
                raise broker_error(answer.error_code)
            lost = answer.error_code == FETCH_SESSION_ID_NOT_FOUND
            session.reset(NO_SESSION if lost else session.session_id)
            return
        session.answered(answer)
        for topic_id, number, content in answer.partitions:
            key = topic_id, number
            log = session.names.get(key)
            if log is None or session.sent.get(key) != self._offsets[log]:
                continue  # forgotten or moved while the request was under way
            if key in answer.preferred:
                if answer.preferred[key] != node:
                    self._prefer(log, answer.preferred[key])
            elif content.error_code == 0:
                results[log] = content
            elif is_retriable(content.error_code) or log in self._preferred:  # the leader says whether it is an error
                self._leave_follower(log)
                self._leave_home(log)
                self._delay(log, content.error_code)
            else:
                self._report(log, content.error_code, results)
        for log in [each for each in self._failing if self._home.get(each) == node]:
            if session.logs[log] in session.sent:  # it was asked for, and there is no error
                del self._failing[log]

    def _abandon(self, node: int, code: int) -> None:
        """Drop the session of a lost connection, and look up the leaders of its logs again."""
        session = self._sessions.pop(node)
        for log in session.logs:
            self._home.pop(log, None)
            self._leave_follower(log)
            self._delay(log, code)
