"""Copying stops although nothing is lost (quarantined, unavailable, paused), and commands resolve each state."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from typing import Any

import pytest

from acl.kafka import Client
from acl.rules import Binding
from fairlead.errors import ConfigurationError, ExitCode, RefusedError
from fairlead.kafka.admin import alter_topics
from fairlead.kafka.convention import is_filler, term_batch
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.record import NewRecord
from replication.operations.links.access import append_orders
from replication.overrides import Override, OverrideKind
from tests.integration.replication.resolving import Desk, data
from tests.support.access_rules import change
from tests.support.replication.lab import NOW_MS

pytestmark = pytest.mark.integration
HOUR_MS = 3_600_000
LIMIT = "message.timestamp.after.max.ms"


async def refused(desk: Desk, topic: str) -> tuple[int, int]:
    """Create a log with one batch from the far future, which beta's topic refuses; return that batch's base and end."""
    lab = desk.lab
    await lab.make("alpha", topic)
    await lab.make("beta", topic, **{LIMIT: str(HOUR_MS)})
    base = await lab.write("alpha", topic, 10, at=await lab.open_term("alpha", topic, term=1, at=0))
    late = [NewRecord(value=f"late {n}".encode(), timestamp_ms=NOW_MS + 24 * HOUR_MS) for n in range(3)]
    await lab.append("alpha", {topic: term_batch(late, term=1, offset=base, marker=0)})
    return base, await lab.write("alpha", topic, 5, at=base + 3)


async def test_quarantined_goes_on_when_the_cause_is_gone(desk: Desk) -> None:
    lab, topic = desk.lab, desk.lab.log("alpha.late")
    base, end = await refused(desk, topic)
    async with desk.replicating():
        shown = await desk.in_state(topic, "quarantined")
        assert f"offset {base}" in shown["cause"]
        assert (await desk.run("status", "--check")).exit_code == ExitCode.FAILED
        alter_topics(lab.kafka("beta"), {topic: {LIMIT: str(2**63 - 1)}})
        shown_only = await desk.run("link", "resolve", topic, "--site", "beta", "--dry-run")
        assert f"1. order the replicator to retry {topic}" in shown_only.output
        assert "Nothing was changed" in shown_only.output
        done = await desk.run("link", "resolve", topic, "--site", "beta", "--yes")
        assert f"done: {topic} at beta was quarantined" in done.output
        await desk.mirrored(topic, end)
        assert await lab.same(topic)
        assert await desk.kept(topic) == []


async def test_quarantined_is_skipped_and_the_batch_kept(desk: Desk) -> None:
    """Records without keys, which a compacted topic refuses, are skipped, and their batch is kept."""
    lab, topic = desk.lab, desk.lab.log("alpha.keyless")
    await lab.make("alpha", topic)
    base = await lab.write("alpha", topic, 10, at=await lab.open_term("alpha", topic, term=1, at=0))
    async with desk.replicating():
        await desk.mirrored(topic, base)
        alter_topics(lab.kafka("beta"), {topic: {"cleanup.policy": "compact"}})
        keyless = [NewRecord(value=f"keyless {n}".encode(), timestamp_ms=NOW_MS) for n in range(3)]
        await lab.append("alpha", {topic: term_batch(keyless, term=1, offset=base, marker=0)})
        end = await lab.write("alpha", topic, 5, at=base + 3)
        (offending,) = [each for each in await lab.stored("alpha", topic) if parse_header(each).base_offset == base]
        await desk.in_state(topic, "quarantined")
        await desk.resolve(topic, "--skip", "--yes")
        await desk.mirrored(topic, end)
        here, there = await lab.read("beta", topic), await lab.read("alpha", topic)
        assert data(here) == [each for each in data(there) if not base <= each[0] < base + 3]
        assert [each.offset for each in here if is_filler(each)] == [base, base + 1, base + 2]
        (kept,) = await desk.kept(topic)
        (record,) = await lab.read("beta", kept)
        assert record.value is not None
        assert record.value[:12] + bytes(4) + record.value[16:] == offending
        assert dict(record.headers)["offsets"] == f"{base}..{base + 2}".encode()
        await desk.mirrored(topic, await lab.write("alpha", topic, 5, at=end))


async def test_unavailable_goes_on_when_the_rights_are_back(desk: Desk) -> None:
    lab, topic = desk.lab, desk.lab.log("alpha.forbidden")
    await lab.make("alpha", topic)
    await lab.make("beta", topic)
    end = await lab.write("alpha", topic, 10, at=await lab.open_term("alpha", topic, term=1, at=0))
    denied = Binding("User:replicator", "TOPIC", "LITERAL", topic, "WRITE", "DENY", "*")
    with Client(lab.kafka("beta")) as client:
        await asyncio.to_thread(change, client, [denied])
    async with desk.replicating():
        shown = await desk.in_state(topic, "unavailable")
        assert "AUTHORIZATION" in shown["cause"]
        assert (await desk.run("status", "--check")).exit_code == ExitCode.OK
        with Client(lab.kafka("beta")) as client:
            await asyncio.to_thread(change, client, (), [denied])
        if topic in desk.replicator.snapshot()["logs"]:  # the replicator may have resumed by itself, or does it now
            with contextlib.suppress(ConfigurationError):
                await desk.resolve(topic, "--retry", "--yes")
        await desk.mirrored(topic, end)
        assert await lab.same(topic)


async def test_paused_is_resumed_and_a_paused_link_is_not(desk: Desk) -> None:
    lab, topic = desk.lab, desk.lab.log("alpha.paused")

    def order(kind: OverrideKind, **scope: Any) -> None:
        append_orders(
            lab.kafka("beta"),
            [Override(kind=kind, at=dt.datetime.now(dt.UTC), by="test", reason="for a test", **scope)],
        )

    await lab.make("alpha", topic)
    end = await lab.write("alpha", topic, 10, at=await lab.open_term("alpha", topic, term=1, at=0))
    async with desk.replicating():
        await desk.mirrored(topic, end)
        await asyncio.to_thread(order, OverrideKind.PAUSE, log=topic)
        shown = await desk.in_state(topic, "paused")
        assert "for a test" in shown["cause"]
        end = await lab.write("alpha", topic, 10, at=end)
        with pytest.raises(RefusedError, match="--refill does not resolve paused"):
            await desk.resolve(topic, "--refill", "--dry-run")
        await desk.resolve(topic, "--yes")
        await desk.mirrored(topic, end)
        await asyncio.to_thread(order, OverrideKind.PAUSE, stream=lab.stream, link="alpha->beta")
        await desk.in_state(topic, "paused")
        with pytest.raises(RefusedError, match=f"the pause is of stream {lab.stream} as a whole") as caught:
            await desk.resolve(topic, "--yes")
        assert caught.value.hint == f"fairlead link resume 'alpha->beta' --stream {lab.stream}"
        await asyncio.to_thread(order, OverrideKind.RESUME, stream=lab.stream, link="alpha->beta")
        await desk.mirrored(topic, await lab.write("alpha", topic, 5, at=end))
        with pytest.raises(ConfigurationError, match="is in no trouble at beta"):
            await desk.resolve(topic, "--dry-run")


async def test_a_skipped_batch_that_was_refused_for_its_time(desk: Desk) -> None:
    lab, topic = desk.lab, desk.lab.log("alpha.late")
    base, end = await refused(desk, topic)
    async with desk.replicating():
        await desk.in_state(topic, "quarantined")
        await desk.resolve(topic, "--skip", "--yes")
        await desk.mirrored(topic, end)
        here = await lab.read("beta", topic)
        assert [each.offset for each in here if is_filler(each)] == [base, base + 1, base + 2]
