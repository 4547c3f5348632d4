"""Both ends of a fetcher: a source with scripted answers, and an appender that records what it gets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from fairlead.custody.view import Seizure
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from replication.batch.prepared import Gap, PreparedBatch
from replication.catalog import EVERYTHING, SourceReach
from replication.link.byte_budget import LinkBudget
from replication.link.cut_off import LONGEST_GAP, SourceRules
from replication.link.fetcher import Fetcher
from replication.link.link_logs import Counters
from replication.overrides import NO_SKIPS, Skips
from replication.states import LogState
from replication.target.mirror import MirrorPartition
from topologies.model import Priority

LOG = TopicPartition("custody.tokyo")
NOTHING = memoryview(bytearray())


class Source:
    """A cluster and its fetch session in one: answers by script for one log, then waits for ever. Its logs begin at
    ``begins``."""

    seconds = 0.0
    received = 0

    def __init__(self, *answers: FetchedPartition, end: int, begins: int = 0, log: TopicPartition = LOG) -> None:
        self.answers = list(answers)
        self.end = end
        self.begins = begins
        self.log = log
        self.positions: list[int] = []
        self.followed: dict[TopicPartition, int] = {}
        self.asked: list[TopicPartition] = []  # start offsets of the logs
        self.late: dict[TopicPartition, int] = {}  # logs that no broker serves, with the code of the last error
        self.exhausted = asyncio.Event()

    def unserved(self, _seconds: float) -> dict[TopicPartition, int]:
        return self.late

    def fetch_session(self, **_: Any) -> Source:
        return self

    def set(self, log: TopicPartition, offset: int) -> None:
        self.positions.append(offset)
        self.followed[log] = offset

    def forget(self, log: TopicPartition) -> None:
        self.followed.pop(log, None)

    def cut_poll_short(self) -> None: ...

    async def close(self) -> None: ...

    async def poll(self, **_: Any) -> dict[TopicPartition, FetchedPartition]:
        if self.answers:
            return {self.log: self.answers.pop(0)}
        self.exhausted.set()
        return await asyncio.Future()

    async def start_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked += logs
        return dict.fromkeys(logs, self.begins)

    async def end_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(logs, self.end)


class Sink:
    """Stand in for the appender: record what it gets."""

    def __init__(self) -> None:
        self.steps: list[PreparedBatch | Gap] = []
        self.stopped: list[tuple[LogState, str]] = []

    fetchers = 0
    batch: bytes | None = None  # end offsets at the target
    only_fillers = False
    meanwhile: Callable[[], None] = staticmethod(lambda: None)  # called while the target is asked

    async def batch_at(self, tp: TopicPartition, offset: int) -> memoryview | None:
        self.meanwhile()
        return None if self.batch is None else memoryview(bytearray(self.batch))

    async def has_only_fillers(self, replica: MirrorPartition) -> bool:
        self.meanwhile()
        return self.only_fillers

    def fetch_share(self) -> int:
        return 1 << 20

    def submit_steps(self, replica: MirrorPartition, steps: list[PreparedBatch | Gap], feed: Fetcher) -> bool:
        self.steps += steps
        return True

    def withdraw(self, replica: MirrorPartition, feed: Fetcher) -> None: ...

    async def wait_ready(self, *, urgent: bool = False) -> None: ...

    def stop_log(self, replica: MirrorPartition, state: LogState, cause: str, hint: str = "") -> None:
        self.stopped.append((state, cause))


class FakeLinkLogs:
    """The logs of a link as its fetchers see them, with the link's rules; records what fetchers report.

    Attributes:
        troubles: Logs that the source cannot give: log, state, cause.
        beyond: Logs that continue with records the source may not write: log, reach.
        cut_off: Logs whose rest a seizure has cut off: log, seizure.
    """

    def __init__(
        self,
        name: str = "tokyo->singapore",
        *,
        start: str = "earliest",
        is_origin: bool = False,
        reach: SourceReach = EVERYTHING,
        seizures: Sequence[Seizure] = (),
        longest_gap: int = LONGEST_GAP,
        skipped: tuple[int, int] | None = None,
    ) -> None:
        self.name = name
        self.start = start
        self.budget = LinkBudget(None, now=time.monotonic())
        self.counters = Counters()
        self.ends: dict[TopicPartition, int] = {}
        self.unserved: dict[TopicPartition, int] = {}
        self.relist = asyncio.Event()
        self.rules = cast(SourceRules, self)
        self.troubles: list[tuple[TopicPartition, LogState, str]] = []
        self.beyond: list[tuple[TopicPartition, SourceReach]] = []
        self.cut_off: list[tuple[TopicPartition, Seizure]] = []
        self._is_origin = is_origin
        self._reach = reach
        self._seizures = seizures
        self._longest_gap = longest_gap
        self._skipped = skipped

    def stop_log(self, tp: TopicPartition, state: LogState, cause: str, hint: str = "") -> None:
        self.troubles.append((tp, state, cause))

    def show_unserved(self, tp: TopicPartition, code: int) -> None:
        self.unserved[tp] = code

    def show_served(self, tp: TopicPartition) -> None:
        del self.unserved[tp]

    def mark_cut_off(self, tp: TopicPartition, seizure: Seizure) -> None:
        self.cut_off.append((tp, seizure))

    def refuse_log(self, tp: TopicPartition, reach: SourceReach, problem: str) -> None:
        self.beyond.append((tp, reach))

    def replan(self, topic: str) -> None: ...

    async def brought_first(self, logs: Mapping[TopicPartition, int]) -> Collection[TopicPartition]:
        return ()

    # ---- the link's rules

    def is_origin(self, _topic: str) -> bool:
        return self._is_origin

    def reach(self, _topic: str) -> SourceReach:
        return self._reach

    def seizures(self, _topic: str) -> Sequence[Seizure]:
        return self._seizures

    def may_leave_out(self, _log: str, start: int, stop: int) -> bool:
        return stop - start <= self._longest_gap

    def skips(self, _log: str) -> Skips:
        return NO_SKIPS if self._skipped is None else Skips([self._skipped])


class FakeFetcher:
    """Instead of a fetcher: the logs that it would fetch."""

    def __init__(self, priority: Priority) -> None:
        self.priority = priority
        self.logs: set[TopicPartition] = set()

    def __len__(self) -> int:
        return len(self.logs)

    def follow(self, replica: MirrorPartition) -> None:
        self.logs.add(replica.tp)

    def unfollow(self, tp: TopicPartition) -> None:
        self.logs.remove(tp)

    def lag(self) -> int:
        return len(self.logs)
