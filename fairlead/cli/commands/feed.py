"""``fairlead feed``: read a customer's feed as that customer, or print the configuration for another client.

The printed files have no password unless it is asked for: clients read it from an environment variable.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
import typer
from pydantic import SecretStr
from rich.markup import escape

from acl.kafka import Received, StartAt, UserConsumer
from acl.probe import entitlement, sites_of
from fairlead.cli.commands.context import DryRunOption, JsonOption, TopologyOption, YesOption, site_option, writing
from fairlead.cli.commands.feed_share import ShareOptions, end_tokens, share
from fairlead.cli.console import Consent, console, emit, errors, output
from fairlead.errors import ConfigurationError, OptionError, UnavailableError, UnknownNameError
from fairlead.kafka.endpoint import KafkaEndpoint, SaslMechanism
from fairlead.local.files import write_file
from fairlead.local.passwords import secret_variable
from fairlead.names import parse_log
from fairlead.records import UNREADABLE, decoder
from fairlead.records.alert import Alert
from fairlead.records.booking import Retraction
from fairlead.records.custody import CustodyEntry, ledger_entries
from fairlead.records.headers import ORIGIN
from fairlead.records.reading import PowerState, Reading, power_state
from shore.report.wording import count
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology
from topologies.model import Topology

CA_FILE: Final = "ca.pem"
LOOK_AGAIN_MS: Final = 10_000
"""How often clients look whether a topic that was missing is there now. Their own default is five minutes."""


class ClientKind(StrEnum):
    """What ``--client`` configures: Kafka clients, and Delta Sharing's."""

    KCAT = "kcat"
    JAVA = "java"
    CONSOLE = "console"
    PYTHON = "python"
    DELTA_SHARING = "delta-sharing"


KafkaClient: TypeAlias = Literal[ClientKind.KCAT, ClientKind.JAVA, ClientKind.CONSOLE, ClientKind.PYTHON]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The files and the command for reading as one customer with one client.

    Args:
        variable: The environment variable with the password; empty when a file has it.
        files: Names and texts of the files.
        command: The shell command that reads; run it in the folder of the files.
        notes: Facts to know before running it.
    """

    variable: str
    files: dict[str, str]
    command: str
    notes: tuple[str, ...]


def recipe(
    kind: KafkaClient,
    endpoint: KafkaEndpoint,
    topics: Sequence[str],
    *,
    group: str,
    ca: str | None,
    password: SecretStr | None = None,
) -> Recipe:
    """Make the configuration of one client.

    Args:
        endpoint: The site's Kafka, seen by the customer; its password is not used.
        topics: Names, and prefixes of names, as ``acl.probe.entitlement`` returns them.
        group: Consumer group; begins with the customer's name and a dot.
        ca: Path of the authority's PEM file on the client's machine; None without TLS, or for the machine's own.
        password: Give it only if the files must contain it.

    Raises:
        ConfigurationError: a path or a name has control characters, which would end a line of a generated file; or
            the site's users do not log in by a password.
    """
    if endpoint.login.mechanism is None or not endpoint.login.mechanism.by_password:
        raise ConfigurationError(
            f"users of {endpoint.site} log in by {endpoint.login.shown}; only programs with a password are configured",
            hint="the provider of the cluster shows settings of clients for its own logins",
            site=endpoint.site,
        )
    for what, value in (("path of the authorities", ca or ""), ("consumer group", group)):
        require_printable(what, value)
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


def require_printable(what: str, value: str) -> None:
    """Check that a value can stand in one line of a shell script, a program or a properties file.

    Raises:
        ConfigurationError: it has control characters, a line break for example.
    """
    if not value.isprintable():
        raise ConfigurationError(
            f"the {what} {value!r} has control characters, and cannot be written into a client's configuration",
            hint="rename it: letters, digits, spaces and punctuation are fine",
        )


def script(customer: str, site: str, kind: KafkaClient, one: Recipe) -> str:
    """Return a recipe as text to copy into a shell: it writes the files, and reads."""
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
        """Return the topic if there is only one and it is not a prefix."""
        return self.topics[0] if len(self.topics) == 1 and _beginning(self.topics[0]) is None else None

    def feeds(self) -> list[str]:
        """Return the topics that are feeds, which ``fairlead shore run`` makes."""
        return [topic for topic in self.topics if topic.startswith("feeds.")]

    def patterns(self) -> list[str]:
        """Return the topics as regular expressions of whole names."""
        beginnings = [(topic, _beginning(topic)) for topic in self.topics]
        return [re.escape(topic) if begin is None else re.escape(begin) + ".*" for topic, begin in beginnings]

    def librdkafka(self) -> dict[str, str]:
        """Return settings of librdkafka (kcat, and most languages except Java), without the password."""
        found = {name: str(value) for name, value in self.endpoint.librdkafka().items() if name != "sasl.password"}
        found |= {"sasl.mechanism": str(self.endpoint.login.mechanism), "sasl.username": self.endpoint.login_name}
        found.pop("ssl.ca.location", None)
        if self.ca is not None:
            found["ssl.ca.location"] = self.ca
        return found | {"group.id": self.group, "auto.offset.reset": "earliest"}

    def kcat(self) -> tuple[dict[str, str], str]:
        settings = self.librdkafka() | ({"sasl.password": self.password} if self.password else {})
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        # printf is built into the shell: on kcat's command line, ps would show the password.
        file = "kcat.conf" if self.password else f"<(cat kcat.conf; printf 'sasl.password=%s\\n' \"${self.variable}\")"
        wanted = [
            topic if topic == self.one_topic else f"^{p}$"
            for topic, p in zip(self.topics, self.patterns(), strict=True)
        ]
        names = " ".join(map(shlex.quote, wanted))
        return {"kcat.conf": text}, f"kcat -q -u -F {file} -f '%h %k %s\\n' -G {shlex.quote(self.group)} {names}"

    def properties(self) -> str:
        """Return ``client.properties`` of Kafka's own clients (Java), which resolve variables themselves."""
        secret = self.password or f"${{env:{self.variable}}}"
        login, mechanism = f'username="{self.endpoint.login_name}" password="{secret}"', self.endpoint.login.mechanism
        module = "plain.Plain" if mechanism is SaslMechanism.PLAIN else "scram.Scram"
        lines = [
            f"bootstrap.servers={self.endpoint.bootstrap_servers}",
            f"security.protocol={self.endpoint.security_protocol}",
            f"sasl.mechanism={mechanism}",
            f"sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required {login};",
        ]
        if not self.password:
            provider = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
            lines += ["config.providers=env", f"config.providers.env.class={provider}"]
            lines += [f"config.providers.env.param.allowlist.pattern={self.variable}"]
        if self.ca is not None:
            lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.ca}"]
        if self.endpoint.tls and not self.endpoint.tls_verify_hostname:
            lines += ["ssl.endpoint.identification.algorithm="]
        lines += [f"group.id={self.group}", "auto.offset.reset=earliest", f"metadata.max.age.ms={LOOK_AGAIN_MS}"]
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
        values = self.librdkafka() | {"topic.metadata.refresh.interval.ms": str(LOOK_AGAIN_MS)}
        settings = "".join(f"        {name!r}: {value!r},\n" for name, value in values.items())
        secret = repr(self.password) if self.password else f'os.environ["{self.variable}"]'
        beginnings = [(topic, _beginning(topic)) for topic in self.topics]
        wanted = [topic if begin is None else f"^{re.escape(begin)}" for topic, begin in beginnings]
        text = _PYTHON.replace("SETTINGS", settings.rstrip("\n")).replace("SECRET", secret)
        made_by = f"{self.feeds()[0]} is made by fairlead shore run" if self.feeds() else "the topics are not made yet"
        text = text.replace("TOPICS", repr(wanted)).replace("NOTHING_YET", repr(f"nothing yet: {made_by}"))
        return {"feed.py": text}, "python3 feed.py"

    def notes(self, kind: KafkaClient) -> tuple[str, ...]:
        needs = {
            # Older versions repeat a nonce in SCRAM, which Kafka 4 takes for a wrong password.
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
            *((f"{'ends' if kind is ClientKind.KCAT else 'waits'} {_NO_FEED}",) if self.feeds() else ()),
            *(("this site is on this machine only: run it here",) if local else ()),
        )


_NO_FEED: Final = "while the feed does not exist: fairlead shore run makes it"


def _beginning(topic: str) -> str | None:
    """Return the prefix that a topic pattern stands for; None for a topic's full name."""
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
import sys

from confluent_kafka import Consumer, KafkaError

consumer = Consumer(
    {
SETTINGS
        "sasl.password": SECRET,
    }
)
consumer.subscribe(TOPICS)
waiting = False
try:
    while True:
        record = consumer.poll(1.0)
        if record is None:
            continue
        if record.error() and record.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            if not waiting:
                print(NOTHING_YET, file=sys.stderr, flush=True)
            waiting = True
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


_readings = decoder(Reading)
_alerts = decoder(Alert)
_retractions = decoder(Retraction)
_POWER: Final[dict[PowerState | None, str]] = {
    "POWERED": "on",
    "NO_POWER": "OFF",
    "UNPLUGGED": "UNPLUGGED",
    None: "-",
}
_HEADING = (
    f"{'offset':>8}  {'device time (UTC)':<19}  {'container':<11}  {'supply':>7}  {'set':>6}  {'power':<9}  position"
)


def feed(
    customer: Annotated[str, typer.Argument(help="A customer of the topology.")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    at: Annotated[str | None, site_option("Site to read at. Default: where the customer's feed is.")] = None,
    from_start: Annotated[
        bool | None,
        typer.Option("--from-start/--from-end", help="Where to begin. Default: the start, or where --group stopped."),
    ] = None,
    maximum: Annotated[int | None, typer.Option("--max", min=1, help="Stop after this many records.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop at the current end instead of waiting for more.")] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", help="Commit offsets to this consumer group; its name begins with CUSTOMER and a dot."),
    ] = None,
    client: Annotated[
        ClientKind | None,
        typer.Option("--client", help="Print the configuration of another client instead of reading."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="With --client: write its files, which contain the password, to this folder (mode 0600).",
        ),
    ] = None,
    board: Annotated[
        str | None,
        typer.Option(
            "--board", help="For delta-sharing: the board's address, as the customer reaches it.", metavar="URL"
        ),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="For delta-sharing: the token ends then.")] = 90,
    overlap: Annotated[
        int,
        typer.Option("--overlap", min=0, max=720, help="For delta-sharing: hours for which older tokens stay good."),
    ] = 0,
    revoke: Annotated[bool, typer.Option("--revoke", help="For delta-sharing: end all of its tokens now.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Read a customer's feed, or its containers' logs, as that customer.

    Ctrl-C stops. With --json each record is one line. Nothing is remembered without --group. --client prints a shell
    script that configures kcat, Kafka's console consumer, a Java or a Python program, and reads. --client delta-sharing
    makes a new token for the customer's tables at the board, in a profile file for pandas and Spark. Only --revoke asks
    first; --yes and --dry-run are for it.

    Example: fairlead feed ducks --once --max 20
    """
    context = open_topology(topology)
    if (dry_run or yes) and not revoke:
        raise OptionError("only --revoke asks first", hint="leave out --yes and --dry-run, or add --revoke")
    if client is not ClientKind.DELTA_SHARING and (board is not None or revoke):
        raise OptionError("--board and --revoke are about a share", hint="add --client delta-sharing")
    if revoke:
        end_tokens(context, customer, Consent(yes=yes, dry_run=dry_run, as_json=as_json), as_json=as_json)
        return
    if client is ClientKind.DELTA_SHARING:
        share(context, customer, ShareOptions(board, days, overlap), out, as_json=as_json)
        return
    site = _site(context.topology, customer, at)
    if group is not None and not group.startswith(f"{customer}."):
        raise OptionError(
            f"{customer} may not use the consumer group {group!r}", hint=f"its groups begin with '{customer}.'"
        )
    if client is not None:
        _configure(context, customer, site, client, group or f"{customer}.{client}", out, as_json=as_json)
        return
    if out is not None:
        raise OptionError("--out is for the files of another client", hint="add --client kcat, java, …")
    default = StartAt.GROUP if group else StartAt.BEGINNING
    start = {True: StartAt.BEGINNING, False: StartAt.END, None: default}[from_start]
    seen = 0
    with UserConsumer(context.resolver.kafka(site, customer), group=group or f"{customer}.cli") as reader:
        topics = _topics(context.topology, customer, site, reader)
        if not as_json:
            errors.print(f"{customer} at {site}: {', '.join(topics[:5])}{' …' if len(topics) > 5 else ''}", style="dim")
            console.print(_HEADING, style="bold", soft_wrap=True)
        done: dict[str, int] = {}  # offsets to remember, by topic
        try:
            for record in reader.read(topics, start=start, follow=not once):
                if record is None:
                    reader.commit(done)
                    done.clear()
                    continue
                if record.is_data:
                    _print(record, as_json=as_json)
                    seen += 1
                if group is not None:
                    done[record.topic] = record.offset + 1
                if seen == maximum:
                    break
        finally:
            reader.commit(done)
    if not as_json:
        errors.print(count(seen, "record"), style="dim")


def _configure(
    context: Context, customer: str, site: str, kind: KafkaClient, group: str, out: Path | None, *, as_json: bool
) -> None:
    """Print another client's configuration, or write it to a folder."""
    endpoint = context.resolver.kafka(site, customer)
    topics = entitlement(context.topology, customer)
    if not topics:
        raise ConfigurationError(
            f"customer {customer} may read no topic", hint=f"fairlead acl explain {customer} feeds.{customer}"
        )
    ca = None if endpoint.tls_ca is None else str(endpoint.tls_ca.resolve())
    if out is None:
        one = recipe(kind, endpoint, topics, group=group, ca=ca)
        text = script(customer, site, kind, one)
    else:
        require_printable("folder", str(out))
        one = recipe(kind, endpoint, topics, group=group, ca=CA_FILE if ca else None, password=endpoint.password)
        with writing(out, "folder"):
            out.mkdir(parents=True, exist_ok=True, mode=0o700)
            if ca is not None:
                write_file(out / CA_FILE, Path(ca).read_text(encoding="utf-8"))
            for name, content in one.files.items():
                write_file(out / name, content)
        text = f"cd {shlex.quote(str(out))} && {one.command}\n"
    body = {
        "customer": customer,
        "site": site,
        "client": kind.value,
        "bootstrap": endpoint.bootstrap_servers,
        "topics": topics,
        "group": group,
        "command": one.command,
        "password_variable": one.variable or None,
        "files": one.files if out is None else [str(out / name) for name in one.files],
        "notes": one.notes,
    }
    emit(body, as_json=as_json, render=lambda: output.write(text))


def _site(topology: Topology, customer: str, at: str | None) -> str:
    if customer not in topology.customers:
        raise UnknownNameError("customer", customer, topology.customers)
    sites = sites_of(topology, customer)
    if not sites:
        raise ConfigurationError(
            f"customer {customer} reads nowhere yet",
            hint=f"give customers.{customer} a feed_at, or reads_at with the streams it may consume",
        )
    if at is None:
        return sites[0]
    if at not in sites:
        raise UnknownNameError(f"site of customer {customer}", at, sites)
    return at


def _topics(topology: Topology, customer: str, site: str, reader: UserConsumer) -> tuple[str, ...]:
    if topology.customers[customer].feed_at is not None:
        return (f"feeds.{customer}",)
    topics = reader.visible()
    if not topics:
        raise UnavailableError(
            f"{customer} sees no topic at site {site}",
            hint=f"either nothing is there yet, or rules were never applied: fairlead acl explain {customer} TOPIC",
        )
    return topics


def _print(record: Received, *, as_json: bool) -> None:
    if as_json:
        output.write(json.dumps(_as_json(record)) + "\n")
        output.flush()
    else:
        console.print(escape(as_line(record)), soft_wrap=True)


def _as_json(record: Received) -> dict[str, Any]:
    headers = {name: value.decode(errors="replace") if value is not None else None for name, value in record.headers}
    value: Any = None
    if record.value is not None:
        try:
            value = msgspec.json.decode(record.value)
        except UNREADABLE:
            value = record.value.decode(errors="replace")
    key = record.key.decode(errors="replace") if record.key is not None else None
    return {
        "topic": record.topic,
        "offset": record.offset,
        "timestamp": _time(record.timestamp_ms).isoformat(),
        "key": key,
        "origin": headers.get(ORIGIN),
        "headers": headers,
        "value": value,
    }


def as_line(record: Received) -> str:
    """Format a record on one line for a person: a reading in columns, alerts and custody in words, else as it is."""
    try:
        reading = _readings.decode(record.value or b"")
    except UNREADABLE:
        key = (record.key or b"").decode(errors="replace")
        return f"{record.offset:>8}  {_time(record.timestamp_ms):%Y-%m-%d %H:%M:%S}  {key:<11}  {_words(record)}"
    supply, wanted = reading.measurements.supply_temperature, reading.setpoints.temperature
    place = reading.geo_location
    return "  ".join(
        (
            f"{record.offset:>8}",
            _in_utc(reading.device.device_date_time),
            f"{reading.equipment_reference:<11}",
            f"{supply:7.1f}" if supply is not None else f"{'-':>7}",
            f"{wanted:6.1f}" if wanted is not None else f"{'-':>6}",
            f"{_POWER[power_state(reading.is_connected_to_power_source, reading.is_powered)]:<9}",
            f"{place.latitude:.3f} {place.longitude:.3f}" if place else "-",
        )
    )


def _in_utc(moment: dt.datetime) -> str:
    try:
        return f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}"
    except OverflowError:  # in the first or the last hours of the calendar
        return moment.isoformat(" ")


def _words(record: Received) -> str:
    value = record.value or b""
    with contextlib.suppress(*UNREADABLE):
        alert = _alerts.decode(value)
        evidence = ", ".join(f"{one.name} ({one.detail})" if one.detail else one.name for one in alert.evidence)
        return f"{alert.severity} {alert.kind} {alert.state.lower()} by {_raised_at(alert, record)}: {evidence}"
    with contextlib.suppress(*UNREADABLE):
        entry = ledger_entries.decode(value)
        if isinstance(entry, CustodyEntry):
            sites = " ".join(filter(None, (entry.from_site, "->", entry.to_site)))
            return f"{entry.event} {sites}, term {entry.term}"
    with contextlib.suppress(*UNREADABLE):
        taken = _retractions.decode(value)
        return f"takes back offset {taken.feed_offset} ({taken.retracts})"
    return value.decode(errors="replace")


def _raised_at(alert: Alert, record: Received) -> str:
    """Return the site whose log has an alert. Release 0.1.0 stored alerts that name another."""
    origin = (dict(record.headers).get(ORIGIN) or b"").decode(errors="replace").rpartition("@")[0]
    for topic in (record.topic, origin):
        log = parse_log(topic)
        if log is not None and log.stream == "alerts":
            return log.key
    return alert.raised_at


def _time(milliseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=max(0, milliseconds))
