"""Delta Sharing read by Spark, where ``FAIRLEAD_SHARING_JARS`` names the jars of Delta's connector for it.

No registry of jars that this project uses has a connector for Spark 4.2. It can be made of the sources of Delta 4.4
(folder ``sharing``) and of delta-sharing (folder ``client``), with the Scala compiler that pyspark has in its jars.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import delta_sharing
import pytest

from fairlead.jars import ensure_jars
from tests.support.sharing import World, served, write_profile
from tests.support.shore.fleet import at, change, reading

JARS = os.environ.get("FAIRLEAD_SHARING_JARS", "")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not JARS, reason="FAIRLEAD_SHARING_JARS names no jars of Delta Sharing's connector for Spark"),
]


def ask(*questions: dict[str, Any]) -> list[Any]:
    jars = ",".join([*JARS.split(","), *map(str, ensure_jars("delta"))])
    command = [sys.executable, "-m", "tests.support.sharing_spark", jars, json.dumps(questions)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def offsets(answer: list[dict[str, Any]]) -> list[int]:
    return [row["log_offset"] for row in answer]


def test_spark_reads_versions_and_changes_until_something_is_taken_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    with served(world.service) as endpoint:
        profile = write_profile(tmp_path, endpoint, world.token("ducks"))
        table = f"{profile}#ducks.default.readings"
        first = delta_sharing.get_table_version(table)
        world.clock.forward(minutes=1)
        world.add(readings=[reading(50, 3, payload=b"{}")])
        whole = {"table": table, "columns": ["log_offset"]}
        changes = {"readChangeFeed": "true", "startingVersion": str(first + 1)}
        followed = whole | {"options": changes, "columns": ["log_offset", "_change_type", "_commit_version"]}
        newest, older, changed, streamed = ask(
            whole, whole | {"options": {"versionAsOf": str(first)}}, followed, followed | {"stream": True}
        )
        assert (offsets(newest), offsets(older)) == ([*range(19), 50], [*range(19)])
        assert changed == [{"log_offset": 50, "_change_type": "insert", "_commit_version": first + 1}]
        assert streamed == changed

        world.add(booking_changes=[change(3, 5, valid_to=at(4), consignee="toyshop")])
        newest, older, changed = ask(whole, whole | {"options": {"versionAsOf": str(first)}}, followed)
        assert offsets(newest) == [*range(8), 50]
        assert "is not kept" in older and "is not kept" in changed

        world.tokens.revoke("ducks")
        (refused,) = ask(whole)
        assert "UNAUTHENTICATED" in refused
