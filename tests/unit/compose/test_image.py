"""What the image fairlead-shore keeps of pip's packages: YARN, Kubernetes and object storage need all of them.

The Dockerfile's commands are applied to the packages that are installed here, whose versions are the image's. A command
that this module does not know fails the tests, as it might take something away.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path, PurePosixPath
from typing import Final

import pyspark
import pytest

import compose

DOCKERFILE: Final = (Path(compose.__file__).parent / "Dockerfile").read_text(encoding="utf-8")
LOCK: Final = Path(__file__).parents[3] / "requirements-run.lock"
INSTALLED: Final = Path(pyspark.__file__).parents[1]
ENVIRONMENT: Final = PurePosixPath("/opt/fairlead")
PACKAGES: Final = ENVIRONMENT / "lib" / "python3.11" / "site-packages"  # in the image

_OPERATORS: Final = {"&&", "||", ";", "|", "{", "}"}
_KEYWORDS: Final = {"if", "then", "else", "fi"}
_TAKES_NOTHING: Final = re.compile(
    r"apt-get (update|install) |jlink |useradd |install -d |export |\[ |true$|\S+/pip install "
    r"|python3 -m (venv|compileall) "
)

# By the names of files in site-packages. Each has to be installed here, and kept in the image.
NEEDED: Final = {
    "a standalone cluster": ["pyspark/bin/spark-class", "pyspark/bin/spark-submit", "pyspark/bin/load-spark-env.sh"],
    "YARN": [
        "pyspark/jars/spark-yarn_*",
        "pyspark/jars/spark-network-shuffle_*",
        "pyspark/jars/hadoop-client-api-*",
        "pyspark/jars/hadoop-client-runtime-*",
        "pyspark/python/lib/pyspark.zip",  # these two go to the executors
        "pyspark/python/lib/py4j-*-src.zip",
    ],
    "Kubernetes": [
        "pyspark/jars/spark-kubernetes_*",
        "pyspark/jars/kubernetes-client-*",
        "pyspark/jars/kubernetes-httpclient-vertx-*",
        "pyspark/jars/kubernetes-model-*",
        "pyspark/jars/vertx-*",
        "pyspark/jars/volcano-*",
        "pyspark/jars/zjsonpatch-*",
        "pyspark/jars/snakeyaml-*",
        "pyspark/jars/jackson-dataformat-yaml-*",
        "pyspark/jars/jackson-datatype-jsr310-*",
    ],
    "s3a, beside what shore.packages fetches": [
        "pyspark/jars/ivy-*",  # fetches
        "pyspark/jars/hadoop-client-api-*",
        "pyspark/jars/hadoop-client-runtime-*",
        "pyspark/jars/commons-lang3-*",
        "pyspark/jars/slf4j-api-*",
    ],
    "object storage, by Arrow": [
        "pyarrow/fs.py",
        "pyarrow/_fs.*",
        "pyarrow/_s3fs.*",
        "pyarrow/_gcsfs.*",
        "pyarrow/_azurefs.*",
        "pyarrow/_hdfs.*",
        "pyarrow/libarrow.*",
        "pyarrow/libarrow_s3.*",
    ],
    "object storage, by delta-rs": ["deltalake/_internal*"],
}

# Modules of Java that Hadoop, S3's and Kubernetes' clients use, with what for.
JAVA_MODULES: Final = {
    "java.logging": "AWS' and Kubernetes' clients",
    "java.management": "Hadoop's metrics",
    "java.naming": "Hadoop, and host names in certificates",
    "java.rmi": "Hadoop's metrics",
    "java.security.jgss": "Kerberos",
    "java.security.sasl": "Hadoop's RPC, and Spark's own connections",
    "java.sql": "Hadoop and Spark",
    "java.xml": "Hadoop's configuration, S3's answers",
    "jdk.crypto.ec": "TLS",
    "jdk.security.auth": "Hadoop's login, which loads it by name",
    "jdk.security.jgss": "Kerberos",
    "jdk.unsupported": "Netty, Arrow, Hadoop",
}


def instructions(stage: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions that make a stage: first those of the stages that it builds on or copies packages from."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", "")
    lines = [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]
    stages: dict[str, list[tuple[str, str]]] = {}
    for word, rest in lines:
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            current = stages.setdefault(name, list(stages.get(base, ())))
        elif word == "COPY" and (copied := re.fullmatch(rf"--from=(\S+) {ENVIRONMENT} {ENVIRONMENT}", rest)):
            current += stages[copied[1]]
        elif stages:
            current.append((word, rest))
    yield from stages[stage]


def commands(script: str) -> Iterator[list[str]]:
    """Split what a RUN gives to the shell into its commands, each a list of words."""
    lexer = shlex.shlex(re.sub(r"^(--\S+\s+)+", "", script), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    command: list[str] = []
    for word in lexer:
        if word in _OPERATORS:
            yield command
            command = []
        elif command or word not in _KEYWORDS:
            command.append(word)
    yield command


@functools.cache
def left_out(stage: str) -> frozenset[str]:
    """Return the patterns of the paths that a stage removes, by ``rm`` and ``pip uninstall``.

    Raises:
        AssertionError: A command is not known here, or the stage does not install what ``requirements-run.lock`` lists.
    """
    patterns: set[str] = set()
    installs = False
    for script in (rest for word, rest in instructions(stage) if word == "RUN"):
        folder = PurePosixPath("/")
        for command in filter(None, commands(script)):
            line = " ".join(command)
            installs |= "pip install" in line and "requirements-run.lock" in line
            if command[0] == "cd":
                folder /= command[1]
            elif command[0] == "rm":
                assert "$" not in line, f"{line}: the shell's variables are not known here"
                patterns |= {str(folder / word) for word in command[1:] if not word.startswith("-")}
            elif command[0].endswith("/pip") and command[1] == "uninstall":
                gone = set(command[2:])
                names = (name for name, owners in packages_distributions().items() if gone & set(owners))
                patterns |= {str(PACKAGES / name) for name in names}
            else:
                assert _TAKES_NOTHING.match(line), f"does this take away what pip has installed? {line}"
    assert installs, f"{stage} has no packages"
    return frozenset(patterns)


def kept(stage: str, file: Path) -> bool:
    """Return whether a stage keeps a file that is installed here."""
    path = PACKAGES / file.relative_to(INSTALLED)
    return not any(part.match(pattern) for pattern in left_out(stage) for part in (path, *path.parents))


@pytest.mark.parametrize(("wanted", "pattern"), [(each, name) for each, names in NEEDED.items() for name in names])
def test_the_image_keeps_what_clusters_and_storages_need(wanted: str, pattern: str) -> None:
    """Shore's image has the jars and libraries of Spark's cluster managers and of object storage (docs/spark.md)."""
    found = list(INSTALLED.glob(pattern))
    assert found, f"{pattern}, for {wanted}: has it another name now?"
    assert [str(file) for file in found if not kept("shore", file)] == [], wanted


def test_the_image_keeps_all_of_spark_and_its_readers() -> None:
    """No jar of Spark's, no library of Arrow's and no file of delta-rs is left out; a site's image has none of them."""
    folders = ("pyspark/jars", "pyspark/bin", "pyspark/python", "pyarrow", "deltalake", "delta", "py4j")
    files = [file for folder in folders for file in (INSTALLED / folder).iterdir()]
    assert len(files) > 300
    assert [str(file) for file in files if not kept("shore", file)] == []
    assert [str(file) for file in files if kept("site-packages", file)] == []


def test_the_image_has_the_versions_that_are_installed_here() -> None:
    """What is true of the packages here is true of the image's: its lock names the same versions."""
    lock = LOCK.read_text(encoding="utf-8").split()
    for name in ("pyspark", "py4j", "pyarrow", "deltalake", "delta-spark"):
        assert f"{name}=={version(name)}" in lock


def test_the_images_java_has_the_modules_of_hadoop_and_kubernetes() -> None:
    """The reduced Java of the image has what the clients of YARN, Kubernetes and S3 use."""
    (script,) = (rest for _, rest in instructions("java") if "--add-modules" in rest)
    chosen = shlex.split(script.split("--add-modules")[1])[0].split(",")
    assert sorted(JAVA_MODULES.keys() - set(chosen)) == []
