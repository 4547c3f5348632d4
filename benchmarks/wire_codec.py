"""What the hand-written hot codecs cost beside kafka-python's, which is their oracle in the tests. No broker.

    python -m benchmarks.wire_codec [--logs 1000] [--bytes 400] [--rounds 20]

Prints a table and writes ``build/bench/wire_codec.json``: microseconds per log of CPU time, best round of each, with
``ours``, ``kafka_python`` and ``ratio`` (how many times faster) for a Produce request, a Fetch request, a Fetch
answer, and the encoding and decoding of one batch of one record. kafka-python computes CRC-32C in pure Python here
(its optional package for it is not a dependency), which is most of its time for a batch.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Callable
from typing import Any

from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from benchmarks._results import machine, write
from fairlead.kafka.convention import PRODUCER_ID, term_batch
from fairlead.kafka.protocol import fetch_codec, produce_codec
from fairlead.kafka.protocol.record import NewRecord, decode_batch
from fairlead.kafka.protocol.types import TP

Work = Callable[[], object]


def best(work: Work, rounds: int, logs: int) -> float:
    """Microseconds of CPU per log in the best round."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times) / logs * 1e6


def cases(logs: int, size: int) -> dict[str, tuple[Work, Work]]:
    """(ours, kafka-python's) for each case."""
    record = NewRecord(bytes(size), b"BIGU1000004", (("received", b"1700000000000"),), timestamp_ms=1_700_000_000_000)
    batch = term_batch([record], term=3, offset=1, marker=0)
    names = [f"containers.BIGU{index:07d}" for index in range(logs)]
    ids = [uuid.uuid4() for _ in range(logs)]
    batches = {TP(name): batch for name in names}
    wanted = [fetch_codec.Wanted(topic_id.bytes, 0, 5) for topic_id in ids]
    answer = bytearray(_answer(ids, batch).encode(version=13))

    def produce() -> Any:
        part = ProduceRequest.TopicProduceData.PartitionProduceData
        topics = [
            ProduceRequest.TopicProduceData(
                version=9, name=name, partition_data=[part(version=9, index=0, records=batch)]
            )
            for name in names
        ]
        request = ProduceRequest(version=9, transactional_id=None, acks=-1, timeout_ms=1, topic_data=topics)
        return request.encode(version=9)

    def fetch() -> Any:
        part = FetchRequest.FetchTopic.FetchPartition
        topics = [
            FetchRequest.FetchTopic(
                version=13,
                topic_id=topic_id,
                partitions=[part(version=13, partition=0, fetch_offset=5, partition_max_bytes=1)],
            )
            for topic_id in ids
        ]
        return FetchRequest(version=13, max_wait_ms=1, min_bytes=1, max_bytes=1, topics=topics).encode(version=13)

    def ours_fetch() -> Any:
        return fetch_codec.encode_request(
            wanted, max_wait_ms=1, min_bytes=1, max_bytes=1, partition_max_bytes=1, isolation=0
        )

    def build() -> Any:
        builder: Any = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=False,
            producer_id=PRODUCER_ID,
            producer_epoch=3,
            base_sequence=1,
            batch_size=1 << 20,
        )
        builder.append(0, record.timestamp_ms, record.key, record.value, list(record.headers))
        return builder.build()

    return {
        "produce request": (lambda: produce_codec.encode_request(batches, 1), produce),
        "fetch request": (ours_fetch, fetch),
        "fetch answer": (
            lambda: fetch_codec.decode_response(answer, 0),
            lambda: FetchResponse.decode(memoryview(answer), version=13),
        ),
        "encode batch": (
            lambda: [term_batch([record], term=3, offset=1, marker=0) for _ in range(logs)],
            lambda: [build() for _ in range(logs)],
        ),
        "decode batch": (
            lambda: [decode_batch(batch) for _ in range(logs)],
            lambda: [_read(DefaultRecordBatch(batch)) for _ in range(logs)],
        ),
    }


def _read(batch: Any) -> list[Any]:
    if not batch.validate_crc():
        raise RuntimeError("the benchmark's own batch has a wrong CRC")
    return list(batch)


def _answer(ids: list[uuid.UUID], batch: bytes) -> Any:
    topic = FetchResponse.FetchableTopicResponse
    topics = [
        topic(
            version=13,
            topic_id=topic_id,
            partitions=[
                topic.PartitionData(
                    version=13,
                    partition_index=0,
                    error_code=0,
                    high_watermark=9,
                    last_stable_offset=9,
                    log_start_offset=0,
                    aborted_transactions=None,
                    preferred_read_replica=-1,
                    records=batch,
                )
            ],
        )
        for topic_id in ids
    ]
    return FetchResponse(version=13, throttle_time_ms=0, error_code=0, session_id=1, responses=topics)


def main() -> None:
    """Run all cases, print the table, write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=400, help="size of each record's value")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    report: dict[str, Any] = {"logs": options.logs, "bytes": options.bytes}
    print(f"{'us per log':<18}{'ours':>8}{'kafka-python':>14}{'ratio':>8}")
    for name, (ours, theirs) in cases(options.logs, options.bytes).items():
        mine, other = (best(work, options.rounds, options.logs) for work in (ours, theirs))
        report[name] = {"ours": mine, "kafka_python": other, "ratio": other / mine}
        print(f"{name:<18}{mine:>8.2f}{other:>14.2f}{other / mine:>8.1f}")
    report["machine"] = machine()
    write("wire_codec", report)


if __name__ == "__main__":
    main()
