"""What ``fairlead feed --client`` prints: complete, without the password, and with names that the clients know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from confluent_kafka import Consumer
from pydantic import SecretStr

from fairlead.cli.commands.feed import ClientKind, KafkaClient, Recipe, recipe, script
from fairlead.errors import ConfigurationError
from fairlead.kafka.endpoint import KafkaEndpoint

PASSWORD = "p4ssw0rd-of-ducks"
PLAIN = KafkaEndpoint("los-angeles", (("10.1.2.3", 9092), ("10.1.2.4", 9092)), "ducks", SecretStr(PASSWORD))
SECURE = KafkaEndpoint("los-angeles", (("kafka.example", 9093),), "ducks", SecretStr(PASSWORD), True, Path("/ca.pem"))
VARIABLE = "FAIRLEAD_SECRET_LOS_ANGELES_DUCKS"


def made(kind: KafkaClient, endpoint: KafkaEndpoint = PLAIN, *topics: str, **more: Any) -> Recipe:
    ca = str(endpoint.tls_ca) if endpoint.tls_ca else None
    return recipe(kind, endpoint, topics or ("feeds.ducks",), group=f"ducks.{kind}", ca=ca, **more)


@pytest.mark.parametrize("kind", get_args(KafkaClient))
@pytest.mark.parametrize("endpoint", [PLAIN, SECURE])
def test_the_password_is_in_a_variable_and_only_in_files_that_ask_for_it(
    kind: KafkaClient, endpoint: KafkaEndpoint
) -> None:
    one = made(kind, endpoint)
    text = script("ducks", "los-angeles", kind, one)
    assert PASSWORD not in text and VARIABLE in text
    assert endpoint.bootstrap_servers in text and f"ducks.{kind}" in text
    written = made(kind, endpoint, password=endpoint.password)
    assert written.variable == ""
    assert PASSWORD in "".join(written.files.values()) and PASSWORD not in written.command


@pytest.mark.parametrize("kind", get_args(KafkaClient))
def test_the_script_is_one_that_a_shell_understands_and_stops_without_a_password(
    kind: KafkaClient, tmp_path: Path
) -> None:
    text = script("ducks", "los-angeles", kind, made(kind))
    subprocess.run(["/bin/bash", "-n"], input=text, text=True, check=True)
    done = subprocess.run(["/bin/bash"], input=text, text=True, cwd=tmp_path, env={}, capture_output=True, check=False)
    assert done.returncode != 0
    assert f"{VARIABLE}: put the password of ducks into it" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", get_args(KafkaClient))
@pytest.mark.parametrize("bad", ["/ca\nEND\ntouch owned\n.pem", "/ca\r.pem", "/ca\x1b[2J.pem", "/ca\u2028.pem"])
def test_a_path_that_would_leave_the_here_document_is_refused(kind: KafkaClient, bad: str) -> None:
    with pytest.raises(ConfigurationError, match=r"path of the authorities .* has control characters") as caught:
        recipe(kind, SECURE, ["feeds.ducks"], group="ducks.x", ca=bad)
    assert bad not in str(caught.value)


@pytest.mark.parametrize("kind", get_args(KafkaClient))
def test_a_group_cannot_add_a_line_or_a_command(kind: KafkaClient, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"consumer group .* has control characters"):
        recipe(kind, PLAIN, ["feeds.ducks"], group="ducks.x\ntouch owned", ca=None)
    one = recipe(kind, PLAIN, ["feeds.ducks"], group="ducks.x; : > owned", ca=None)
    empty = {"PATH": "/nowhere", VARIABLE: "x"}
    text = script("ducks", "los-angeles", kind, one)
    subprocess.run(["/bin/bash"], input=text, text=True, cwd=tmp_path, env=empty, capture_output=True, check=False)
    assert {file.name for file in tmp_path.iterdir()} == set(one.files)


def test_librdkafka_knows_every_setting_of_kcats_file() -> None:
    """kcat gives its file's lines to librdkafka as they are, and so does this."""
    for endpoint, security in ((PLAIN, "SASL_PLAINTEXT"), (SECURE, "SASL_SSL")):
        text = made(ClientKind.KCAT, endpoint, password=endpoint.password).files["kcat.conf"]
        settings = dict(line.split("=", 1) for line in text.splitlines())
        assert settings["security.protocol"] == security
        assert settings.get("ssl.ca.location") == (str(endpoint.tls_ca) if endpoint.tls_ca else None)
        settings.pop("ssl.ca.location", None)  # librdkafka opens the file at once
        Consumer({**settings, "log_level": 0}).close()


def test_tls_without_an_authority_of_its_own_takes_the_machines() -> None:
    endpoint = KafkaEndpoint("la", (("kafka.example", 9093),), "ducks", SecretStr(PASSWORD), True)
    assert "truststore" not in made(ClientKind.CONSOLE, endpoint).files["client.properties"]
    assert "ssl.ca" not in made(ClientKind.PYTHON, endpoint).files["feed.py"]
    assert "SASL_SSL" in made(ClientKind.PYTHON, endpoint).files["feed.py"]


def test_keys_by_their_beginning() -> None:
    topics = ("red.REDU99*", "red.REDU9812345")
    kcat = made(ClientKind.KCAT, PLAIN, *topics)
    assert "'^red\\.REDU99.*$' '^red\\.REDU9812345$'" in kcat.command
    assert "--include 'red\\.REDU99.*|red\\.REDU9812345'" in made(ClientKind.CONSOLE, PLAIN, *topics).command
    assert "['^red\\\\.REDU99', 'red.REDU9812345']" in made(ClientKind.PYTHON, PLAIN, *topics).files["feed.py"]
    assert "--include 'red\\.REDU99.*'" in made(ClientKind.CONSOLE, PLAIN, "red.REDU99*").command


def test_streams_as_well_as_single_logs() -> None:
    def command(kind: KafkaClient) -> str:
        return made(kind, PLAIN, "feeds.red", "red.").command

    def file(kind: KafkaClient, name: str) -> str:
        return made(kind, PLAIN, "feeds.red", "red.").files[name]

    assert command(ClientKind.KCAT).endswith("-G ducks.kcat '^feeds\\.red$' '^red\\..*$'")
    assert "--include 'feeds\\.red|red\\..*' " in command(ClientKind.CONSOLE)
    assert "subscribe(['feeds.red', '^red\\\\.'])" in file(ClientKind.PYTHON, "feed.py")
    assert 'compile("feeds\\\\.red|red\\\\..*")' in file(ClientKind.JAVA, "Feed.java")


_NO_TOPIC_YET = """
class KafkaError:
    UNKNOWN_TOPIC_OR_PART = 3

    def code(self):
        return 3


class Record:
    def __init__(self, error):
        self._error = error

    def error(self):
        return self._error

    def headers(self):
        return None

    def key(self):
        return b"BIGU1000010"

    def value(self):
        return b"{}"


class Consumer:
    def __init__(self, settings):
        self._left = [Record(KafkaError()), None, Record(KafkaError()), Record(None)]

    def subscribe(self, topics):
        pass

    def poll(self, seconds):
        if not self._left:
            raise KeyboardInterrupt
        return self._left.pop(0)

    def close(self):
        pass
"""


def test_the_python_program_waits_for_a_feed_that_shore_has_not_made_yet(tmp_path: Path) -> None:
    (tmp_path / "confluent_kafka.py").write_text(_NO_TOPIC_YET)
    (tmp_path / "feed.py").write_text(made(ClientKind.PYTHON, password=PLAIN.password).files["feed.py"])
    done = subprocess.run([sys.executable, "feed.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == "nothing yet: feeds.ducks is made by fairlead shore run\n"
    assert done.stdout == "BIGU1000010 {}\n"


def test_clients_look_soon_again_for_a_feed_that_is_missing() -> None:
    """Their own default is five minutes."""
    assert "'topic.metadata.refresh.interval.ms': '10000'" in made(ClientKind.PYTHON).files["feed.py"]
    assert "metadata.max.age.ms=10000\n" in made(ClientKind.JAVA).files["client.properties"]
    assert any("fairlead shore run makes it" in note for note in made(ClientKind.KCAT).notes)
