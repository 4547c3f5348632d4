"""What a customer gives to other Kafka clients to read its feed: files and a command, as text. Pure.

The password is in none of them, unless it is asked for: they take it from an environment variable when they run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic import SecretStr

from fairlead.endpoint import KafkaEndpoint
from fairlead.local.passwords import secret_variable

CA_FILE: Final = "ca.pem"


class ClientKind(StrEnum):
    """A Kafka client that a configuration can be printed for."""

    KCAT = "kcat"
    JAVA = "java"
    CONSOLE = "console"
    PYTHON = "python"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to read as one customer with one client.

    Args:
        variable: The environment variable that the password comes from; empty when a file has it.
        files: Names and texts of the files.
        command: The shell command that reads; it is run where the files are.
        notes: What to know before.
    """

    variable: str
    files: dict[str, str]
    command: str
    notes: tuple[str, ...]


def recipe(
    kind: ClientKind,
    endpoint: KafkaEndpoint,
    topics: Sequence[str],
    *,
    group: str,
    ca: str | None,
    password: SecretStr | None = None,
) -> Recipe:
    """The configuration of one client.

    Args:
        endpoint: The site's Kafka, seen by the customer; its password is not looked at.
        topics: Names, and beginnings of names, as ``acl.probe.entitlement`` has them.
        group: Consumer group; begins with the customer's name and a dot.
        ca: Path of the authority's PEM file as the client will find it; None without TLS, or for the machine's own.
        password: Only where the files are to have it themselves.
    """
    variable = "" if password else secret_variable(endpoint.site, endpoint.user or "")
    made = _Maker(endpoint, tuple(topics), group, ca, variable, password.get_secret_value() if password else "")
    match kind:
        case ClientKind.KCAT:
            files, command = made.kcat()
        case ClientKind.CONSOLE:
            files, command = made.console()
        case ClientKind.JAVA:
            files, command = made.java()
        case ClientKind.PYTHON:
            files, command = made.python()
    return Recipe(variable, files, command, made.notes(kind))


def script(customer: str, site: str, kind: ClientKind, one: Recipe) -> str:
    """A recipe as text to copy into a shell: it writes the files, and reads."""
    lines = [f"# {customer} reads at {site} with {kind}"]
    lines += [f"# {note}" for note in one.notes]
    if one.variable:
        lines += [f': "${{{one.variable}:?put the password of {customer} into it}}"']
    for name, text in one.files.items():
        lines += [f"cat > {name} <<'END'", text.rstrip("\n"), "END"]
    return "\n".join([*lines, one.command, ""])


@dataclass(frozen=True, slots=True)
class _Maker:
    endpoint: KafkaEndpoint
    topics: tuple[str, ...]
    group: str
    ca: str | None
    variable: str
    password: str

    @property
    def one_topic(self) -> str | None:
        """The only topic, if it is one and no prefix."""
        return self.topics[0] if len(self.topics) == 1 and _beginning(self.topics[0]) is None else None

    def patterns(self) -> list[str]:
        """The topics as regular expressions of whole names."""
        beginnings = [(topic, _beginning(topic)) for topic in self.topics]
        return [re.escape(topic) if begin is None else re.escape(begin) + ".*" for topic, begin in beginnings]

    def librdkafka(self) -> dict[str, str]:
        """Settings of librdkafka (kcat, and most languages but Java), without the password."""
        found = {name: str(value) for name, value in self.endpoint.librdkafka().items() if name != "sasl.password"}
        found |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": str(self.endpoint.user)}
        found.pop("ssl.ca.location", None)
        if self.ca is not None:
            found["ssl.ca.location"] = self.ca
        return found | {"group.id": self.group, "auto.offset.reset": "earliest"}

    def kcat(self) -> tuple[dict[str, str], str]:
        settings = self.librdkafka() | ({"sasl.password": self.password} if self.password else {})
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        # printf is a part of the shell: on kcat's command line the password would show in ps.
        file = "kcat.conf" if self.password else f"<(cat kcat.conf; printf 'sasl.password=%s\\n' \"${self.variable}\")"
        wanted = [
            topic if topic == self.one_topic else f"^{p}$"
            for topic, p in zip(self.topics, self.patterns(), strict=True)
        ]
        names = " ".join(map(shlex.quote, wanted))
        return {"kcat.conf": text}, f"kcat -q -u -F {file} -f '%h %k %s\\n' -G {self.group} {names}"

    def properties(self) -> str:
        """``client.properties`` of Kafka's own clients (Java), which resolve variables themselves."""
        secret = self.password or f"${{env:{self.variable}}}"
        login = f'username="{self.endpoint.user}" password="{secret}"'
        lines = [
            f"bootstrap.servers={self.endpoint.bootstrap_servers}",
            f"security.protocol={self.endpoint.security_protocol}",
            "sasl.mechanism=SCRAM-SHA-512",
            f"sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required {login};",
        ]
        if not self.password:
            provider = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
            lines += ["config.providers=env", f"config.providers.env.class={provider}"]
            lines += [f"config.providers.env.param.allowlist.pattern={self.variable}"]
        if self.ca is not None:
            lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.ca}"]
        if self.endpoint.tls and not self.endpoint.tls_verify_hostname:
            lines += ["ssl.endpoint.identification.algorithm="]
        lines += [f"group.id={self.group}", "auto.offset.reset=earliest"]
        return "\n".join(lines) + "\n"

    def console(self) -> tuple[dict[str, str], str]:
        what = f"--topic {self.one_topic}" if self.one_topic else f"--include {shlex.quote('|'.join(self.patterns()))}"
        command = (
            f"kafka-console-consumer.sh --bootstrap-server {self.endpoint.bootstrap_servers} "
            f"--consumer.config client.properties {what} --property print.headers=true --property print.key=true"
        )
        return {"client.properties": self.properties()}, command

    def java(self) -> tuple[dict[str, str], str]:
        patterns = "|".join(self.patterns()).replace("\\", "\\\\")
        return (
            {"client.properties": self.properties(), "Feed.java": _JAVA.replace("PATTERN", patterns)},
            'java -cp "${KAFKA_JARS:-kafka/libs/*}" Feed.java client.properties',
        )

    def python(self) -> tuple[dict[str, str], str]:
        settings = "".join(f"        {name!r}: {value!r},\n" for name, value in self.librdkafka().items())
        secret = repr(self.password) if self.password else f'os.environ["{self.variable}"]'
        beginnings = [(topic, _beginning(topic)) for topic in self.topics]
        wanted = [topic if begin is None else f"^{re.escape(begin)}" for topic, begin in beginnings]
        text = _PYTHON.replace("SETTINGS", settings.rstrip("\n")).replace("SECRET", secret)
        return {"feed.py": text.replace("TOPICS", repr(wanted))}, "python3 feed.py"

    def notes(self, kind: ClientKind) -> tuple[str, ...]:
        needs = {
            # Older ones repeat a nonce in SCRAM, which Kafka 4 takes for a wrong password.
            ClientKind.KCAT: "needs bash, and kcat 1.7 or later with librdkafka 2.6.1 or later (kcat -V tells both)",
            ClientKind.CONSOLE: "needs bin/ of Apache Kafka 3.5 or later in PATH",
            ClientKind.JAVA: "needs Java 11 and the jars of Apache Kafka 3.5 or later: KAFKA_JARS='/opt/kafka/libs/*'",
            ClientKind.PYTHON: "needs Python 3 and confluent-kafka 2.6.1 or later (pip install confluent-kafka)",
        }
        local = any(host in ("127.0.0.1", "localhost", "::1") for host, _ in self.endpoint.bootstrap)
        return (
            needs[kind],
            f"reads from the start, then goes on where group {self.group} stopped; groups begin with "
            f"{self.endpoint.user}.",
            "records with the header 'fairlead' are Fairlead's own marks: pass over them",
            "a record with the header 'retracts' takes back the one whose header 'origin' it names",
            *(("this site is on this machine only: run it here",) if local else ()),
        )


def _beginning(topic: str) -> str | None:
    """What names begin with that it stands for; None for a name."""
    return topic.removesuffix("*") if topic.endswith((".", "*")) else None


_JAVA: Final = """\
import java.io.FileReader;
import java.time.Duration;
import java.util.Properties;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Feed {
    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        try (var file = new FileReader(arguments[0])) {
            settings.load(file);
        }
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Pattern.compile("PATTERN"));
            while (true) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    if (record.headers().lastHeader("fairlead") == null) {
                        System.out.println(record.key() + " " + record.value());
                    }
                }
            }
        }
    }
}
"""

_PYTHON: Final = """\
import os

from confluent_kafka import Consumer

consumer = Consumer(
    {
SETTINGS
        "sasl.password": SECRET,
    }
)
consumer.subscribe(TOPICS)
try:
    while True:
        record = consumer.poll(1.0)
        if record is None:
            continue
        if record.error():
            raise SystemExit(str(record.error()))
        if "fairlead" not in dict(record.headers() or ()):
            print((record.key() or b"").decode(), (record.value() or b"").decode(), flush=True)
except KeyboardInterrupt:
    pass
finally:
    consumer.close()
"""
