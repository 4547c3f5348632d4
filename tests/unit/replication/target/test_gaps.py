"""Positioning fillers: finding those that an interrupted replicator left, and deleting them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import PRODUCER_ID, term_batch
from fairlead.kafka.protocol.errors import NETWORK_EXCEPTION, BrokerError, RequestTimeout, broker_error
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import FetchedPartition, TopicPartition
from fairlead.waiting import in_background
from replication.batch.prepared import POSITION_KEY, Gap
from replication.batch.rebuild import fillers
from replication.plan.retention import _bytes_of_record
from replication.target import gaps
from replication.target.gaps import Trimmer, interrupted
from tests.support.kafka.fake_broker import until

FILLED, DAMAGED = TopicPartition("orders.europe"), TopicPartition("orders.asia")
_STOP: Final = 9
_MAGIC: Final = 16  # where the header has the version of its format


def _fillers() -> bytes:
    return b"".join(bytes(each.data) for each in fillers(Gap(0, _STOP, PRODUCER_ID, 2, 0, 1, POSITION_KEY)))


def _data(offset: int) -> bytes:
    return term_batch([NewRecord(b"one", timestamp_ms=1)] * 2, term=2, offset=offset, marker=0)


def _damaged(batch: bytes) -> bytes:
    return batch[:_MAGIC] + b"\x09" + batch[_MAGIC + 1 :]


class Logs:
    """A cluster that has these logs, each from its first offset on."""

    def __init__(self, logs: Mapping[TopicPartition, tuple[int, bytes]]) -> None:
        self.logs = logs

    async def start_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.logs[tp][0] for tp in logs}

    async def fetch(self, starts: Mapping[TopicPartition, int], **_: Any) -> dict[TopicPartition, FetchedPartition]:
        return {tp: FetchedPartition(0, 99, 99, 0, (), memoryview(bytearray(self.logs[tp][1]))) for tp in starts}


async def _interrupted(there: int, start: str, damaged: bytes) -> dict[TopicPartition, int]:
    target = Logs({FILLED: (0, _fillers() + _data(_STOP)), DAMAGED: (0, damaged)})
    source = SimpleNamespace(start_offsets=Logs(dict.fromkeys((FILLED, DAMAGED), (there, b""))).start_offsets)
    return await interrupted(cast(Cluster, target), cast(Cluster, source), [DAMAGED, FILLED], start)


async def test_a_damaged_first_header_hides_no_fillers_of_other_logs() -> None:
    for start, there in (("latest", 0), ("earliest", _STOP)):
        found = await _interrupted(there, start, _damaged(_data(0)))
        assert found == {FILLED: _STOP, DAMAGED: 0}


async def test_fillers_before_a_damaged_header_stay() -> None:
    found = await _interrupted(_STOP, "earliest", _fillers() + _damaged(_data(_STOP)))
    assert found == {FILLED: _STOP, DAMAGED: 0}


async def test_a_damaged_header_ends_an_estimate_for_its_log_only() -> None:
    logs = Logs({FILLED: (0, _data(0)), DAMAGED: (0, _data(0) + _damaged(_data(2)))})
    assert await _bytes_of_record(cast(Cluster, logs), {FILLED: 0, DAMAGED: 0}) == len(_data(0)) / 2


@pytest.mark.parametrize(
    "failure", [broker_error(NETWORK_EXCEPTION, FILLED), RequestTimeout("no answer")], ids=["of the log", "of all"]
)
async def test_fillers_that_cannot_be_deleted_now_are_deleted_later(
    failure: BrokerError | RequestTimeout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "TRIM_AGAIN", 0.0)
    asked: list[dict[TopicPartition, int]] = []

    async def delete_records(before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | BrokerError]:
        asked.append({**before})
        if len(asked) > 1:
            return {**before}
        if isinstance(failure, BrokerError):
            return dict.fromkeys(before, failure)
        raise failure

    trimmer = Trimmer(cast(Cluster, SimpleNamespace(delete_records=delete_records)))
    trimmer.delete_before(FILLED, _STOP)
    async with in_background(trimmer.run()):
        await until(lambda: len(asked) == 2)
    assert asked == [{FILLED: _STOP}] * 2
