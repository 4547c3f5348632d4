"""Crash inside Spark's own commits: a store of Delta's log that kills the driver when it writes a given version.

Delta writes a version when all data files exist, and Spark notes the batch as done after that. The store is Java,
compiled by the compiler that Spark uses for its generated code.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

from fairlead.jars import ensure_jars
from tests.support.crashes import Side

_SOURCE = """
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

public class DyingStore extends io.delta.storage.LocalLogStore {
    public DyingStore(Configuration conf) { super(conf); }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf) throws java.io.IOException {
        boolean here = path.toString().endsWith(conf.get("dying.file"));
        if (here && conf.get("dying.side").equals("before")) die();
        super.write(path, actions, overwrite, conf);
        if (here) die();
    }

    private static void die() {
        ((ProcessHandle) ProcessHandle.current().parent().get()).destroyForcibly();
        Runtime.getRuntime().halt(137);
    }
}
"""


def settings_to_die(spark: SparkSession, folder: Path, table: str, version: int, side: Side) -> dict[str, str]:
    """Return Spark settings for a driver that dies before or after it commits this version of a table.

    Args:
        spark: Any session; its JVM compiles the store.
        folder: Receives the jar.
    """
    jvm = spark._jvm  # noqa: SLF001  # the compiler is Java's
    assert jvm is not None
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.setTargetVersion(8)
    compiler.cook(_SOURCE)
    jar = folder / "dying.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for name, code in dict(compiler.getBytecodes()).items():
            archive.writestr(f"{name}.class", bytes(code))
    return {
        "spark.jars": ",".join(map(str, (*ensure_jars("delta"), jar))),
        "spark.delta.logStore.file.impl": "DyingStore",
        "spark.hadoop.dying.file": f"{table}/_delta_log/{version:020d}.json",
        "spark.hadoop.dying.side": side,
    }
