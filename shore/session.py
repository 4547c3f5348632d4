"""The one Spark session of a process, with Delta: local on loopback by default, or on a given cluster.

Everything that it writes beside tables (scratch files, warehouse) is under ``<folder>/spark``. The output of the JVM
and the Python workers goes to ``<folder>/spark/spark.log``.

This process is the driver of a cluster (``spark://host:7077``, "client mode"). So the cluster needs the same Spark and
Python on every machine, Python at the same path as here, and Fairlead installed for it (``pip install``, or a checkout
at the same path). It does not need Delta's jars: executors fetch them from the driver. Executors must reach the driver
(``spark.driver.host``, ``spark.driver.port``), the site's Kafka, and the storage of tables and checkpoints.

Spark authenticates and encrypts every connection (``spark.authenticate``, ``spark.network.crypto.enabled``), because
executors receive the password of Kafka. On one machine the secret is random; YARN and Kubernetes create one by
themselves; a standalone cluster's master and workers must have the secret that this driver is given.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

import fairlead
from fairlead.errors import ConfigurationError, UnavailableError, first_line
from fairlead.home import private_folder
from fairlead.jars import ensure_jars, ensure_packages, find_java
from shore.paths import TablePaths
from shore.quickstart import archive_option, unzipped
from shore.storage import Storage

PATIENCE = 120.0  # seconds; a working cluster gives an executor after 5 to 20


def are_due(master: str, settings: Mapping[str, str]) -> bool:
    """Return whether to wait for executors: not in local mode, nor where dynamic allocation creates them on demand."""
    on_demand = settings.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    return not master.startswith("local") and not on_demand


def await_first(count: Callable[[], int], master: str, *, patience: float = PATIENCE, pause: float = 0.5) -> None:
    """Wait until the cluster has given an executor.

    Args:
        count: Returns how many executors have registered with this driver.

    Raises:
        UnavailableError: no executor registered within ``patience`` seconds.
    """
    end = time.monotonic() + patience
    while not count():
        if time.monotonic() > end:
            raise UnavailableError(
                f"Spark's master {master} gave no executor within {patience:.0f} s",
                hint="has it workers with free cores and memory? Can they reach this driver? They go to "
                "spark.driver.host, which must be a name of this machine that they can resolve, and this machine must "
                "listen there (spark.driver.bindAddress); their logs are in the workers' folders",
                master=master,
            )
        time.sleep(pause)


DEFAULT_MASTER = "local[2]"
SECRET = "spark.authenticate.secret"  # noqa: S105 - the setting's name
MAINTENANCE_POOL = "maintenance"
_CONFIDENTIAL = re.compile(r"secret|password|token|access[._]?key", re.IGNORECASE)  # as spark.redaction.regex
_MEMORY = "1g"
_EVENTS = "spark-events"
_AUTHENTICATE = "spark.authenticate"

# Queries run in pool "default", whose weight lets its tasks go first.
_POOLS = f"""\
<allocations>
  <pool name="default"><schedulingMode>FIFO</schedulingMode><weight>100</weight></pool>
  <pool name="{MAINTENANCE_POOL}"><schedulingMode>FIFO</schedulingMode><weight>1</weight></pool>
</allocations>
"""

_LOGGING = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} spark %p %c{1}: %m%n%ex{3}
# The failure of a query is raised by shore itself, with its cause; once is enough.
logger.query.name = org.apache.spark.sql.execution.streaming
logger.query.level = off
"""


def settings(
    folder: Path,
    *,
    master: str = DEFAULT_MASTER,
    packages: Sequence[str] = (),
    java: Path | None = None,
    lasting: bool = False,
    memory: str = _MEMORY,
) -> dict[str, str]:
    """Return Spark's settings for a topology's state folder. Download Delta's two jars when they are not in the cache.

    Args:
        lasting: The session goes on for hours (``spark``).
        memory: The heap of the driver, as Java writes it.
        packages: Further jars by Maven coordinates; they are downloaded the first time.
        java: The Java program of a local session; with it, the session starts from an archive of classes.
    """
    scratch = folder.absolute() / "spark"
    jars, further = ensure_jars("delta"), ensure_packages(packages)
    found = {
        "spark.app.name": "fairlead-shore",
        "spark.master": master,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        # For error messages, each column function would look up its Python call site, which takes four times as long
        # (PySpark 4.2 without IPython: 3.8 instead of 0.9 ms). A batch of all jobs calls thousands.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Inferring conditions from others costs more than it saves, and fails where a DataFrame with a union in it is
        # computed (``shore.delta.lake.computed``; Spark 4.2: "key not found: ...").
        "spark.sql.constraintPropagation.enabled": "false",
        "spark.sql.parquet.compression.codec": "zstd",  # half the size of snappy for the same CPU
        # Spark's default INT96 has no statistics, so that a question about one hour would read whole files.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # A batch of all jobs compiles some 600 classes; with Spark's default of 100 it would compile all of them again.
        "spark.sql.codegen.cache.maxEntries": "5000",
        "spark.sql.ui.explainMode": "simple",  # each action writes its plan as text; "formatted" takes longer
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.killEnabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        "spark.driver.memory": memory,
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": (scratch / "pools.xml").as_uri(),
        _AUTHENTICATE: "true",
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",
    }
    if master.startswith("local"):
        # One machine: few, short tasks. Delta's own default is 50 tasks to read a table's state, Spark's 200 a shuffle.
        # Where jobs run for seconds to minutes, the compiler that starts fast beats the one that gets faster later. Its
        # own thresholds are right: with 0.4 or 3 times as many calls (CompileThresholdScaling), ``shore run --once``
        # takes 62 or 68 instead of 56 CPU-s. With both, all tables of a day of 2,000 boxes take 77 instead of 61 CPU-s,
        # and ten minutes later a batch of ``conditions`` takes 14 instead of 20.
        found |= {
            "spark.ui.enabled": "false",
            # Each action writes its plan down, 90 KB of text on average, which nobody reads without a UI.
            "spark.sql.maxPlanStringLength": "100",
            "spark.sql.debug.maxToStringFields": "2",
            "spark.databricks.delta.snapshotPartitions": "1",
            # Delta would list all files of a small table in the checksum of each commit. To create a table takes 0.22
            # instead of 0.37 CPU-s without, to read one as long as with it (Delta 4.4.0).
            "spark.databricks.delta.allFilesInCrc.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            # Each broadcast relation takes a whole page, however few rows it has. For this heap Spark chooses 8 MB, and
            # the broadcasts of ten jobs then fill a third of it.
            "spark.buffer.pageSize": "1m",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch / "scratch"),
            # On the class path, because the archive has no classes of jars that Spark loads later, and Spark would copy
            # each such jar to itself over the network.
            "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in (*jars, *further)),
            "spark.driver.extraJavaOptions": _java_options(
                scratch,
                "-XX:+UseSerialGC",
                # A heap that begins small collects itself as a whole each time that it grows. A run that ends soon has
                # few objects to keep: with half of the heap for new ones, it collects half as often.
                "-XX:NewSize=340m" if lasting else f"-Xms{memory} -XX:NewRatio=1",
                "" if lasting else "-XX:TieredStopAtLevel=1",
                "-XX:MetaspaceSize=256m",  # a session fills it, and each growth from 21 MB on collects the whole heap
                # The default of 48 MB for that compiler is full after some minutes: the JVM then interprets, or fails.
                "-XX:ReservedCodeCacheSize=256m",
                archive_option(java, jars) if java is not None else "",
            ),
        }
    else:
        # Executors do not have this process's environment: their Python must find the same modules.
        found |= {
            "spark.jars": ",".join(str(jar) for jar in (*jars, *further)),
            "spark.files.io.connectionTimeout": "600s",  # executors fetch the jars: 690 MB for S3
            "spark.executorEnv.PYTHONPATH": _python_path(),
            "spark.driver.extraJavaOptions": _java_options(scratch),
        }
    return found


def spark(
    folder: Path,
    *,
    master: str = DEFAULT_MASTER,
    extra: Mapping[str, str] | None = None,
    packages: Sequence[str] = (),
    lasting: bool = False,
) -> SparkSession:
    """Start the session, or return the one that this process already has.

    Args:
        folder: The topology's state folder.
        master: ``local[N]``, or the URL of a Spark cluster.
        extra: Settings that override the defaults; with ``SECRET`` for a standalone cluster.
        packages: Further jars by Maven coordinates.
        lasting: The session goes on for hours: Java compiles for speed, which takes a quarter more CPU at first.

    Raises:
        ConfigurationError: the secret of a standalone cluster is not known.
        UnavailableError: no usable Java, the jars cannot be fetched, Spark does not start, or its cluster gives no
            executor.
    """
    java = find_java()
    private_folder(folder / "spark" / "scratch")
    _write_files(folder / "spark")
    os.environ["JAVA_HOME"] = str(java.resolve().parent.parent)
    os.environ["PYSPARK_PYTHON"] = sys.executable  # without it, Spark starts workers with a bare "python3"
    os.environ["PYTHONPATH"] = _python_path()
    # NumPy would start threads for linear algebra, which nobody uses, in each Python process of Spark: 0.1 CPU-s.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    given = dict(extra or {})
    memory = given.get("spark.driver.memory", _MEMORY)
    usual = settings(folder, master=master, packages=packages, java=java, lasting=lasting, memory=memory)
    wanted = usual | given
    secret = _secret(master, wanted)
    shown = [(name, value) for name, value in wanted.items() if not _CONFIDENTIAL.search(name)]
    on_the_command_line = SparkConf(loadDefaults=False).setAll(shown)
    conf = SparkConf(loadDefaults=False).setAll([*wanted.items(), *secret.items()])
    log = folder / "spark" / "spark.log"
    try:
        if SparkContext._active_spark_context is None:  # noqa: SLF001  # there is no public way to ask
            home = unzipped() if master.startswith("local") else contextlib.nullcontext()
            with log.open("w", encoding="utf-8") as output, home:
                gateway = launch_gateway(on_the_command_line, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
            ctrl_c = signal.getsignal(signal.SIGINT)
            SparkContext(gateway=gateway, conf=conf)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, ctrl_c)  # Spark's own handler interrupts its calls and prints stack traces
        session = SparkSession.builder.getOrCreate()
    except Exception as error:
        raise UnavailableError(
            f"Spark did not start ({type(error).__name__}: {first_line(error)})",
            hint=f"Java used: {java}; its own words are in {log}",
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    if are_due(master, wanted):
        try:
            await_first(lambda: _executors(session), master)
        except UnavailableError:
            close(session)
            raise
    # PySpark logs every failed query there with its whole plan, and then raises the same error.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    return session


def event_log(paths: TablePaths, master: str) -> dict[str, str]:
    """Return settings that write a cluster session's event log, for Spark's history server, next to the tables; empty
    for a local session. Create the log's folder.

    Raises:
        UnavailableError: the storage does not answer.
    """
    if master.startswith("local"):
        return {}
    Storage(paths.base).write(f"{_EVENTS}/README", b"Spark's event logs: spark.history.fs.logDirectory\n")
    return {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"{paths.base}/{_EVENTS}"}


def check_filesystem(session: SparkSession, paths: TablePaths) -> None:
    """Check that Spark can open the storage of the tables.

    Raises:
        UnavailableError: Spark lacks the storage's classes, or the settings to reach it.
    """
    if paths.is_local:
        return
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - there is no public way
    try:
        path = jvm.org.apache.hadoop.fs.Path(paths.base)
        path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001
    except Py4JJavaError as error:
        reason = (str(error.java_exception).splitlines() or [""])[0]
        raise UnavailableError(
            f"Spark cannot open {paths.base}: {reason}",
            hint="S3 needs shore: {packages: ['org.apache.hadoop:hadoop-aws:3.5.0']} and, unless the machine has a "
            "role, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment; docs/spark.md has the whole way",
            location=paths.base,
        ) from error


def _secret(master: str, wanted: dict[str, str]) -> dict[str, str]:
    """Take the secret out of the settings, because ``ps`` shows Spark's arguments. Local sessions get a random one."""
    given = wanted.pop(SECRET, None)
    if wanted[_AUTHENTICATE].lower() != "true":
        return {}
    if given is None and master.startswith("local"):
        given = secrets.token_urlsafe(32)
    if given is None and master.startswith("spark://"):
        raise ConfigurationError(
            f"the secret that {master} authenticates by is not known",
            hint="give its master and workers spark.authenticate true and a spark.authenticate.secret, and that secret "
            "to this program as the password of user 'spark' of the site where shore runs "
            "(FAIRLEAD_SECRET_<SITE>_SPARK). Where everybody on its network may read everything: shore: {settings: "
            "{spark.authenticate: 'false', spark.network.crypto.enabled: 'false'}}",
            master=master,
        )
    return {} if given is None else {SECRET: given}


def close(session: SparkSession, *, patience: float = 15.0) -> None:
    """Stop the session and its JVM, which Spark would leave running until Python ends. Kill a JVM that has not ended by
    itself after ``patience`` seconds."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001  # there is no public way to end the JVM
    context: Any = session.sparkContext
    # Spark would wait for its server of accumulators, which looks once a second whether it is to end. So the server
    # ends after the JVM, and would print that the JVM's connection is closed.
    accumulators, context._accumulatorServer = context._accumulatorServer, None  # noqa: SLF001
    accumulators.handle_error = lambda request, address: None
    threading.Thread(target=accumulators.shutdown, name="accumulators", daemon=True).start()
    session.stop()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    gateway.shutdown()
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()  # the JVM ends when its standard input is closed
        try:
            process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _executors(session: SparkSession) -> int:
    """Return how many executors have registered. Spark counts the driver as well."""
    known: Any = session.sparkContext._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001 - there is no public way
    return int(known.size()) - 1


def _python_path() -> str:
    """Return a PYTHONPATH by which other Python processes find this process's modules, installed or not."""
    root = str(Path(fairlead.__file__).resolve().parent.parent)
    known = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join([root, *(part for part in known if part != root)])


def _write_files(scratch: Path) -> None:
    (scratch / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
    (scratch / "pools.xml").write_text(_POOLS, encoding="utf-8")


def _java_options(scratch: Path, *more: str) -> str:
    return " ".join(
        (
            *filter(None, more),
            f"-Dlog4j2.configurationFile={(scratch / 'log4j2.properties').as_uri()}",
            f"-Dderby.system.home={scratch / 'derby'}",
            "-Djava.net.preferIPv4Stack=true",
        )
    )


def exercise(folder: Path) -> None:
    """Use all parts of Spark that shore needs, for ``shore.quickstart``: write, merge, read and follow a small table,
    and pass Arrow data to Python."""
    from delta.tables import DeltaTable

    session = spark(folder)
    table = str(folder / "table")
    rows = session.range(100).selectExpr("id", "cast(id as string) as name", "timestamp_seconds(id) as at")
    DeltaTable.createIfNotExists(session).location(table).addColumns(rows.schema).execute()
    for version in range(2):
        rows.write.format("delta").mode("append").option("txnAppId", "a").option("txnVersion", version).save(table)
    again = rows.mapInArrow(lambda batches: batches, rows.schema).persist()
    target = DeltaTable.forPath(session, table).alias("t").merge(again.alias("s"), "t.id = s.id + 1000")
    target.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    again.unpersist()

    def count(batch: DataFrame, number: int) -> None:
        batch.groupBy("name").count().collect()

    stream = session.readStream.format("delta").load(table).writeStream.foreachBatch(count)
    stream = stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    stream.start().awaitTermination()
    close(session, patience=300.0)  # the JVM writes the archive when it ends


if __name__ == "__main__":
    exercise(Path(sys.argv[1]))
