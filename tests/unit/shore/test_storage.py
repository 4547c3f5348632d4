"""One configuration of S3 for Spark and for readers: each gets from the other's settings what it lacks."""

from __future__ import annotations

import resource
from pathlib import Path
from unittest.mock import Mock

import pytest

from fairlead.errors import UnavailableError
from shore.paths import TablePaths
from shore.storage import Storage, open_paths, reader_environment, spark_settings
from topologies.model import Shore

S3 = TablePaths("s3a://lake/big-blue")
ENVIRONMENT = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:7070",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "fairlead",
    "AWS_SECRET_ACCESS_KEY": "hidden",
    "HOME": "/root",
}


def test_spark_gets_what_the_environment_says() -> None:
    found = spark_settings(S3, "local[2]", ENVIRONMENT)
    assert found == {
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:7070",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.access.key": "fairlead",
        "spark.hadoop.fs.s3a.secret.key": "hidden",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    }


def test_executors_of_a_cluster_get_the_variables_too() -> None:
    found = spark_settings(S3, "spark://there:7077", ENVIRONMENT)
    given = {name.removeprefix("spark.executorEnv."): found[name] for name in found if "executorEnv" in name}
    assert given == {name: ENVIRONMENT[name] for name in ENVIRONMENT if name != "HOME"} | {"AWS_ALLOW_HTTP": "true"}


def test_a_role_of_the_machine_needs_no_key() -> None:
    found = spark_settings(S3, "local[2]", {"AWS_DEFAULT_REGION": "eu-west-1"})
    assert found.keys() == {"spark.hadoop.fs.s3a.endpoint.region", "spark.hadoop.fs.s3.impl"}
    found = spark_settings(S3, "local[2]", ENVIRONMENT | {"AWS_SESSION_TOKEN": "t"})
    assert found["spark.hadoop.fs.s3a.aws.credentials.provider"].endswith("TemporaryAWSCredentialsProvider")


def test_tables_elsewhere_need_nothing() -> None:
    assert spark_settings(TablePaths("/data/lake"), "local[2]", ENVIRONMENT) == {}


def test_readers_get_what_only_hadoops_settings_say() -> None:
    settings = {
        "spark.hadoop.fs.s3a.endpoint": "minio:9000",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.endpoint.region": "local",
        "spark.executor.memory": "4g",
    }
    environment = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "fairlead"}
    shore = Shore(at="tokyo", tables=S3.base, settings=settings)
    assert open_paths(shore, Path("/state"), environment) == S3
    assert environment == {
        "AWS_REGION": "us-east-1",  # an existing value stays
        "AWS_ACCESS_KEY_ID": "fairlead",
        "AWS_ENDPOINT_URL": "http://minio:9000",
        "AWS_ALLOW_HTTP": "true",
    }


def test_plain_http_is_allowed_where_the_endpoint_says_so() -> None:
    assert reader_environment({}, ENVIRONMENT) == {"AWS_ALLOW_HTTP": "true"}
    assert reader_environment({}, {"AWS_ENDPOINT_URL": "https://minio:9000"}) == {}
    assert reader_environment({"spark.hadoop.fs.s3a.endpoint": "minio:9000"}, {}) == {
        "AWS_ENDPOINT_URL": "https://minio:9000"
    }


def test_a_folder_changes_no_environment() -> None:
    environment: dict[str, str] = {}
    assert open_paths(Shore(at="tokyo"), Path("/state"), environment) == TablePaths("/state")
    assert open_paths(None, Path("/state"), environment) == TablePaths("/state")
    assert environment == {}


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path: Path) -> None:
    files = Storage(str(tmp_path))
    files.write("retention/readings.json", b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(UnavailableError, match="refuses"):
            files.write("retention/readings.json", bytes(200_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files.read("retention/readings.json") == b"old"
    assert [path.name for path in (tmp_path / "retention").iterdir()] == ["readings.json"]


def test_a_file_whose_writer_was_killed_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Storage(str(tmp_path))
    monkeypatch.setattr(Path, "replace", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(Path, "unlink", Mock())
    with pytest.raises(KeyboardInterrupt):
        files.write("losses/readings/a@1-2.json", b"{}")
    assert list((tmp_path / "losses" / "readings").iterdir())
    assert files.files("losses") == []
