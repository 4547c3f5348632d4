"""The AsyncAPI document of a topology is valid, whole, and has no secret."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft7Validator, Draft202012Validator
from pydantic import SecretStr
from typer.testing import CliRunner

from fairlead.cli.commands.topology import app
from fairlead.records import encode
from fairlead.records.alert import Alert
from fairlead.records.reading import Device, Reading
from fairlead.streams.asyncapi import asyncapi
from topologies.loader.load import load, shipped
from topologies.model import Topology
from topologies.users import service_users

SCHEMA: Final = Draft7Validator(
    json.loads((Path(__file__).parents[3] / "support" / "asyncapi" / "3.0.0.json").read_text(encoding="utf-8"))
)
Json = dict[str, Any]


def topology(name: str) -> Topology:
    return load(name, env={})


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key == "$ref")
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from references(each)


def resolved(document: Json, reference: str) -> Any:
    found: Any = document
    for word in reference.removeprefix("#/").split("/"):
        found = found[word]
    return found


@pytest.mark.parametrize("name", shipped())
def test_the_document_of_every_shipped_topology_is_asyncapi_30(name: str) -> None:
    document = asyncapi(topology(name))
    assert [each.message for each in SCHEMA.iter_errors(document)] == []
    for reference in references(document):
        assert resolved(document, reference) is not None
    assert set(document["servers"]) == set(topology(name).sites)
    streams = {each["address"].partition(".")[0] for each in document["channels"].values()}
    assert streams >= {stream for stream in topology(name).streams if stream not in ("feeds",)}


@pytest.mark.parametrize(
    "change", [{"asyncapi": "2.6.0"}, {"channels": {"x": {"address": 7}}}, {"servers": {"x": {"host": "localhost"}}}]
)
def test_the_schema_finds_mistakes(change: Json) -> None:
    assert list(SCHEMA.iter_errors(asyncapi(topology("minimal")) | change))


def test_a_customers_feed_has_its_kind_of_records_at_its_site_and_is_for_it_alone() -> None:
    fleet = topology("big-blue")
    document = asyncapi(fleet)
    for name, customer in fleet.customers.items():
        if customer.feed_at is None:
            continue
        channel, operation = document["channels"][f"feeds-{name}"], document["operations"][f"read-feeds-{name}"]
        assert channel["address"] == f"feeds.{name}"
        assert f"#/servers/{customer.feed_at}" in {each["$ref"] for each in channel["servers"]}
        assert ("Reading" in channel["messages"]) == (customer.feed == "detailed")
        assert "Retraction" in channel["messages"]
        assert {each["user"] for each in operation["x-access"]} & fleet.customers.keys() == {name}
        assert f"write-feeds-{name}" not in document["operations"]


def test_a_channel_says_how_long_each_site_keeps_it() -> None:
    channel = asyncapi(topology("minimal"))["channels"]["containers-equipmentReference"]
    assert channel["x-retention"] == {"tokyo": "1y", "duck-star": "14d"}
    assert channel["bindings"]["kafka"]["partitions"] == 1
    assert channel["bindings"]["kafka"]["topicConfiguration"]["cleanup.policy"] == ["delete"]


def test_real_records_fit_their_schemas_and_others_do_not() -> None:
    document = asyncapi(topology("minimal"))
    at, box = dt.datetime(2026, 3, 1, tzinfo=dt.UTC), "BIGU1000010"
    alert = Alert(
        alert_id="a1",
        kind="OVERBOARD",
        severity="CRITICAL",
        state="OPENED",
        equipment_reference=box,
        raised_at="tokyo",
        event_date_time=at,
        raised_date_time=at,
    )
    device = Device(device_id="d", boot_id=1, sequence=2, device_date_time=at)
    for name, record in (("Alert", alert), ("Reading", Reading(equipment_reference=box, device=device))):
        payload = document["components"]["messages"][name]["payload"]
        schema = Draft202012Validator({**payload, "components": document["components"]})
        content = json.loads(encode(record))
        schema.validate(content)
        assert not schema.is_valid({key: value for key, value in content.items() if key != "equipmentReference"})
    assert "alertID" in document["components"]["schemas"]["Alert"]["properties"]


def test_servers_say_how_to_connect(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(
        "name: fleet\nsites:\n"
        "  tokyo: {kind: port, unlocode: JPTYO, kafka: {bootstrap: 'a.example.com:9093,b.example.com:9093'}}\n"
        "  here: {kind: port, unlocode: SGSIN}\n",
        encoding="utf-8",
    )
    servers = asyncapi(load(str(file), env={}))["servers"]
    assert (servers["tokyo"]["host"], servers["tokyo"]["protocol"]) == ("a.example.com:9093", "kafka-secure")
    assert "b.example.com:9093" in servers["tokyo"]["description"]
    assert (servers["here"]["host"], servers["here"]["protocol"]) == ("localhost", "kafka")
    assert servers["here"]["security"] == [{"$ref": "#/components/securitySchemes/scram"}]


@pytest.mark.parametrize(
    ("login", "protocol", "scheme"),
    [
        ("security: SASL_SSL", "kafka-secure", "scramSha512"),
        ("security: SASL_PLAINTEXT", "kafka", "scramSha512"),
        ("sasl_mechanism: SCRAM-SHA-256", "kafka-secure", "scramSha256"),
        ("sasl_mechanism: PLAIN", "kafka-secure", "plain"),
        ("security: SSL, certificates: certs", "kafka-secure", "X509"),
        ("sasl_mechanism: OAUTHBEARER, oauth: {endpoint: 'https://id.example.com/token'}", "kafka-secure", "oauth2"),
        ("sasl_mechanism: AWS_MSK_IAM", "kafka-secure", None),
    ],
)
def test_a_server_names_the_way_in_which_its_users_log_in(
    tmp_path: Path, login: str, protocol: str, scheme: str | None
) -> None:
    file = tmp_path / "fleet.yaml"
    broker = "b-1.fleet.abc.kafka.eu-west-1.amazonaws.com:9098"
    site = f"tokyo: {{kind: port, unlocode: JPTYO, kafka: {{bootstrap: '{broker}', {login}}}}}"
    file.write_text(f"name: fleet\nsites:\n  {site}\n", encoding="utf-8")
    document = asyncapi(load(str(file), env={}))
    assert [each.message for each in SCHEMA.iter_errors(document)] == []
    server, schemes = document["servers"]["tokyo"], document["components"]["securitySchemes"]
    assert server["protocol"] == protocol
    named = [schemes[each["$ref"].rpartition("/")[2]]["type"] for each in server.get("security", ())]
    assert named == ([scheme] if scheme else [])


def test_no_secret_is_in_it() -> None:
    fleet = topology("big-blue")
    users = [(site, user) for site in fleet.sites for user in service_users(fleet, site)]
    secrets = {each: SecretStr(f"hush-{number}") for number, each in enumerate(users)}
    assert "hush" not in json.dumps(asyncapi(fleet.with_secrets(secrets)))


def test_the_command_prints_it() -> None:
    done = CliRunner().invoke(app, ["show", "minimal", "--asyncapi"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads(json.dumps(asyncapi(topology("minimal"))))
    both = CliRunner().invoke(app, ["show", "minimal", "--asyncapi", "--json"])
    assert both.exit_code == 2
