"""Spark's settings: what one machine needs, and what a cluster needs instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from shore import session


@pytest.fixture(autouse=True)
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ensure_jars", lambda kind: (Path("/jars/one.jar"), Path("/jars/two.jar")))


def test_one_machine_listens_on_loopback_only(tmp_path: Path) -> None:
    found = session.settings(tmp_path)
    assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
    assert found["spark.local.dir"].startswith(str(tmp_path))
    assert "spark.jars.packages" not in found
    assert not any(name.startswith("spark.executorEnv") for name in found)


def test_a_cluster_can_reach_the_driver_and_finds_fairlead(tmp_path: Path) -> None:
    found = session.settings(tmp_path, master="spark://there:7077", packages=["a:b:1", "c:d:2"])
    assert found["spark.master"] == "spark://there:7077"
    assert not any(name in found for name in ("spark.driver.host", "spark.driver.bindAddress", "spark.local.dir"))
    assert str(Path(session.__file__).parents[1]) in found["spark.executorEnv.PYTHONPATH"].split(":")
    assert found["spark.jars.packages"] == "a:b:1,c:d:2"
    assert found["spark.jars"] == "/jars/one.jar,/jars/two.jar"


def test_both_have_delta_and_utc(tmp_path: Path) -> None:
    for master in ("local[2]", "spark://there:7077"):
        found = session.settings(tmp_path, master=master)
        assert "delta" in found["spark.sql.extensions"]
        assert found["spark.sql.session.timeZone"] == "UTC"
