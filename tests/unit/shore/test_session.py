"""Spark's settings for one machine and for a cluster, and the error of a cluster that gives no executor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark import SparkConf

from fairlead.errors import ConfigurationError, UnavailableError
from shore import session
from shore.paths import TablePaths
from shore.session import are_due, await_first
from shore.storage import spark_settings


@pytest.fixture(autouse=True)
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ensure_jars", lambda kind: (Path("/jars/one.jar"), Path("/jars/two.jar")))
    monkeypatch.setattr(session, "ensure_packages", lambda names: tuple(Path(f"/jars/{name}.jar") for name in names))
    monkeypatch.setattr(session, "archive_option", lambda java, jars: "")


def test_one_machine_listens_on_loopback_only(tmp_path: Path) -> None:
    found = session.settings(tmp_path)
    assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
    assert found["spark.local.dir"].startswith(str(tmp_path))
    assert not any(name.startswith("spark.jars") for name in found)
    assert session.settings(tmp_path, packages=["s3"])["spark.driver.extraClassPath"].endswith(":/jars/s3.jar")
    assert not any(name.startswith("spark.executorEnv") for name in found)


def test_java_compiles_for_a_fast_start_unless_the_session_lasts(tmp_path: Path) -> None:
    short, lasting = (
        set(session.settings(tmp_path, lasting=each)["spark.driver.extraJavaOptions"].split()) for each in (False, True)
    )
    assert short - lasting == {"-XX:TieredStopAtLevel=1", "-Xms1g", "-XX:NewRatio=1"}
    assert lasting - short == {"-XX:NewSize=340m"}


def test_a_short_session_begins_with_its_whole_heap(tmp_path: Path) -> None:
    found = session.settings(tmp_path, memory="3g")
    assert found["spark.driver.memory"] == "3g"
    assert "-Xms3g" in found["spark.driver.extraJavaOptions"].split()


def test_a_cluster_can_reach_the_driver_and_finds_fairlead(tmp_path: Path) -> None:
    found = session.settings(tmp_path, master="spark://there:7077", packages=["a:b:1", "c:d:2"])
    assert found["spark.master"] == "spark://there:7077"
    assert not any(name in found for name in ("spark.driver.host", "spark.driver.bindAddress", "spark.local.dir"))
    assert str(Path(session.__file__).parents[1]) in found["spark.executorEnv.PYTHONPATH"].split(":")
    assert found["spark.jars"] == "/jars/one.jar,/jars/two.jar,/jars/a:b:1.jar,/jars/c:d:2.jar"


def test_both_have_delta_and_utc(tmp_path: Path) -> None:
    for master in ("local[2]", "spark://there:7077"):
        found = session.settings(tmp_path, master=master)
        assert "delta" in found["spark.sql.extensions"]
        assert found["spark.sql.session.timeZone"] == "UTC"


def test_the_state_folder_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    found = session.settings(Path("state"))

    assert found["spark.scheduler.allocation.file"] == (tmp_path / "state/spark/pools.xml").as_uri()
    assert found["spark.local.dir"] == str(tmp_path / "state/spark/scratch")


def test_everything_that_spark_sends_is_authenticated_and_encrypted(tmp_path: Path) -> None:
    """Executors are sent the password of Kafka."""
    for master in ("local[2]", "spark://there:7077", "yarn"):
        found = session.settings(tmp_path, master=master)
        assert (found["spark.authenticate"], found["spark.network.crypto.enabled"]) == ("true", "true")
        assert session.SECRET not in found


def test_a_cluster_has_a_page_and_an_event_log_beside_the_tables(tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    assert session.settings(tmp_path)["spark.ui.enabled"] == "false"
    assert session.event_log(paths, "local[2]") == {}
    assert "spark.ui.enabled" not in session.settings(tmp_path, master="spark://there:7077")
    found = session.event_log(paths, "spark://there:7077")
    assert found == {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"{tmp_path}/spark-events"}
    assert (tmp_path / "spark-events").is_dir()  # Spark refuses to start otherwise


class _Started(Exception):
    pass


def _start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, extra: dict[str, str] | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings that show on Spark's command line, and those of its context."""
    seen: list[dict[str, str]] = []

    def launch_gateway(conf: SparkConf, _options: object) -> None:
        seen.append(dict(conf.getAll()))

    def context(*, gateway: object, conf: SparkConf) -> None:
        seen.append(dict(conf.getAll()))
        raise _Started("as far as it goes")

    fake = type("Context", (), {"_active_spark_context": None, "__new__": lambda _cls, **named: context(**named)})
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(session, "find_java", lambda: Path("/usr/bin/java"))
    monkeypatch.setattr(session, "launch_gateway", launch_gateway)
    monkeypatch.setattr(session, "SparkContext", fake)
    with pytest.raises(UnavailableError, match="as far as it goes"):
        session.spark(tmp_path, master=master, extra=extra)
    shown, used = seen
    return shown, used


def test_one_machine_has_a_secret_of_its_own_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = set()
    for _ in range(2):
        shown, used = _start(tmp_path, monkeypatch, "local[2]")
        assert session.SECRET not in shown
        secrets.add(used[session.SECRET])
    assert len(secrets) == 2 and all(len(secret) >= 32 for secret in secrets)


def test_the_secret_of_a_cluster_is_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, used = _start(tmp_path, monkeypatch, "spark://there:7077", {session.SECRET: "of-the-cluster"})
    assert used[session.SECRET] == "of-the-cluster"
    assert "of-the-cluster" not in str(shown)


def test_the_keys_of_the_storage_are_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"AWS_ACCESS_KEY_ID": "who-it-is", "AWS_SECRET_ACCESS_KEY": "its-password", "AWS_REGION": "here"}
    extra = spark_settings(TablePaths("s3a://lake"), "yarn", environment)
    shown, used = _start(tmp_path, monkeypatch, "yarn", extra)
    assert (used["spark.hadoop.fs.s3a.secret.key"], used["spark.executorEnv.AWS_SECRET_ACCESS_KEY"]) == (
        "its-password",
        "its-password",
    )
    assert shown["spark.hadoop.fs.s3a.endpoint.region"] == "here"
    assert "its-password" not in str(shown)


def test_a_cluster_without_a_secret_is_refused_unless_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="spark://there:7077") as caught:
        session.spark(tmp_path, master="spark://there:7077")
    assert "FAIRLEAD_SECRET_<SITE>_SPARK" in caught.value.hint
    off = {"spark.authenticate": "false", "spark.network.crypto.enabled": "false"}
    _, used = _start(tmp_path, monkeypatch, "spark://there:7077", off)
    assert session.SECRET not in used


def test_the_first_executor_is_enough() -> None:
    counts = iter([0, 0, 1])
    await_first(lambda: next(counts), "spark://master:7077", pause=0.0)
    assert next(counts, "all were asked for") == "all were asked for"


def test_a_cluster_without_one_is_named_with_what_to_look_at() -> None:
    with pytest.raises(UnavailableError, match=r"spark://master:7077 gave no executor") as caught:
        await_first(lambda: 0, "spark://master:7077", patience=0.0, pause=0.0)
    assert "spark.driver.host" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("master", "settings", "due"),
    [
        ("local[2]", {}, False),
        ("spark://master:7077", {}, True),
        ("spark://master:7077", {"spark.dynamicAllocation.enabled": "true"}, False),
    ],
)
def test_where_executors_must_come(master: str, settings: dict[str, str], due: bool) -> None:
    assert are_due(master, settings) is due
