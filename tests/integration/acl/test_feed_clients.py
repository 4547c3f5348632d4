"""The client programs that ``fairlead feed --client`` prints, run as printed against a real broker."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest
import typer
from confluent_kafka import Consumer
from typer.testing import CliRunner, Result

from acl.probe import entitlement
from fairlead.cli.commands import feed as feed_command
from fairlead.errors import ConfigurationError, ExitCode
from fairlead.jars import ensure_jars
from fairlead.local.passwords import secret_variable
from tests.integration.acl.conftest import PORT, RED_BOX, Append, World
from tests.support.shells import first_line, shell
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration
app = typer.Typer()
app.command()(feed_command.feed)


def run(world: World, *arguments: str) -> Result:
    before = os.environ.get("FAIRLEAD_HOME")
    os.environ["FAIRLEAD_HOME"] = str(world.local.folder.parent)
    try:
        result = CliRunner().invoke(app, [*arguments, "--topology", str(world.file)])
    finally:
        os.environ.pop("FAIRLEAD_HOME")
        if before is not None:
            os.environ["FAIRLEAD_HOME"] = before
    assert not [secret for secret in world.passwords() if secret in result.output + str(result.exception)]
    return result


@pytest.mark.parametrize(
    ("client", "out"),
    [
        ("python", False),
        ("java", True),
        pytest.param("python", True, marks=pytest.mark.long),
        pytest.param("java", False, marks=pytest.mark.long),
    ],
)
def test_what_is_printed_reads_the_feed(client: str, out: bool, world: World, append: Append, tmp_path: Path) -> None:
    """Each printed program reads the feed."""
    append(PORT, "feeds.ducks", b"a mark", fairlead=b"marker")
    append(PORT, "feeds.ducks", f"reading-{client}-{out}".encode(), origin=b"containers.BIGU1234567@3")
    files = tmp_path / "files"
    more = ["--out", str(files)] if out else []
    result = run(world, "ducks", "--client", client, "--group", f"ducks.{client}-{out}", *more)
    assert result.exit_code == ExitCode.OK, result.output
    environment = {"KAFKA_JARS": ":".join(map(str, ensure_jars("kafka")))}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if out:
        assert {stat.S_IMODE(file.stat().st_mode) for file in files.iterdir()} == {0o600}
    else:
        password = world.kafka(PORT, "ducks").password
        assert password is not None
        environment[secret_variable(PORT, "ducks")] = password.get_secret_value()
    with shell(result.stdout, tmp_path, environment) as process:
        seen = first_line(process, f"reading-{client}-{out}")
    assert "a mark" not in seen


def test_kcats_settings_read_the_feed_with_kcats_library(world: World, append: Append, tmp_path: Path) -> None:
    """The settings printed for kcat work with kcat's library."""
    append(PORT, "feeds.ducks", b"for kcat")
    assert run(world, "ducks", "--client", "kcat", "--out", str(tmp_path)).exit_code == ExitCode.OK
    refused = run(world, "ducks", "--client", "kcat", "--out", str(tmp_path / "kcat.conf"))  # a file, and no folder
    assert getattr(refused.exception, "exit_code", None) == ExitCode.UNAVAILABLE, refused.exception
    lines = (tmp_path / "kcat.conf").read_text(encoding="utf-8").splitlines()
    consumer = Consumer(dict(line.split("=", 1) for line in lines))
    try:
        consumer.subscribe(["feeds.ducks"])
        while True:
            record = consumer.poll(PATIENCE)
            assert record is not None and record.error() is None
            if record.value() == b"for kcat":
                break
    finally:
        consumer.close()


def test_as_json_and_for_streams(world: World) -> None:
    """The settings are also available as JSON, and for streams."""
    body = json.loads(run(world, "red", "--client", "kcat", "--json").stdout)
    assert body["topics"] == list(entitlement(world.topology, "red")) == [RED_BOX.partition(".")[0] + "."]
    assert body["password_variable"] == "FAIRLEAD_SECRET_PORT_RED"
    assert set(body["files"]) == {"kcat.conf"}


def test_files_without_a_client_are_refused(world: World, tmp_path: Path) -> None:
    """Asking for files without naming a client is an error."""
    assert isinstance(run(world, "ducks", "--out", str(tmp_path)).exception, ConfigurationError)
