"""Client quotas on a real broker: planned, applied, checked for drift, and enforced."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner, Result

from acl import kafka as store
from acl.apply import apply_sites, apply_topology
from acl.compile import KEYS, SetQuota
from acl.history import QuotaChange
from acl.kafka import NotAuthorised, admin_stores, read_history
from acl.saved import StalePlan
from fairlead.cli.commands.acl import app as acl_command
from fairlead.errors import ExitCode
from tests.integration.acl.conftest import PORT, SHIP, World, shows_quotas
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration
QUOTA = "{feed_at: port, quota: {consume: 20 kB/s, requests: 50 %}}"
Run = Callable[..., Result]


@pytest.fixture
def limited(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Yield the topology with a quota for customer ``ducks``; remove the quota afterwards."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(world.local.folder.parent))
    text = world.file.read_text(encoding="utf-8").replace("ducks: {feed_at: port}", f"ducks: {QUOTA}")
    assert QUOTA in text
    file = tmp_path / "limited.yaml"
    file.write_text(text, encoding="utf-8")
    yield file
    apply_topology(world.topology, world.resolver)
    shows_quotas(world.kafka(PORT), lambda quotas: quotas == {})


def run(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(acl_command.app, [*arguments, "--topology", str(file)])


def test_quotas_are_planned_applied_and_drift(world: World, limited: Path, tmp_path: Path) -> None:
    plan = run(limited, "plan")
    assert "port: set 2 client quotas" in plan.output
    assert "+ quota of ducks: consume 160 kbit/s" in plan.output
    assert "ship: " in plan.output and "0 to add, 0 to remove" in plan.output and "2 quotas to set" in plan.output
    saved = tmp_path / "quotas.plan"
    assert run(limited, "plan", "--out", str(saved)).exit_code == ExitCode.OK
    assert run(limited, "drift").exit_code == ExitCode.FAILED
    assert run(limited, "apply", "--yes", str(saved)).exit_code == ExitCode.OK
    wanted = {"ducks": {KEYS["consume"]: 20_000.0, KEYS["requests"]: 50.0}}
    shows_quotas(world.kafka(PORT), lambda quotas: quotas == wanted)
    assert store.read_quotas(world.kafka(SHIP)) == {}
    assert run(limited, "drift").exit_code == ExitCode.OK
    again = run(limited, "apply", "--yes", str(saved), "--json")
    assert {(r["site"], r["state"], r["error"]) for r in json.loads(again.stdout)} == {
        (PORT, "done", None),
        (SHIP, "new", None),
    }

    more = [SetQuota("ducks", KEYS["consume"], None, 9e9), SetQuota("other", KEYS["produce"], None, 1.0)]
    store.set_quotas(world.kafka(PORT), [*more, SetQuota("replicator", KEYS["consume"], None, 5.0)])
    shows_quotas(world.kafka(PORT), lambda quotas: {"other", "replicator"} <= quotas.keys())
    drift = run(limited, "drift")
    assert drift.exit_code == ExitCode.FAILED
    assert "consume 160 kbit/s (was 72 Gbit/s)" in drift.output and "- quota of other: produce" in drift.output
    stale = run(limited, "apply", "--yes", str(saved))
    assert isinstance(stale.exception, StalePlan)
    assert run(limited, "apply", "--yes").exit_code == ExitCode.OK
    service = {"replicator": {KEYS["consume"]: 5.0}}
    shows_quotas(world.kafka(PORT), lambda quotas: quotas == wanted | service)  # a service's quota is left alone
    store.set_quotas(world.kafka(PORT), [SetQuota("replicator", KEYS["consume"], 5.0, None)])
    entries, _ = read_history(world.kafka(PORT))
    noted = [e for e in entries if isinstance(e, QuotaChange)]
    assert [(e.user, e.phase.value) for e in noted[-4:]] == [
        ("ducks", "intent"),
        ("ducks", "done"),
        ("other", "intent"),
        ("other", "done"),
    ]
    assert noted[-1].quotas == {KEYS["produce"]: None}


def test_a_quota_throttles(world: World, limited: Path) -> None:
    """A quota slows its user down: the broker reports for how long it delays answers beyond the quota."""
    assert run(limited, "apply", "--yes").exit_code == ExitCode.OK
    admin = Producer({**world.kafka(PORT).librdkafka(), "log_level": 0})
    for _ in range(40):
        admin.produce("feeds.ducks", b"x" * 10_000)
    assert admin.flush(PATIENCE) == 0

    def throttled(user: str, topic: str) -> float:
        """Read 400 kB; return the longest delay that an answer reports, in seconds."""
        events: list[Any] = []  # the stubs do not describe its content
        settings = {"group.id": f"{user}.q", "log_level": 0, "throttle_cb": events.append, "enable.auto.commit": False}
        # otherwise librdkafka fetches everything at once and is throttled only once
        consumer = Consumer({**world.kafka(PORT, user).librdkafka(), **settings, "fetch.message.max.bytes": 40_000})
        consumer.assign([TopicPartition(topic, 0, 0)])
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE)[1]
        within, read_to = time.monotonic() + PATIENCE, 0
        while read_to < end and not any(event.throttle_time for event in events) and time.monotonic() < within:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                read_to = (message.offset() or 0) + 1
        consumer.close()
        return max((event.throttle_time for event in events), default=0.0)

    assert throttled("ducks", "feeds.ducks") > 0
    assert throttled("admin", "feeds.ducks") == 0


def test_who_may_not_is_told(world: World) -> None:
    """A user without the right to set quotas gets an error that says so."""
    with pytest.raises(NotAuthorised, match="may not read client quotas"):
        store.read_quotas(world.kafka(PORT, "bridge"))
    with pytest.raises(NotAuthorised, match="may not set client quotas"):
        store.set_quotas(world.kafka(PORT, "bridge"), [SetQuota("ducks", KEYS["consume"], None, 1.0)])


def test_a_site_without_quotas_is_left_in_peace(world: World) -> None:
    """A site without quotas in the topology is not changed."""
    results = apply_sites(world.topology, admin_stores(world.resolver))
    assert {(r.added, r.removed, r.error) for r in results} == {(0, 0, None)}
