"""The status file of a replicator with very many logs in trouble."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.home import replace_file
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TopicPartition
from replication import replicator as replicating
from replication.replicator import Replicator
from replication.states import LogState, LogTrouble, now
from replication.target.appender import TargetAppender
from tests.support.kafka.fake_broker import until
from topologies.model import Topology


async def test_the_status_is_made_and_written_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of 100,000 logs in trouble takes seconds."""
    topology = Topology.model_validate({"name": "fleet", "sites": {"hq": {"kind": "hq"}}})
    file, here, made = tmp_path / "status.json", KafkaEndpoint("hq", (("127.0.0.1", 1),)), list[int]()
    replicator = Replicator(topology, "hq", here, lambda _: here, status_file=file)
    trouble = LogTrouble(LogState.UNAVAILABLE, "no leader", now())
    replicator._appender = cast(  # noqa: SLF001
        TargetAppender,
        SimpleNamespace(
            trouble=None,
            certificate_ends=None,
            queued=0,
            is_busy=lambda _: False,
            troubles=lambda: [(TopicPartition("orders.a"), trouble)],
        ),
    )

    def written(path: Path, content: bytes) -> None:
        made.append(threading.get_ident())
        replace_file(path, content)

    monkeypatch.setattr(replicating, "replace_file", written)
    reporting = asyncio.ensure_future(replicator._report())  # noqa: SLF001
    await until(file.exists)
    reporting.cancel()
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    assert found["logs"] == {"orders.a": trouble.as_json("orders.a", "hq")}
    assert found.keys() == replicator.snapshot().keys()
    assert threading.get_ident() not in made


def test_a_log_without_which_nothing_can_be_planned_is_in_the_status() -> None:
    topology = Topology.model_validate({"name": "fleet", "sites": {"hq": {"kind": "hq"}}})
    here, ledger = KafkaEndpoint("hq", (("127.0.0.1", 1),)), TopicPartition("custody.hq")
    replicator = Replicator(topology, "hq", here, lambda _: here)
    trouble = LogTrouble(LogState.UNAVAILABLE, "custody.hq is damaged", now())
    replicator._ledger.unread[ledger] = trouble  # noqa: SLF001
    assert replicator.snapshot()["logs"] == {"custody.hq": trouble.as_json("custody.hq", "hq")}
