"""The peer: MirrorMaker 2 in dedicated mode, one Java process, set up to do this one job as well as it can.

``SETTINGS`` says why each setting is as it is; the benchmark page prints it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from benchmarks.replication.fairlead_side import SOURCE, TARGET, USER
from benchmarks.replication.world import Logs, World
from fairlead.jars import ensure_jars, find_java, jar_set
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local.files import write_file

MAIN: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
GRACE: Final = 30.0  # seconds from SIGTERM to SIGKILL

# What Kafka's own start script gives it (bin/connect-mirror-maker.sh, bin/kafka-run-class.sh).
JVM: Final = (
    "-Xms256M",
    "-Xmx2G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)


class Setting(NamedTuple):
    """A line of the properties file, and why it is there."""

    key: str
    value: str
    why: str


DELIVERED: Final = (
    Setting("tasks.max", "2", "one for each core of the machine"),
    Setting(
        "replication.policy.class",
        "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "same topic names at the target, as Fairlead has them",
    ),
    Setting("replication.factor", "1", "one broker at each site"),
    Setting("checkpoints.topic.replication.factor", "1", "one broker at each site"),
    Setting("heartbeats.topic.replication.factor", "1", "one broker at each site"),
    Setting("offset-syncs.topic.replication.factor", "1", "one broker at each site"),
    Setting("config.storage.replication.factor", "1", "one broker at each site"),
    Setting("offset.storage.replication.factor", "1", "one broker at each site"),
    Setting("status.storage.replication.factor", "1", "one broker at each site"),
    Setting(f"{TARGET}.producer.compression.type", "lz4", "as the source's batches"),
)
"""As a user has it who names the clusters, two tasks and the policy."""

LEAN: Final = (
    *DELIVERED,
    Setting("emit.heartbeats.enabled", "false", "work that only MirrorMaker does"),
    Setting("emit.checkpoints.enabled", "false", "no consumer groups are there to be translated"),
    Setting("sync.topic.configs.enabled", "false", "the topics are the same already"),
    Setting("sync.topic.acls.enabled", "false", "there are none"),
    Setting("sync.group.offsets.enabled", "false", "no groups"),
    Setting("refresh.groups.enabled", "false", "no groups"),
    Setting("offset.storage.partitions", "1", "25 by default: fewer logs to open"),
    Setting("status.storage.partitions", "1", "5 by default: fewer logs to open"),
)
"""Without what only MirrorMaker does, or what has nothing to do here."""

TUNED: Final = (
    *LEAN,
    Setting("emit.offset-syncs.enabled", "false", "a second producer less; but no position can be translated"),
    Setting(f"{SOURCE}.consumer.max.poll.records", "5000", "500 by default: fewer rounds for the same records"),
    Setting(f"{SOURCE}.consumer.receive.buffer.bytes", "1048576", "64 kB by default: fewer system calls"),
    Setting(f"{TARGET}.producer.linger.ms", "20", "Connect's default is 0: batches would hold few records"),
    Setting(f"{TARGET}.producer.batch.size", "262144", "16 kB by default: larger batches for the bulk of one topic"),
    Setting(f"{TARGET}.producer.buffer.memory", "134217728", "32 MB by default: thousands of open batches"),
    Setting(f"{TARGET}.producer.max.request.size", "8388608", "1 MB by default: more batches in a request"),
    Setting(f"{TARGET}.producer.enable.idempotence", "true", "so that five requests in flight keep the order"),
    Setting(f"{TARGET}.producer.max.in.flight.requests.per.connection", "5", "Connect's default is 1"),
)
"""As fast as we know how to make it."""

_LOG4J2: Final = """status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = mirrormaker.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


def described() -> dict[str, Any]:
    """Version, Java options and settings, for the report."""
    return {
        "version": jar_set("mirrormaker").revision_of("connect-mirror"),
        "jvm": list(JVM),
        "settings": [setting._asdict() for setting in DELIVERED],
        "lean": [setting._asdict() for setting in LEAN if setting not in DELIVERED],
        "tuning": [setting._asdict() for setting in TUNED if setting not in LEAN],
    }


def properties(
    stream: str, source: KafkaEndpoint, target: KafkaEndpoint, settings: Sequence[Setting] = DELIVERED
) -> str:
    """The text of its properties file; holds passwords."""
    lines = [f"clusters={SOURCE}, {TARGET}"]
    for name, endpoint in ((SOURCE, source), (TARGET, target)):
        secret = endpoint.password.get_secret_value() if endpoint.password else ""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        lines += [
            f"{name}.bootstrap.servers={endpoint.bootstrap_servers}",
            f"{name}.security.protocol=SASL_PLAINTEXT",
            f"{name}.sasl.mechanism=SCRAM-SHA-512",
            f'{name}.sasl.jaas.config={module} username="{USER}" password="{secret}";',
        ]
    lines += [
        f"{SOURCE}->{TARGET}.enabled=true",
        f"{SOURCE}->{TARGET}.topics={stream}[.].*",
        f"{TARGET}->{SOURCE}.enabled=false",
        *(f"{key}={value}" for key, value, _ in settings),
    ]
    return "\n".join(lines) + "\n"


@contextlib.asynccontextmanager
async def mirrormaker(
    world: World, logs: Logs, *, settings: Sequence[Setting] = DELIVERED
) -> AsyncIterator[psutil.Process]:
    """The process that copies ``logs``; stopped afterwards."""
    jars = await asyncio.to_thread(ensure_jars, "mirrormaker")
    folder = world.sites.folder / f"mirrormaker.{logs.stream}"
    _write(folder, properties(logs.stream, world.source.endpoint, world.target.endpoint, settings))
    command = [
        str(find_java()),
        *JVM,
        "-Dlog4j2.configurationFile=log4j2.properties",
        "-cp",
        ":".join(map(str, jars)),
        MAIN,
    ]
    child = await asyncio.create_subprocess_exec(
        *command,
        "mm2.properties",
        cwd=folder,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={key: value for key, value in os.environ.items() if key != "_JAVA_OPTIONS"},
    )
    try:
        yield psutil.Process(child.pid)
    finally:
        await _stop(child)


async def _stop(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
        try:
            await asyncio.wait_for(child.wait(), GRACE)
        except TimeoutError:
            child.kill()
    await child.wait()


def _write(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, mode=0o700)
    write_file(folder / "mm2.properties", text)
    write_file(folder / "log4j2.properties", _LOG4J2)
