"""The operator's day of docs/access.md works on real sites, with exactly the commands that are printed there."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

import shore
from acl.apply import apply_topology
from acl.kafka import AdminStore, Client
from acl.plan import AccessRun, SitePlan, carry_out
from acl.rules import Binding, Operation, Pattern, Resource, Rule
from fairlead.cli.app import run
from fairlead.cli.commands.bridge import make_bridge
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.records import encode
from fairlead.records.booking import Booking
from simulators.steps import BOOKINGS_TOPIC
from tests.support import waits
from tests.support.edge.fleet import Publisher, until
from tests.support.logins import accepts
from tests.support.operators_day import PAGE, parts_of_the_day
from tests.support.patience import patient
from tests.support.shore.world import MINUTE, T0, World, reading
from tests.support.waits import PATIENCE
from topologies.context import Context, open_topology
from topologies.users import ADMIN, service_users

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.chaos]  # more than a minute

HQ, PORT, BOX = "los-angeles", "singapore", "BIGU1000010"
TOPOLOGY: Final = """\
name: day
sites:
  los-angeles: {kind: hq, unlocode: USLAX}
  singapore: {kind: port, unlocode: SGSIN}
streams:
  containers: {insert_point: moves, owners: [BIGU]}
links:
  - {from: singapore, to: los-angeles, both: true, streams: {custody: all, events: all, bookings: all, containers: all}}
customers:
  ducks: {feed_at: los-angeles}
shore: {at: los-angeles}
"""
LIFE: Final = 2.0  # seconds until a client must log in again; the page says ten minutes
BY_HAND: Final = Binding.of(Rule("beans", Resource.TOPIC, Pattern.PREFIXED, "containers.", Operation.READ))
ASKS: Final = ("fairlead acl apply", "fairlead acl rotate", "fairlead acl offboard")  # these ask for a confirmation
Check = Callable[[str], None]


class Day:
    """The sites, the page's commands, and what happens between them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.file = folder / "day.yaml"
        self.file.write_text(TOPOLOGY, encoding="utf-8")
        self.parts = parts_of_the_day(PAGE.read_text(encoding="utf-8"))
        self.local = LocalSites(self.context.folder)
        self.played: list[str] = []

    @property
    def context(self) -> Context:
        """Open the topology as its file is now."""
        return open_topology(str(self.file))

    def kafka(self, user: str, site: str = HQ) -> KafkaEndpoint:
        return self.context.resolver.kafka(site, user)

    def play(self, title: str, *expected: tuple[str, int, Check]) -> None:
        """Run a part's commands in their order, as ``fairlead`` itself runs them, and confirm each.

        Args:
            expected: For each command its beginning, its exit code, and a check of its output. A new command on the
                page needs one here as well.
        """
        for command, (begins, code, check) in zip(self.parts[title].commands, expected, strict=True):
            assert command.startswith(f"fairlead {begins}"), f"{title}: {command}"
            self._capsys.readouterr()
            answer = ["--yes"] if command.startswith(ASKS) else []
            ended = run([*shlex.split(command)[1:], *answer])
            said = self._capsys.readouterr()
            assert ended == code, f"{command}: {said.out} {said.err}"
            check(said.out)
        self.played.append(title)

    async def book(self, booking: Booking) -> None:
        """Publish a booking by MQTT, and run the site's bridge until it has appended it to the log."""
        bridge, stop = make_bridge(self.context, HQ), asyncio.Event()
        working = asyncio.create_task(bridge.run(stop))
        desk = Publisher(self.context.resolver.mqtt(HQ, "device"))
        try:
            await until(lambda: bridge.ready.is_set() or working.done(), what="the bridge")
            await desk.publish(BOOKINGS_TOPIC, encode(booking))
            await until(lambda: working.done() or bridge.snapshot()["appended"], what="the booking in its log")
        finally:
            desk.close()
            stop.set()
            await working

    def shore(self, session: SparkSession) -> None:
        """Run shore's jobs once, as ``fairlead shore run`` does."""
        context, jobs = self.context, ("readings", "operations", "histories", "feeds")
        endpoint = context.resolver.kafka(HQ, "shore")
        patient(lambda: shore.run(context.topology, endpoint, context.folder, jobs, once=True, session=session))

    def client(self, until_: Callable[[str], bool]) -> None:
        """Run the program that was generated for the customer until it prints a line that ``until_`` accepts."""
        program = subprocess.Popen(  # the page's command wrote it
            [sys.executable, "feed.py"], cwd="beans-python", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        killer = threading.Timer(PATIENCE, program.kill)
        killer.start()
        try:
            assert program.stdout is not None and program.stderr is not None
            if not any(until_(line) for line in program.stdout):
                pytest.fail(program.stderr.read())
        finally:
            killer.cancel()
            program.kill()
            program.communicate()

    def by_hand(self, rule: Binding) -> None:
        """Create an ACL with the super user's password, without Fairlead."""
        with Client(self.kafka(ADMIN)) as client:
            carry_out(SitePlan(HQ, (rule,), (), 0).steps, AccessRun(AdminStore(client, local=True)))

    def write_topology(self, text: str) -> None:
        """Write the topology file, as the operator does in an editor."""
        self.file.write_text(text, encoding="utf-8")


def says(*texts: str, never: str = "") -> Check:
    """Return a check that the output contains all of these texts, and not ``never``."""

    def check(output: str) -> None:
        flat = re.sub(r"[\s│┃]+", " ", output)
        assert not [text for text in texts if text not in flat], output
        assert not never or never not in output, output

    return check


def test_the_day(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", str(tmp_path / "day.yaml"))
    day = Day(tmp_path, capsys)
    topology = day.context.topology
    properties = {"listener.name.client.connections.max.reauth.ms": str(int(LIFE * 1000))}
    specs = [
        SiteSpec(site, tuple(service_users(topology, site)), ("bridge", "device"), properties)
        for site in topology.sites
    ]
    day.local.up(specs)
    try:
        apply_topology(topology, day.context.resolver)
        live(day, spark)
    finally:
        day.local.down(purge=True)
    assert set(day.played) == set(day.parts)


def live(day: Day, spark: SparkSession) -> None:
    """Play the day on sites that run already."""
    World(day.kafka(ADMIN)).append({f"containers.{BOX}": [reading(BOX, n, T0 + n * MINUTE) for n in range(60)]})
    day.write_topology(TOPOLOGY.replace("customers:\n", day.parts["A new customer"].code))
    day.play(
        "A new customer",
        ("topology check", 0, says("ok", "2 sites")),
        ("up los-angeles", 0, says("1 site ready")),
        ("feed beans --client python --out", 0, says("feed.py")),
    )
    booked = Booking(
        booking_reference="B1",
        customer="beans",
        equipment_reference=BOX,
        valid_from=T0 + 10 * MINUTE,
        valid_to=T0 + 20 * MINUTE,
    )
    asyncio.run(day.book(booked))
    day.shore(spark)
    day.client(lambda line: line.startswith(BOX))

    asyncio.run(day.book(replace(booked, valid_from=T0 + 15 * MINUTE, valid_to=T0 + 25 * MINUTE)))
    day.shore(spark)
    day.play(
        "A changed booking",
        ("acl audit", 0, says("beans detailed los-angeles 2026-03-01 00:15:00 2026-03-01 00:25:00")),
        (
            "feed beans --once",
            0,
            lambda output: given(output, first=range(10, 20), back=range(10, 15), more=range(20, 25)),
        ),
    )

    leaked = day.kafka("beans")
    day.play(
        "A leaked password",
        ("acl rotate beans --now", 0, says("los-angeles: changed")),
        ("acl history", 0, says("rotate user beans because=leaked", "readmit user beans")),
        ("feed beans --client python --out", 0, says("feed.py")),
    )
    assert not accepts(leaked) and accepts(day.kafka("beans"))
    day.client(lambda line: line.startswith(BOX))

    day.by_hand(BY_HAND)
    day.play(
        "An audit question",
        (
            "acl audit",
            1,
            says("beans customer los-angeles NOT by the topology", f"feeds.beans, the feed that has records of {BOX}"),
        ),
        (
            "acl drift",
            1,
            says("los-angeles: not from the topology: beans may READ topic containers.*", "singapore: as the topology"),
        ),
        ("acl explain", 0, says(f"beans may not READ containers.{BOX}")),
        ("acl history --last 0", 0, every_change),
    )

    leaver = day.kafka("beans")
    day.write_topology(TOPOLOGY)
    day.play(
        "A customer leaves",
        (
            "acl plan --out",
            0,
            says("- beans may READ topic containers.*", "- beans may READ topic feeds.beans", never="- ducks"),
        ),
        ("acl apply", 0, says("los-angeles 0 3", "done")),
        ("acl offboard beans", 0, says("los-angeles")),
    )
    waits.until(lambda: not accepts(leaver), "the broker's refusal of the password")
    assert len(World(day.kafka(ADMIN)).read("feeds.beans")) > 20  # offboarding keeps the feed


def given(output: str, first: range, back: range, more: range) -> None:
    """Check the feed as it was read: records of minutes ``first``, retractions of ``back``, records of ``more``."""
    lines = re.findall(rf"00:(\d\d):00  {BOX}  (.)", output)
    assert [int(minute) for minute, _ in lines] == [*first, *back, *more]
    assert [mark for _, mark in lines] == [*" " * len(first), *"{" * len(back), *" " * len(more)]


def every_change(output: str) -> None:
    """Check the whole audit log: it begins with the sites' first rules and lacks the rule made by hand."""
    changes = json.loads(output)["changes"]
    assert {change["state"] for change in changes} == {"done"}
    assert [change["intent"][0]["action"] for change in changes if change["intent"][0]["kind"] == "user"] == [
        "rotate",
        "readmit",
    ]
    added = [rule for change in changes for part in change["intent"] for rule in part.get("add", ())]
    assert len(changes[0]["intent"][0]["add"]) > 20
    assert any(rule["name"] == "feeds.beans" for rule in added)
    assert not any(rule["principal"] == "User:beans" and rule["name"] == "containers." for rule in added)
