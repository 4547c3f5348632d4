"""One broker of a site as a child process: settings, files, command line, users, TLS, and the wait until it serves.

A KRaft node that is broker and controller in one, with SCRAM-SHA-512 and deny-by-default ACLs on loopback. It is tuned
small: about 150 MB, and two CPU seconds to start. A site has one broker, or several that replicate topics. Paths in the
settings are relative to the broker's folder, so that none has to be escaped for Java's properties.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    UserScramCredentialAlteration,
)
from pydantic import SecretStr

from fairlead.certs.trust import KeyPair
from fairlead.errors import UnavailableError
from fairlead.home import private_folder
from fairlead.kafka.admin import FOLLOW_CONTROLLER, ClientErrors, require_trust
from fairlead.kafka.credentials import credential
from fairlead.kafka.endpoint import KafkaEndpoint, with_each_password
from fairlead.local import kafka, ports
from fairlead.local.files import tail, write_file
from fairlead.local.formatting import FEATURES, format_log_dir
from fairlead.local.processes import ProcessWait
from fairlead.local.state import Broker, SiteState

ADMIN = "admin"  # super user of every local cluster
CONTROLLER = "controller"  # super user with which brokers log in to each other, so that admin's password can change
READY_TIMEOUT = 180.0  # seconds; a quiet machine needs 2, ten thousand logs after a crash 26
REFUSED_SECONDS = 10.0  # for this long after its start a broker may refuse logins, until it has read its users
_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1

# Few threads and small buffers: a laptop runs 7 sites. No limits for producer state and record times: the append
# convention needs both. Short sessions: a broker is back soon after a crash. Re-authentication: it ends the
# connections of a deleted user.
_PROPERTIES = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "CLIENT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    # SCRAM users live in the metadata log, for which the controllers must elect a leader first: hence PLAIN here.
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.client.connections.max.reauth.ms": 600_000,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN};User:{CONTROLLER}",
    "allow.everyone.if.no.acl.found": "false",
    "log.dirs": "data",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "producer.id.expiration.ms": _MAX_INT,
    "producer.id.expiration.check.interval.ms": _MAX_INT,
    "log.message.timestamp.before.max.ms": _MAX_LONG,
    "log.message.timestamp.after.max.ms": _MAX_LONG,
    "log.retention.ms": -1,  # like every log (fairlead.kafka.admin.LOG_DEFAULTS)
    # Nobody reads JMX here, and a dozen beans per log make opening a log a tenth slower.
    "metrics.jmx.exclude": "kafka[.](cluster|log):.*|kafka[.]server:type=BrokerTopicMetrics,.*",
    # Let the kernel size the windows. With Kafka's 100 kB a connection carries 0.45 MB/s over a 250 ms round trip.
    "socket.send.buffer.bytes": -1,
    "socket.receive.buffer.bytes": -1,
    # A broker allocates memory for the size that a request announces. With Kafka's 100 MB, three packets of any user
    # end a broker with a heap of 256 MB (seen on 4.3.1). A replicator's appends need 16 MiB (replication.check.rules).
    "socket.request.max.bytes": 16 << 20,
    "queued.max.request.bytes": 96 << 20,
    "num.network.threads": 2,
    "num.io.threads": 2,
    "background.threads": 2,
    "log.cleaner.threads": 1,
    "log.cleaner.dedupe.buffer.size": 2 << 20,  # 128 MB by default, allocated at start
    "num.recovery.threads.per.data.dir": 2,
    "num.replica.fetchers": 1,
    "group.coordinator.threads": 1,
    "share.coordinator.threads": 1,
    "remote.log.manager.copier.thread.pool.size": 1,
    "remote.log.manager.expiration.thread.pool.size": 1,
    "remote.log.manager.thread.pool.size": 1,
    "remote.log.reader.threads": 1,
    # Index files are preallocated as sparse files. An index of 64 kB is full after about 20 MB of log.
    "log.index.size.max.bytes": 64 << 10,
    "log.segment.bytes": 16 << 20,
    # After a crash, a broker starts only once the session of its previous process has ended.
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    # By default an idle controller writes an empty record to the metadata log twice a second, for metrics that nobody
    # reads here: a third of what an idle broker uses (1.3 instead of 1.9 % of a core, seen on 4.3.1).
    "metadata.max.idle.interval.ms": 0,
}

# For a site with several brokers: all topics survive the loss of one broker without losing acknowledged records.
_REPLICATED = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "unclean.leader.election.enable": "false",
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
}


def write_files(folder: Path, site: SiteState, controller: SecretStr, *, broker: Broker | None = None) -> None:
    """Write ``server.properties`` and the logging configuration; the first holds a password and has mode 0600.

    Raises:
        UnavailableError: the disk is full.
    """
    private_folder(folder)
    write_file(folder / "server.properties", server_properties(site, controller, broker=broker))
    write_file(folder / "log4j2.yaml", kafka.TO_FILE)


def server_properties(site: SiteState, controller: SecretStr, *, broker: Broker | None = None) -> str:
    """Return ``server.properties`` of one broker, by default the first; the site's ``properties`` override it.

    Brokers log in to each other, and to themselves to write transaction markers, with the password that they started
    with. It cannot change while they run: setting ``sasl.jaas.config`` has no effect (seen on 4.3.1).
    """
    broker = broker or site.brokers[0]
    client, control = f"{ports.HOST}:{broker.port}", f"{ports.HOST}:{broker.controller_port}"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    secret = controller.get_secret_value()
    own: dict[str, str | int] = {
        "node.id": broker.number,
        "controller.quorum.voters": ",".join(f"{b.number}@{ports.HOST}:{b.controller_port}" for b in site.brokers),
        "listeners": f"CLIENT://{client},CONTROLLER://{control}",
        "advertised.listeners": f"CLIENT://{client}",
        "listener.name.client.scram-sha-512.sasl.jaas.config": f'{scram} username="{CONTROLLER}" password="{secret}";',
        "listener.name.controller.plain.sasl.jaas.config": f'{plain} username="{CONTROLLER}" '
        f'password="{secret}" user_{CONTROLLER}="{secret}";',
    }
    replicated = _REPLICATED if len(site.brokers) > 1 else {}
    tls = tls_properties(*LISTENERS) if site.tls else {}
    all_of_them = _PROPERTIES | replicated | tls | own | site.properties
    return "".join(f"{key}={value}\n" for key, value in all_of_them.items())


def format_if_new(
    folder: Path,
    cluster_id: str,
    users: Mapping[str, SecretStr],
    *,
    node_id: int = 1,
    features: Mapping[str, int] = FEATURES,
) -> bool:
    """Format the broker's log directory unless it is formatted already; return True if it was new."""
    data = folder / "data"
    if (data / "meta.properties").exists():
        return False
    format_log_dir(data, cluster_id, users, node_id=node_id, features=features)
    return True


def command(java: Path, jars: Sequence[Path], folder: Path, *, jvm: Sequence[str] = (), tls: bool = False) -> list[str]:
    """Return the command line, for ``folder`` as working directory. ``marker(folder)`` is one of its arguments.

    With only its first compiler (C1) Java starts faster, but does not use the processor's AES instructions: with TLS
    a CPU second carries only 28 MB.
    """
    return [
        str(java),
        "-Xms64m",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        *(() if tls else ("-XX:TieredStopAtLevel=1",)),
        "-XX:+ExitOnOutOfMemoryError",
        *jvm,
        "-Dlog4j2.configurationFile=log4j2.yaml",
        marker(folder),
        "-cp",
        ":".join(str(jar) for jar in jars),
        "kafka.Kafka",
        "server.properties",
    ]


def marker(folder: Path) -> str:
    """Return the argument that distinguishes this broker's process from every other process."""
    return f"-Dfairlead.site={folder.resolve()}"


def wait_ready(
    process: psutil.Process,
    endpoint: KafkaEndpoint,
    folder: Path,
    *,
    cancel: threading.Event,
    node_id: int = 1,
) -> AdminClient:
    """Wait until the broker serves: open port, SCRAM login, registered, with a controller.

    ``endpoint`` names this one broker. While a password is being changed, this tries both.

    Returns:
        The connected client of ``endpoint``'s user.

    Raises:
        UnavailableError: the broker ended, refused the login, or took too long; with the last lines of its log.
        UntrustedError: it runs, but its clients do not trust its certificate.
        Cancelled: ``cancel`` was set.
    """
    end = time.monotonic() + READY_TIMEOUT
    wait = ProcessWait(process, "Kafka", endpoint.site, folder, end, lambda: last_words(folder), cancel)
    while not ports.accepts(endpoint.bootstrap[0][1], 0.2):
        wait.pause()
    client_errors = ClientErrors()
    quick = {**FOLLOW_CONTROLLER, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}

    def client(seen: KafkaEndpoint) -> AdminClient:
        return AdminClient({**seen.librdkafka(), **quick, "error_cb": client_errors.on_error})

    ways, tried = with_each_password(endpoint), 0
    admin = client(endpoint)
    while True:
        try:
            asked: Any = admin.describe_cluster(request_timeout=1)  # one future; the stubs say a dictionary
            cluster = asked.result()
            if cluster.controller is not None and any(node.id == node_id for node in cluster.nodes):
                return admin
        except KafkaException:
            admin.poll(0)  # calls the client's error callback
        if client_errors.untrusted is not None:
            require_trust(endpoint)
            client_errors.untrusted = None
        if client_errors.refused is not None:
            tried += 1
            if tried >= len(ways) and time.time() - process.create_time() > REFUSED_SECONDS:
                raise wait.refused(endpoint.user, "wrong password")
            if len(ways) > 1:
                client_errors.refused = None
                admin = client(ways[tried % len(ways)])
        wait.pause()


def last_words(folder: Path) -> str:
    """Return the lines of the broker's logs that explain why it ended."""
    words = ("ERROR", "FATAL", "Exception", "error")
    return tail(folder / "server.log", 3, containing=words) or tail(folder / "console.log", 3, containing=words)


# --- TLS

KEYSTORE: Final = "keystore.pem"
TRUSTSTORE: Final = "truststore.pem"
Listener = Literal["client", "controller"]
LISTENERS: Final[tuple[Listener, ...]] = ("client", "controller")


def tls_properties(*listeners: Listener) -> dict[str, str]:
    """Return settings with which the named listeners use TLS; the others use SASL without TLS.

    Each listener has its own settings, because a running broker reloads certificates per listener (KIP-226).
    """
    protocols = (f"{each.upper()}:SASL_{'SSL' if each in listeners else 'PLAINTEXT'}" for each in LISTENERS)
    stores = {
        "keystore.type": "PEM",
        "keystore.location": KEYSTORE,
        "truststore.type": "PEM",
        "truststore.location": TRUSTSTORE,
        "allow.dn.changes": "true",  # renewal checks a new certificate before the broker gets it
        "allow.san.changes": "true",
    }
    own = {f"listener.name.{each}.ssl.{name}": value for each in listeners for name, value in stores.items()}
    return {"listener.security.protocol.map": ",".join(protocols), **own}


def write_stores(folder: Path, pair: KeyPair, ca: bytes) -> None:
    """Write the broker's certificate and trusted authorities to the files that ``tls_properties`` name.

    Raises:
        UnavailableError: the disk is full.
    """
    private_folder(folder)
    write_file(folder / TRUSTSTORE, ca)
    write_file(folder / KEYSTORE, pair.key + pair.certificate)


def take_keystore(admin: AdminClient, node_id: int) -> None:
    """Make a running broker read ``KEYSTORE`` again, by setting its settings to the same values.

    Connections stay open. The broker presents the new certificate a moment after the return.

    Raises:
        UnavailableError: the broker refuses, or does not answer.
    """
    entries = [
        ConfigEntry(f"listener.name.client.ssl.keystore.{key}", value, incremental_operation=AlterConfigOpType.SET)
        for key, value in (("type", "PEM"), ("location", KEYSTORE))
    ]
    resource = ConfigResource(ResourceType.BROKER, str(node_id), incremental_configs=entries)
    for done in admin.incremental_alter_configs([resource], request_timeout=30).values():
        try:
            done.result()
        except KafkaException as error:
            cause: Any = error.args[0]
            raise UnavailableError(
                f"broker {node_id} did not load its new certificate and keeps the old one: {cause.name()}",
                hint="see its server.log",
            ) from error


# --- users

_TIMEOUT = 180.0  # seconds, as for a broker to be ready
_REQUEST = 10.0  # seconds; 0.02 on a quiet machine
_PASSING = {"_TIMED_OUT", "_TRANSPORT", "_DESTROY_BROKER", "REQUEST_TIMED_OUT", "NOT_CONTROLLER"}


def ensure_users(admin: AdminClient, users: Mapping[str, SecretStr], *, timeout: float = _TIMEOUT) -> None:
    """Create SCRAM users of a running broker, or change their passwords to these.

    A broker forwards the change to the controllers' leader. During an election requests get no answer and are
    repeated, so a change may be made twice.

    Raises:
        UnavailableError: the broker rejected a user, or did not accept it within ``timeout`` seconds.
    """
    end, left = time.monotonic() + timeout, dict(users)
    while left:
        wanted: list[UserScramCredentialAlteration] = [credential(u, p) for u, p in left.items()]
        asked = admin.alter_user_scram_credentials(wanted, request_timeout=min(timeout, _REQUEST))
        for user, done in asked.items():
            try:
                done.result()
                del left[user]
            except KafkaException as error:
                cause: Any = error.args[0]  # its text may contain the whole request, with passwords
                if not (cause.retriable() or cause.name() in _PASSING) or time.monotonic() > end:
                    raise UnavailableError(
                        f"the user {user} could not be created: {cause.name()}", hint="see the broker's server.log"
                    ) from error


# --- logging: warnings, and denied requests (INFO) as an audit trail

_CONFIGURATION: Final = """Configuration:
  Appenders:
    {kind}:
      name: {name}
      PatternLayout:
        pattern: "%d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}} %m%n"
{more}  Loggers:
    Root:
      level: WARN
      AppenderRef:
        ref: {name}
    Logger:
      - name: kafka.authorizer.logger
        level: INFO
      - name: org.apache.kafka.common.utils.AppInfoParser
        level: ERROR
"""
_ROLLING: Final = """      fileName: server.log
      filePattern: server.log.%i
      SizeBasedTriggeringPolicy:
        size: 10MB
      DefaultRolloverStrategy:
        max: 3
"""

TO_FILE: Final = _CONFIGURATION.format(kind="RollingFile", name="file", more=_ROLLING)
"""A ``log4j2.yaml`` for ``server.log`` in the broker's working folder."""

TO_CONSOLE: Final = _CONFIGURATION.format(kind="Console", name="console", more="")
"""A ``log4j2.yaml`` for standard output."""
