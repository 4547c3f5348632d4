"""``fairlead acl audit`` against real clusters, compared with Kafka's own decisions."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
import typer
from confluent_kafka import KafkaException, TopicCollection
from deltalake import write_deltalake
from typer.testing import CliRunner, Result

from acl.kafka import Client
from acl.rules import Binding, Operation, Resource, decide
from fairlead.cli.commands.acl import app as acl_command
from fairlead.errors import ConfigurationError, ExitCode, UnknownNameError
from shore.paths import TablePaths
from shore.tables import TABLES
from tests.integration.acl.conftest import PORT, RED_BOX, SHIP, World
from tests.support.access_rules import change
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration
app = typer.Typer()
app.add_typer(acl_command.app, name="acl")
RED, DUCK = RED_BOX.removeprefix("red."), "BIGU1234560"
HERE = "127.0.0.1"


def rule(
    user: str, name: str, operation: str = "READ", pattern: str = "LITERAL", permission: str = "ALLOW", host: str = "*"
) -> Binding:
    return Binding(f"User:{user}", "TOPIC", pattern, name, operation, permission, host)


WORLDS = (
    (rule("ducks", RED_BOX),),
    (rule("ducks", "red.", pattern="PREFIXED"), rule("ducks", RED_BOX, permission="DENY")),
    (rule("ducks", "*", "ALL"),),
    (rule("*", "*", "DESCRIBE"), rule("ducks", "re", "WRITE", "PREFIXED")),
    (rule("ducks", RED_BOX, "ALL"), rule("*", "red.", "WRITE", "PREFIXED", "DENY")),
    (rule("ducks", RED_BOX, "ALL"), rule("*", "*", "ALL", permission="DENY", host="10.9.9.9")),
    (rule("ducks", RED_BOX, host=HERE), rule("ducks", RED_BOX, "DESCRIBE_CONFIGS", host="10.9.9.9")),
    (rule("ducks", RED_BOX, "ALL"), rule("ducks", RED_BOX, "ALTER", permission="DENY", host=HERE)),
    (rule("ducks", RED_BOX, "ALTER_CONFIGS"), rule("ducks", RED_BOX, "DELETE")),
    (rule("ducks", RED_BOX), rule("ducks", RED_BOX, "DESCRIBE", permission="DENY")),
    (rule("ducks", "red", "ALL"), rule("ducks2", RED_BOX, "ALL")),
)


@contextmanager
def holding(world: World, *rules: Binding) -> Iterator[frozenset[Binding]]:
    """Add these ACLs for the time of the block; yield all ACLs of the port."""
    with Client(world.kafka(PORT)) as client:
        yield change(client, rules)
        change(client, (), rules)


def judged(client: Client, topic: str) -> set[str]:
    """Return the operations that the broker allows this user on a topic; none when the user may not even see it."""
    futures = client.admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True)
    try:
        described = cast("Future[Any]", futures[topic]).result(timeout=PATIENCE)
    except KafkaException:
        return set()
    return {operation.name for operation in described.authorized_operations}


def test_kafka_judges_as_we_do(world: World) -> None:
    """Kafka allows exactly the operations that ``decide`` computes from the ACLs."""
    with Client(world.kafka(PORT, "ducks")) as ducks:
        for rules in WORLDS:
            with holding(world, *rules) as held:
                ours = {
                    operation.value
                    for operation in Operation
                    if decide(held, "User:ducks", HERE, operation, Resource.TOPIC, RED_BOX)
                }
                visible = ours if "DESCRIBE" in ours else set()
                assert judged(ducks, RED_BOX) == visible, rules


@pytest.fixture
def run(world: World, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("FAIRLEAD_HOME", str(world.local.folder.parent))

    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(app, ["acl", "audit", *arguments, "--topology", str(world.file)])
        assert not [secret for secret in world.passwords() if secret in result.output + str(result.exception)]
        return result

    return invoke


def test_a_cluster_as_the_topology_says_and_no_tables_yet(run: Any) -> None:
    """A cluster that matches the topology has no finding, even without tables."""
    result = run(RED, "--json")
    assert result.exit_code == ExitCode.OK, result.output
    body = json.loads(result.stdout)
    assert body["log"] == f"red.{RED}"
    who = {one["site"]: {r["user"]: r["verdict"] for r in one["readers"]} for one in body["sites"]}
    assert who[PORT] == dict.fromkeys(("bridge", "replicator", "replicator.ship", "shore", "red", "admin"), "agreed")
    assert "red" not in who[SHIP]
    assert "there are no tables in" in body["bookings_unknown"]
    text = run(RED).output
    assert "streams.red.permissions.consume: 'u:red & !g:suspended'" in text
    assert "nobody here knows the bookings" in text


def test_what_a_cluster_lets_read_against_the_topology(world: World, run: Any) -> None:
    """The audit reports users whom the cluster lets read more than the topology grants, or less."""
    mine = Binding("User:red", "TOPIC", "PREFIXED", "red.", "READ", "DENY", "10.9.9.9")
    with holding(world, rule("mallory", "*", "ALL"), rule("*", "re", "READ", "PREFIXED"), mine):
        result = run(RED, "--json", "--site", PORT)
        text = run(RED, "--site", PORT).output
    assert result.exit_code == ExitCode.FAILED
    readers = {r["user"]: r for r in json.loads(result.stdout)["sites"][0]["readers"]}
    assert (readers["mallory"]["kind"], readers["mallory"]["verdict"]) == ("unknown", "extra")
    assert readers["mallory"]["held"] == [str(rule("*", "re", "READ", "PREFIXED")), str(rule("mallory", "*", "ALL"))]
    assert readers["*"]["verdict"] == readers["ducks"]["verdict"] == readers["analyst"]["verdict"] == "extra"
    assert (readers["red"]["verdict"], readers["red"]["hosts"]) == ("partly", ["10.9.9.9"])
    assert "NOT by the topology" in text and "mallory may ALL topic *" in text and "not from 10.9.9.9" in text


def test_a_site_that_is_away_is_said(world: World, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site that does not answer is reported."""
    text = world.file.read_text(encoding="utf-8")
    ship = f'{SHIP}: {{kind: ship, imo: "9074729"'
    away = tmp_path / "away.yaml"
    away.write_text(text.replace(ship, f'{ship}, kafka: {{bootstrap: "127.0.0.1:1", security: SASL_PLAINTEXT}}'))
    monkeypatch.setenv("FAIRLEAD_SECRET_SHIP_ADMIN", "not-the-password-4711")
    result = CliRunner().invoke(app, ["acl", "audit", RED, "--topology", str(away)])
    assert result.exit_code == ExitCode.UNAVAILABLE
    assert "ship: not asked, site ship (127.0.0.1:1) does not answer" in result.output
    assert "cluster not asked" in result.output and "as the topology says" in result.output


def test_a_number_that_is_none_and_an_owner_that_nobody_has(run: Any) -> None:
    """An invalid container number, and an owner that nobody has, are errors."""
    wrong = run("REDU1234561").exception
    assert isinstance(wrong, ConfigurationError) and "check digit would be 7" in wrong.hint
    assert isinstance(run("red").exception, ConfigurationError)
    assert isinstance(run("CSQU3054383").exception, UnknownNameError)


def test_bookings_tell_whose_feed_has_its_records_and_when(world: World, run: Any) -> None:
    """From the bookings, the audit tells whose feed has a container's records, and when."""

    def change(offset: int, customer: str, reference: str, status: str, first: int, last: int | None) -> dict[str, Any]:
        day = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
        return {
            "log": f"bookings.{PORT}",
            "log_offset": offset,
            "booking_reference": reference,
            "customer": customer,
            "equipment_reference": DUCK,
            "status": status,
            "valid_from": day.replace(day=first),
            "valid_to": day.replace(day=last) if last else None,
            "record_date_time": day.replace(day=first, hour=offset),
        }

    changes = [
        change(1, "ducks", "B1", "CONFIRMED", 1, None),
        change(2, "ducks", "B1", "COMPLETED", 1, 5) | {"consignee": "red"},
        change(3, "other", "B2", "CONFIRMED", 7, None),
        change(4, "other", "B2", "CANCELLED", 7, None),
        change(5, "toyshop", "B3", "CONFIRMED", 9, None),
    ]
    paths = TablePaths.of(world.local.folder)
    write_deltalake(
        paths.table("booking_changes"), pa.Table.from_pylist(changes, schema=TABLES["booking_changes"].plain_schema)
    )
    try:
        result = run(DUCK, "--json", "--site", PORT)
        text = run(DUCK, "--site", PORT).output
    finally:
        shutil.rmtree(paths.tables)
    assert result.exit_code == ExitCode.OK, result.output
    body = json.loads(result.stdout)
    assert [(b["customer"], b["feed"], b["feed_at"], b["valid_from"][:10], b["valid_to"]) for b in body["feeds"]] == [
        ("ducks", "detailed", PORT, "2026-03-01", "2026-03-05T00:00:00Z"),
        ("red", None, None, "2026-03-01", "2026-03-05T00:00:00Z"),
        ("toyshop", None, None, "2026-03-09", None),
    ]
    told = [(b["customer"], b["party"], b["status"], b["valid_to"], b["until"] is None) for b in body["bookings"]]
    assert told == [
        ("ducks", "customer", "CONFIRMED", None, False),
        ("ducks", "customer", "COMPLETED", "2026-03-05T00:00:00Z", True),
        ("red", "consignee", "COMPLETED", "2026-03-05T00:00:00Z", True),
        ("other", "customer", "CONFIRMED", None, False),
        ("other", "customer", "CANCELLED", None, True),
        ("toyshop", "customer", "CONFIRMED", None, True),
    ]
    who = {one["log"]: {r["user"] for r in one["readers"]} for one in body["sites"]}
    assert who["feeds.ducks"] == {"ducks", "shore", "admin"} and "ducks" not in who[f"containers.{DUCK}"]
    assert set(who) == {f"containers.{DUCK}", "feeds.ducks", "feeds.other"}
    assert "has none" in text and "red (consignee)" in text
