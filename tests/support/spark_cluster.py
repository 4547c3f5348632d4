"""A real standalone Spark cluster on loopback: master and workers as processes, from the jars of pip's pyspark."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark
from pydantic import SecretStr

from compose.entry.spark import properties
from fairlead.jars import find_java
from fairlead.local.files import write_file
from fairlead.local.ports import choose_ports
from tests.support.waits import until

SECRET = "the-secret-of-the-cluster"
_LIGHT = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@dataclass
class Daemon:
    """One process of the cluster; its output goes to ``log``."""

    process: subprocess.Popen[bytes]
    log: Path

    def heard(self, pattern: re.Pattern[str] | str) -> re.Match[str] | None:
        return re.search(pattern, self.log.read_text(encoding="utf-8", errors="replace"))

    def wait_for(self, pattern: re.Pattern[str] | str) -> re.Match[str]:
        """Return the first match of a pattern in the process's output. Fails after two minutes, or if the process ends
        before.
        """
        found: list[re.Match[str]] = []

        def said() -> bool:
            assert self.process.poll() is None, f"ended: {self.log.read_text()[-2000:]}"
            found.extend(match for match in (self.heard(pattern),) if match)
            return bool(found)

        until(said, f"{pattern} in {self.log}")
        return found[0]

    def kill(self) -> None:
        """Kill the process and every process it has started (SIGKILL); for a worker this includes its executors."""
        with contextlib.suppress(psutil.NoSuchProcess):
            whole = psutil.Process(self.process.pid)
            for process in [*whole.children(recursive=True), whole]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait()


@dataclass
class SparkCluster:
    """A running cluster; ``url`` is the master's, for Spark's setting of that name."""

    master: Daemon
    url: str
    workers: list[Daemon] = field(default_factory=list)


@contextlib.contextmanager
def spark_cluster(
    folder: Path, *, workers: int = 2, memory: str = "768m", more: Mapping[str, str] | None = None
) -> Iterator[SparkCluster]:
    """Run a master and workers of one core each, and end them all afterwards. ``more`` overrides their settings."""
    folder.mkdir(parents=True, exist_ok=True)
    started: list[Daemon] = []
    port = free_port()
    settings = folder / "spark.conf"
    further = "".join(f"{name} {value}\n" for name, value in (more or {}).items())
    write_file(settings, properties(SecretStr(SECRET)) + further)  # of a key that occurs twice, the last counts

    def start(kind: str, *arguments: str) -> Daemon:
        home = Path(pyspark.__file__).parent
        log = folder / f"{len(started)}.log"
        environment = os.environ | {
            "JAVA_HOME": str(find_java().resolve().parent.parent),
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": f"{_LIGHT} -Dspark.master.rest.enabled=false",
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
        command += ["--properties-file", str(settings)]
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603  # pyspark's own script
                [*command, "--webui-port", "0", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env=environment,
            )
        started.append(Daemon(process, log))
        return started[-1]

    try:
        cluster = SparkCluster(start("master.Master", "--port", str(port)), f"spark://127.0.0.1:{port}")
        for index in range(workers):  # the workers try again until the master is up
            place = ("--port", "0", "--cores", "1", "--memory", memory, "--work-dir", str(folder / f"worker{index}"))
            cluster.workers.append(start("worker.Worker", *place, cluster.url))
        for worker in cluster.workers:
            worker.wait_for("Successfully registered with master")
        yield cluster
    finally:
        for daemon in reversed(started):
            daemon.kill()


EXECUTOR_SETTINGS = {
    "spark.authenticate.secret": SECRET,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.defaultJavaOptions": _LIGHT,
    "spark.executor.extraJavaOptions": _LIGHT,
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Settings for a driver on the same machine, with small executors that start soon."""


def free_port() -> int:
    """Return a port that nobody listens on at the moment, and that no client gets before a server starts there."""
    (port,) = choose_ports(1)
    return port
