"""What the image fairlead-shore leaves out: the list fits what is installed here, and takes nothing that is needed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest

from compose import slim

SITE = Path(pyspark.__file__).parents[1]
JARS = SITE / "pyspark" / "jars"
LISTED: dict[str, Any] = tomllib.loads(slim.LIST.read_text(encoding="utf-8"))
NATIVES = sorted(jar for name in LISTED["natives"]["jars"] for jar in JARS.glob(name))


def made(folder: Path, *names: str) -> Path:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return folder


def listed(jars: list[str], packages: list[str], stays: list[str]) -> dict[str, Any]:
    return {
        "jars": [{"why": "w", "names": jars}],
        "packages": [{"why": "w", "names": packages}],
        "stays": {"jars": stays, "packages": []},
    }


def test_every_pattern_finds_something_in_what_is_installed_and_spares_what_must_stay() -> None:
    gone = slim.plan(SITE, LISTED)
    assert JARS / "connect-repl" in gone
    assert SITE / "pyarrow" / "include" in gone
    kept = {path.name for path in JARS.iterdir()} - {path.name for path in gone}
    assert any(name.startswith("rocksdbjni-") for name in kept)
    assert not [
        name for name in kept if re.match(r"spark-(hive|mllib|connect|kubernetes|yarn)_|kubernetes-|hive-exec", name)
    ]


def test_every_entry_says_why() -> None:
    for entry in [*LISTED["jars"], *LISTED["packages"]]:
        assert entry["why"].endswith((".", ")")), entry


def test_a_pattern_that_finds_nothing_stops_the_build(tmp_path: Path) -> None:
    site = made(tmp_path, "pyspark/jars/hive-exec-1.jar", "a/tests/test_a.py")
    assert [path.name for path in slim.plan(site, listed(["hive-*"], ["a/tests"], []))] == ["tests", "hive-exec-1.jar"]
    with pytest.raises(slim.Stale, match="derby-"):
        slim.plan(site, listed(["derby-*"], [], []))
    with pytest.raises(slim.Stale, match="rocksdbjni-"):
        slim.plan(site, listed([], [], ["rocksdbjni-*"]))


def test_what_must_stay_cannot_be_taken(tmp_path: Path) -> None:
    site = made(tmp_path, "pyspark/jars/spark-sql_2.13.jar", "pyspark/jars/spark-hive_2.13.jar")
    with pytest.raises(slim.Stale, match="spark-sql_2"):
        slim.plan(site, listed(["spark-*"], [], ["spark-sql_*"]))
    with pytest.raises(slim.Stale, match="spark-sql_2"):
        slim.plan(site, listed([], ["pyspark"], ["spark-sql_*"]))


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("jar", NATIVES, ids=lambda jar: jar.name)
def test_each_jar_keeps_the_natives_of_the_image_s_own_processor(jar: Path, machine: str) -> None:
    with zipfile.ZipFile(jar) as archive:
        natives = [name for name in archive.namelist() if re.search(r"\.(so|dll|jnilib|dylib)$", name)]
    own = [name for name in natives if not slim.foreign(name, machine)]
    assert own and len(own) < len(natives)
    assert not [
        name for name in own if re.search("musl|win|osx|mac|darwin|bsd|aix|android|riscv|ppc|s390", name.lower())
    ]


def test_a_jar_is_written_again_with_all_else_in_it(tmp_path: Path) -> None:
    jar = tmp_path / "x.jar"
    names = ["META-INF/MANIFEST.MF", "a/B.class", "linux/amd64/libx.so", "win/amd64/libx.dll", "linux/aarch64/libx.so"]
    with zipfile.ZipFile(jar, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    slim.keep_own_natives(jar, "x86_64")
    with zipfile.ZipFile(jar) as archive:
        assert archive.namelist() == names[:3]
        assert archive.read("a/B.class") == b"a/B.class"
    with pytest.raises(slim.Stale, match=r"x\.jar"):
        slim.keep_own_natives(jar, "aarch64")


def test_a_library_that_is_there_several_times_becomes_links(tmp_path: Path) -> None:
    for name, content in {
        "liba.so": "a",
        "liba.so.1": "a",
        "liba.so.1.2": "a",
        "libb.so": "b",
        "libb.so.1": "other",
    }.items():
        (tmp_path / name).write_text(content)
    slim.one_copy(tmp_path)
    assert [path.name for path in sorted(tmp_path.iterdir()) if path.is_symlink()] == ["liba.so.1", "liba.so.1.2"]
    assert (tmp_path / "liba.so.1.2").read_text() == "a"


def test_all_that_shore_and_spark_s_workers_import_stays() -> None:
    """In an interpreter that finds nothing of what goes. What Spark imports in functions must be named in ``stays``."""
    gone = sorted(str(path) for path in slim.plan(SITE, LISTED))
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _IMPORTS, "\n".join(gone)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 500


_IMPORTS = """
import importlib, pkgutil, sys, warnings
from importlib.machinery import PathFinder

warnings.simplefilter("ignore")
gone = tuple(path + "/" for path in sys.argv[1].splitlines())
find = PathFinder.find_spec

def without(name, path=None, target=None):
    spec = find(name, path, target)
    places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
    return None if any(place and (place + "/").startswith(gone) for place in places) else spec

PathFinder.find_spec = without
for package in ("shore", "simulators.report", "fairlead.commands", "pyspark.sql.worker", "pyspark.sql.streaming"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
for name in ("pyspark.daemon", "pyspark.worker", "pyspark.sql.pandas.serializers", "pyspark.sql.pandas.group_ops",
             "delta.tables", "deltalake", "duckdb", "pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet",
             "altair", "vl_convert"):
    importlib.import_module(name)
print(len(sys.modules))
"""
