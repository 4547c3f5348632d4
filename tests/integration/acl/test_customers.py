"""A customer's password gives access to its own data only, and the access probe notices if it gives more."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection

import pytest
from pydantic import SecretStr

from acl.kafka import Client, KafkaRules, NotAuthorised, Received, StartAt, UserConsumer, WrongPassword
from acl.probe import probe_customer
from acl.rules import Binding, Operation, Pattern, Resource, Rule
from fairlead.errors import UnavailableError, UnknownNameError
from fairlead.kafka.admin import create_logs
from tests.integration.acl.conftest import BOX, PORT, RED_BOX, SHIP, Append, World
from tests.support.access_rules import change
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.long, pytest.mark.integration]


def ends(world: World, topic: str, site: str = PORT) -> int:
    """Return the number of data records of a topic."""
    with UserConsumer(world.kafka(site), group="admin.count", timeout=PATIENCE) as reader:
        records = reader.read([topic], start=StartAt.BEGINNING, follow=False)
        return sum(1 for record in records if record is not None and record.is_data)


def test_a_customer_reads_its_feed_and_everything_else_is_refused(world: World, append: Append) -> None:
    """A customer reads its feed, and every other access is refused."""
    append(PORT, "feeds.ducks", b"marker", fairlead=b"marker")
    append(PORT, "feeds.ducks", b"filler", fairlead=b"filler")
    append(PORT, "feeds.ducks", b"reading", origin=b"containers.BIGU1234567@3")
    append(PORT, "feeds.other", b"secret")
    append(PORT, BOX, b"secret")
    seen: list[tuple[str, Received]] = []
    access = probe_customer(world.topology, world.resolver, "ducks", on_record=lambda s, r: seen.append((s, r)))
    assert access.wrongly_allowed == ()
    assert access.read == {"feeds.ducks": ends(world, "feeds.ducks")}
    assert access.sites == {PORT: access.read}
    assert {(site, record.topic) for site, record in seen} == {(PORT, "feeds.ducks")}
    assert len(seen) == access.read["feeds.ducks"] > 0
    assert all(record.value not in (b"secret", b"marker", b"filler") for _, record in seen)
    for tried in (
        f"{PORT}: reading feeds.other",
        f"{PORT}: reading {BOX}",
        f"{PORT}: writing feeds.ducks",
        f"{PORT}: writing {BOX}",
        f"{PORT}: deleting records of feeds.ducks",
        f"{PORT}: creating containers.probe",
        f"{PORT}: describing group shore.probe",
        f"{PORT}: describing group other.cli",
        f"{PORT}: reading offsets of group other.cli",
        f"{PORT}: reading settings of the broker",
        f"{PORT}: taking a transactional id",
        f"{PORT}: managing the cluster",
        f"{SHIP}: logging in as ducks",
    ):
        assert tried in access.refused


def test_an_owner_of_boxes_reads_its_stream(world: World, append: Append) -> None:
    append(PORT, RED_BOX, b"reading")
    access = probe_customer(world.topology, world.resolver, "red")
    assert access.wrongly_allowed == ()
    assert access.read == {RED_BOX: ends(world, RED_BOX)}
    assert f"{PORT}: reading reds.REEU1234567" in access.refused


def test_a_lessor_reads_its_boxes_of_anothers_stream_and_near_misses_are_refused(world: World, append: Append) -> None:
    """A lessor reads its own boxes in another owner's stream; similar container numbers are refused."""
    own = ("red.REDU9900001", "red.REDU9912345", "red.REDU9812345")
    others = ("red.REDU98123456", "red.REDU9812346", "red.REDU9", "red.REDU9800001")
    create_logs(world.kafka(PORT), {topic: {} for topic in (*own, *others)})
    for topic in (*own, *others):
        append(PORT, topic, b"reading")
    access = probe_customer(world.topology, world.resolver, "lessor")
    assert access.wrongly_allowed == ()
    assert access.read == {topic: ends(world, topic) for topic in own}
    with UserConsumer(world.kafka(PORT, "lessor"), group="lessor.cli") as reader:
        for topic in (*others, RED_BOX):
            with pytest.raises(NotAuthorised):
                reader.partitions(topic)
    delete_logs(world, others + own)


def delete_logs(world: World, topics: Collection[str]) -> None:
    with Client(world.kafka(PORT)) as client:
        for future in client.admin.delete_topics(list(topics)).values():
            client.wait(future, "deleting")


def test_a_customer_without_a_user_gets_in_nowhere(world: World) -> None:
    """A customer without a user cannot log in anywhere."""
    access = probe_customer(world.topology, world.resolver, "toyshop")
    assert access.read == {}
    assert access.refused == (f"{PORT}: logging in as toyshop", f"{SHIP}: logging in as toyshop")
    assert access.wrongly_allowed == ()


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (Rule("ducks", Resource.TOPIC, Pattern.PREFIXED, "feeds.", Operation.READ), "reading feeds.other"),
        (Rule("ducks", Resource.TOPIC, Pattern.LITERAL, BOX, Operation.READ), f"reading {BOX}"),
        (Rule("ducks", Resource.TOPIC, Pattern.PREFIXED, "feeds.", Operation.WRITE), "writing feeds.ducks"),
        (
            Rule("ducks", Resource.TOPIC, Pattern.PREFIXED, "feeds.", Operation.DELETE),
            "deleting records of feeds.ducks",
        ),
        (Rule("ducks", Resource.TOPIC, Pattern.PREFIXED, "red.", Operation.CREATE), "creating red.probe"),
        (Rule("ducks", Resource.GROUP, Pattern.PREFIXED, "other", Operation.DESCRIBE), "describing group other.cli"),
        (Rule("ducks", Resource.TRANSACTIONAL_ID, Pattern.LITERAL, "shore.probe", Operation.WRITE), "transactional id"),
        (Rule("ducks", Resource.CLUSTER, Pattern.LITERAL, "kafka-cluster", Operation.ALTER), "managing the cluster"),
    ],
    ids=str,
)
def test_the_probe_notices_a_right_too_many(world: World, append: Append, rule: Rule, found: str) -> None:
    """The probe notices an ACL that grants too much."""
    append(PORT, "feeds.ducks", b"reading")
    before = ends(world, "feeds.ducks")
    with Client(world.kafka(PORT)) as client:
        change(client, [Binding.of(rule)])
        access = probe_customer(world.topology, world.resolver, "ducks")
        change(client, (), [Binding.of(rule)])
    assert any(found in text for text in access.wrongly_allowed), access.wrongly_allowed
    assert ends(world, "feeds.ducks") == before  # the probe did not use the access it found


def test_a_revoked_reader_stops_at_its_next_fetch(world: World, append: Append) -> None:
    append(PORT, "feeds.ducks", b"first")
    rule = Binding.of(Rule("ducks", Resource.TOPIC, Pattern.LITERAL, "feeds.ducks", Operation.READ))
    with Client(world.kafka(PORT)) as admin, UserConsumer(world.kafka(PORT, "ducks"), group="ducks.cli") as reader:
        records = reader.read(["feeds.ducks"], start=StartAt.BEGINNING, follow=True)
        assert next(records) is not None
        KafkaRules(admin).remove([rule])
        deadline = time.monotonic() + PATIENCE
        with pytest.raises(NotAuthorised):
            while time.monotonic() < deadline:
                next(records)


def test_a_wrong_password_is_said_at_once_and_never_shown(world: World) -> None:
    """A wrong password is reported at once, not when the time for an answer is over, and never shown."""
    hour = 3600.0
    endpoint = dataclasses.replace(world.kafka(PORT, "ducks"), password=SecretStr("guessed-wrong-4711"))
    for use in ("client", "reader"):
        with pytest.raises(WrongPassword) as caught:
            if use == "client":
                with Client(endpoint, timeout=hour) as client:
                    client.cluster_operations()
            else:
                with UserConsumer(endpoint, group="ducks.cli", timeout=hour) as reader:
                    reader.visible()
        text = f"{caught.value} {caught.value!r} {caught.value.fields} {endpoint!r}"
        assert "refused the login of user 'ducks'" in text
        assert "wrong password, or no such user" in text
        assert "guessed-wrong-4711" not in text


def test_one_users_password_is_not_anothers(world: World) -> None:
    stolen = dataclasses.replace(world.kafka(PORT, "bridge"), password=world.kafka(PORT, "ducks").password)
    with pytest.raises(WrongPassword), Client(stolen) as client:
        client.cluster_operations()


def test_rules_cannot_be_read_without_the_right_and_are_not_taken_for_none(world: World) -> None:
    """Without the right to read ACLs the command fails, and does not assume that there are none."""
    with (
        Client(world.kafka(PORT, "ducks")) as client,
        pytest.raises(NotAuthorised, match="may not read the access rules"),
    ):
        KafkaRules(client).read()


def test_what_does_not_exist_and_what_is_not_allowed_look_alike(world: World) -> None:
    """A missing topic and a forbidden one give the same error."""
    with UserConsumer(world.kafka(PORT, "ducks"), group="ducks.cli") as reader:
        for topic in ("feeds.other", "feeds.never-made"):
            with pytest.raises(NotAuthorised):
                reader.partitions(topic)
    with (
        UserConsumer(world.kafka(PORT, "red"), group="red.cli") as reader,
        pytest.raises(UnavailableError, match="yet"),
    ):
        reader.partitions("red.REDU0000000")


def test_unknown_customers_are_named(world: World) -> None:
    """An unknown customer is an error that names it."""
    with pytest.raises(UnknownNameError) as caught:
        probe_customer(world.topology, world.resolver, "duck")
    assert "did you mean 'ducks'" in caught.value.hint
