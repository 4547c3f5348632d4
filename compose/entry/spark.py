"""Entry point of a Spark container in a standalone cluster: become ``master`` or ``worker``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
from pydantic import SecretStr

from compose.entry.files import fail, secret, setting
from fairlead.local.files import write_file
from topologies.users import SPARK

SETTINGS = Path("/tmp/spark.conf")  # noqa: S108 - the container's own
_PORTS = {"master": ("7077", "8080"), "worker": ("7078", "8081")}


def properties(shared: SecretStr) -> str:
    """Return the settings of a master or worker: clients need the secret, and all traffic is encrypted."""
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": shared.get_secret_value(),
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",
        "spark.master.rest.enabled": "false",
        "spark.ui.killEnabled": "false",
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def main() -> None:
    """``exec`` Spark's own script."""
    kind = sys.argv[1] if len(sys.argv) > 1 else ""
    if kind not in _PORTS:
        fail(f"{kind or 'nothing'} is no Spark machine", "master or worker")
    port, page = _PORTS[kind]
    line = [f"org.apache.spark.deploy.{kind}.{kind.title()}", "--host", os.uname().nodename]
    line += ["--port", port, "--webui-port", page, "--properties-file", str(SETTINGS)]
    write_file(SETTINGS, properties(secret(f"{setting('SITE')}.{SPARK}")))  # a file, because ps shows arguments
    if kind == "worker":
        line += ["--cores", os.environ.get("SPARK_CORES", "2"), "--memory", os.environ.get("SPARK_MEMORY", "2g")]
        line += ["--work-dir", "/tmp/spark", "spark://spark-master:7077"]  # noqa: S108 - the container's own
    home = Path(pyspark.__file__).parent
    environment = dict(os.environ, SPARK_HOME=str(home), PYSPARK_PYTHON=sys.executable)
    environment.setdefault("SPARK_DAEMON_MEMORY", "384m")
    os.execve(home / "bin" / "spark-class", ["spark-class", *line], environment)  # noqa: S606


if __name__ == "__main__":
    main()
