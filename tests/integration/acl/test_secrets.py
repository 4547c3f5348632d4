"""Passwords appear in no output: the test plants them in every place that may hold one, and searches everything that
comes out.

Real commands run in this process and in their own, and services with wrong passwords; then every output, log, saved
plan, audit entry, file of the state folder and argument list is searched, in every form that a password takes.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import stat
import time
import traceback
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from acl.kafka import read_history
from fairlead.cli import app as cli
from fairlead.cli.console import show_error
from fairlead.errors import ExitCode, FairleadError
from fairlead.health import health_problem
from fairlead.local.passwords import Passwords
from fairlead.local.workers import Workers
from tests.integration.acl.conftest import PORT, SHIP, World
from tests.support.waits import PATIENCE

pytestmark = [pytest.mark.long, pytest.mark.integration]
HOLDERS = ("secrets.json", "server.properties")  # the only files that may have one
ODD = 'quo"te \\ back+sl/ash \u00fcmlaut-4711-{}'  # characters that JSON and base64 encode


def forms(secret: str) -> dict[str, str]:
    """Return all forms of a password: plain, escaped, in a URL, and in base64 at each possible alignment."""
    found = {
        "plain": secret,
        "JSON": json.dumps(secret)[1:-1],
        "repr": repr(secret)[1:-1],
        "URL": urllib.parse.quote(secret, safe=""),
    }
    for before in range(3):
        data = b"\0" * before + secret.encode()
        whole = data[: len(data) // 3 * 3]  # the last letters depend on the bytes that follow
        for name, encode in (("base64", base64.b64encode), ("base64url", base64.urlsafe_b64encode)):
            found[f"{name}+{before}"] = encode(whole).decode()[4 if before else 0 :]
    return {name: text for name, text in found.items() if len(text) >= 8}


def test_the_search_finds_what_it_should() -> None:
    """The search finds planted passwords in all these forms."""
    secret = ODD.format("x")
    for text in (
        json.dumps({"a": secret}),
        base64.b64encode(b"\0bridge\0" + secret.encode()).decode(),
        base64.urlsafe_b64encode(b"n,,n=a" + secret.encode()).decode(),
        f"{(secret,)}",
    ):
        assert [name for name, form in forms(secret).items() if form in text], text


@dataclass
class Search:
    """All passwords of the test, and all output to search."""

    secrets: dict[str, str] = field(default_factory=dict)
    texts: list[tuple[str, str]] = field(default_factory=list)

    def plant(self, name: str) -> str:
        """Create a new password that must not appear anywhere."""
        self.secrets[name] = secret = ODD.format(name)
        return secret

    def plant_plain(self, name: str) -> str:
        """Create a password that local brokers accept."""
        self.secrets[name] = secret = f"planted-password+of/{name}-4711"
        return secret

    def know(self, what: object, name: str = "kept") -> None:
        if isinstance(what, dict):
            for key, inner in what.items():
                self.know(inner, f"{name}.{key}")
        elif isinstance(what, str):
            self.secrets[name] = what

    def found(self) -> list[str]:
        every = [(name, form, look) for name, secret in self.secrets.items() for form, look in forms(secret).items()]
        return [
            f"{name} ({form}) in {where}" for where, text in self.texts for name, form, look in every if look in text
        ]


Run = Callable[..., int]


@pytest.fixture
def search(world: World) -> Iterator[Search]:
    made = Search()
    file = world.local.folder / "secrets.json"
    made.know(json.loads(file.read_text()), "before")
    yield made
    made.know(json.loads(file.read_text()), "after")
    assert len(made.secrets) > 10 and len(made.texts) > 3
    assert made.found() == []


@pytest.fixture
def run(
    world: World,
    search: Search,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Run]:
    """Run a command as the shell would; keep its output, logs and errors for the search."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(world.local.folder.parent))
    caplog.set_level(logging.DEBUG)
    raised: list[FairleadError] = []

    def shown(error: FairleadError, *, as_json: bool = False) -> None:
        raised.append(error)
        show_error(error, as_json=as_json)

    monkeypatch.setattr("fairlead.cli.app.show_error", shown)

    def invoke(*arguments: str, topology: Path | None = None) -> int:
        line = [*arguments, "--topology", str(topology or world.file)]
        code = cli.run(line)
        out, err = capfd.readouterr()
        what = " ".join(arguments)
        search.texts += [(f"output of {what}", out), (f"standard error of {what}", err)]
        for error in raised:
            text = "".join(traceback.format_exception(error)) + repr(error) + repr(error.fields)
            search.texts.append((f"error of {what}", text))
        raised.clear()
        return code

    yield invoke
    search.texts.append(("logging", caplog.text))


def test_commands_and_what_they_keep(world: World, search: Search, run: Run, tmp_path: Path) -> None:
    """No command shows a password or stores one outside the files for it."""
    plan = tmp_path / "rules.plan"
    assert run("acl", "plan", "--out", str(plan)) == ExitCode.OK
    search.texts.append(("saved plan", plan.read_text()))
    for line in (
        ("acl", "plan", "--json"),
        ("acl", "apply", "--yes", str(plan)),
        ("acl", "drift", "--json"),
        ("acl", "explain", "ducks", "feeds.ducks"),
        ("acl", "rotate", "--yes", "producer"),
        ("acl", "rotate", "--yes", "producer", "--site", PORT, "--json"),
        ("acl", "drift"),
        ("feed", "ducks", "--once"),
        ("status",),
        ("status", "--json"),
    ):
        assert run(*line) == ExitCode.OK, line
    for client in ("kcat", "java", "python"):
        run("feed", "ducks", "--client", client)
    entries, _ = read_history(world.kafka(PORT))
    assert entries
    search.texts.append(("audit log", repr(entries)))


def test_wrong_passwords_and_sites_that_are_away(
    world: World, search: Search, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Errors about wrong passwords and unreachable sites show none."""
    monkeypatch.setenv("FAIRLEAD_SECRET_PORT_ADMIN", search.plant_plain("admin"))
    monkeypatch.setenv("FAIRLEAD_SECRET_PORT_DUCKS", search.plant_plain("ducks"))
    monkeypatch.setenv("FAIRLEAD_SECRET_PORT_RED", "short-{}".format("\u00fc"))
    search.secrets["bad"] = "short-\u00fc"
    # A stored password is tried besides the environment's, so a wrong one is refused only where none is stored.
    monkeypatch.setattr(Passwords, "others", lambda _self, _site, _user: ())
    for line in (
        ("acl", "plan", "--site", PORT),
        ("acl", "plan", "--site", PORT, "--json"),
        ("acl", "apply", "--yes", "--site", PORT),
        ("acl", "rotate", "--yes", "analyst", "--site", PORT),
        ("feed", "ducks", "--once"),
        ("feed", "red", "--once"),
        ("status",),
    ):
        run(*line)
    away = outside(world, tmp_path / "away.yaml", bootstrap="127.0.0.1:1")
    for user in ("ADMIN", "DUCKS", "BRIDGE", "PRODUCER"):
        monkeypatch.setenv(f"FAIRLEAD_SECRET_SHIP_{user}", search.plant(f"away-{user}"))
    for line in (
        ("acl", "plan", "--site", SHIP),
        ("acl", "apply", "--yes", "--site", SHIP, "--create-users"),
        ("acl", "rotate", "--yes", "producer", "--site", SHIP),
        ("acl", "rotate", "--yes", "admin", "--site", SHIP),
        ("audit", PORT, SHIP),
    ):
        assert run(*line, topology=away) != ExitCode.OK, line


def test_a_site_outside_whose_passwords_are_odd(
    world: World, search: Search, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No output shows a foreign site's passwords, even with characters that each encoding escapes in its own way."""
    host, port = world.kafka(SHIP).bootstrap[0]
    file = outside(world, tmp_path / "far.yaml", bootstrap=f"{host}:{port}")
    kept = json.loads((world.local.folder / "secrets.json").read_text())[SHIP]
    override = {"secrets": {SHIP: {"admin": kept["admin"], "producer": search.plant("override")}}}
    file.with_name("far.local.yaml").write_text(json.dumps(override, ensure_ascii=False), encoding="utf-8")
    try:
        assert run("acl", "rotate", "--yes", "producer", "--site", SHIP, topology=file) == ExitCode.OK
        monkeypatch.setenv("FAIRLEAD_SECRET_SHIP_PRODUCER", search.plant("environment"))
        assert run("acl", "rotate", "--yes", "producer", "--site", SHIP, "--json", topology=file) == ExitCode.OK
        monkeypatch.setenv("FAIRLEAD_SECRET_SHIP_PRODUCER_NEXT", search.plant("next"))
        assert run("acl", "rotate", "--yes", "producer", "--site", SHIP, topology=file) == ExitCode.OK
        monkeypatch.setenv("FAIRLEAD_SECRET_SHIP_ADMIN", search.plant("wrong-admin"))
        assert run("acl", "plan", "--site", SHIP, topology=file) != ExitCode.OK
    finally:
        for name in list(os.environ):
            if name.startswith("FAIRLEAD_SECRET_"):
                monkeypatch.delenv(name)
        assert run("acl", "rotate", "--yes", "producer", "--site", SHIP) == ExitCode.OK  # a local site again


BROKEN = (
    "secrets:\n  ship:\n    bridge: {0}: more\n",
    'secrets:\n  ship:\n    bridge: "{0}\n',
    "secrets:\n  ship:\n    bridge: [{0}\n",
    "secrets:\n  ship:\n    bridge: {{{0}: }}\n  more\n",
    "secrets:\n  ship:\n    bridge: !!python/object {0}\n",
    "secrets:\n  ship:\n    bridge: *{0}\n",
    "secrets:\n  ship:\n    bridge: !{0}\n",
    "secrets:\n  ship:\n    bridge: !{0} x\n",
    "secrets:\n  ship:\n    bridge: %{0}\n",
    "secrets:\n  ship:\n    bridge: '{0}' {0}\n",
    "secrets:\n  ship:\n    bridge: &a {0}\n    bridge: {0}\n",
    "secrets:\n  ship:\n   - {0}\n",
    "secrets:\n  shop:\n    bridge: {0}\n",
    "secrets:\n  ship: {0}\n",
    "secrets: {0}\n",
    "sites:\n  ship:\n    bridge: {0}\n",
    "sites:\n  ship:\n    kafka: {{bootstrap: 'ship:{0}@127.0.0.1:1'}}\n",
    "\tsecrets: {0}\n",
)


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_override_file(world: World, search: Search, run: Run, tmp_path: Path, text: str) -> None:
    """The error about an invalid ``.local.yaml`` file does not quote a password in it."""
    file = tmp_path / "broken.yaml"
    file.write_text(world.file.read_text(encoding="utf-8"), encoding="utf-8")
    search.secrets["broken"] = secret = "planted-4711-in-a-file"
    (tmp_path / "broken.local.yaml").write_text(text.format(secret), encoding="utf-8")
    assert run("acl", "plan", topology=file) == ExitCode.CONFIG
    assert run("acl", "plan", "--json", topology=file) == ExitCode.CONFIG


def test_damaged_secrets_are_not_quoted(
    search: Search, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, world: World
) -> None:
    """The error about a damaged password file does not quote it."""
    folder = tmp_path / world.local.folder.name
    folder.mkdir()
    (folder / "state.json").write_text((world.local.folder / "state.json").read_text())
    secret = search.plant_plain("damaged")
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    for text in (f'{{"port": {{"admin": "{secret}"}}', f'{{"port": {{"admin": "{secret}" "x"', f'["{secret}"]'):
        (folder / "secrets.json").write_text(text)
        assert run("acl", "plan", "--site", PORT) in (ExitCode.CONFIG, ExitCode.UNAVAILABLE)


@pytest.mark.processes("the command gives the bridge's new password to a Mosquitto of this machine")
def test_services_their_logs_and_what_others_see(
    world: World, search: Search, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services show no password in argument lists, logs or any other file of the state folder."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(world.local.folder.parent))
    workers = Workers(world.local.folder)
    snapshot = world.local.folder / "run" / f"bridge.{PORT}.json"
    file = str(world.file)
    bridge = ["bridge", "--site", PORT, "--topology", file]
    workers.start(f"bridge.{PORT}", bridge, ready=lambda: not health_problem(snapshot))
    workers.start(f"replicate.{PORT}", ["replicate", "--site", PORT, "--topology", file])
    try:
        for user in ("bridge", "replicator", "replicator.port"):
            assert run("acl", "rotate", "--yes", user) == ExitCode.OK
        workers.check(("bridge", "replicate"))
        own = [pid for site in world.local.status().values() for pid in site.pids.values()]
        own += [worker.pid for worker in workers.all() if worker.pid is not None]
        assert len(own) == 6
        for process in Path("/proc").glob("[0-9]*"):
            try:
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # the process has ended
            search.texts.append((f"argument list of {process.name}", line))
        assert {f"argument list of {pid}" for pid in own} <= {where for where, _ in search.texts}
    finally:
        workers.stop()
    monkeypatch.setenv("FAIRLEAD_SECRET_PORT_BRIDGE", search.plant_plain("bridge"))
    run_alone(workers, file)
    seen = set()
    for path in files_of(world.local.folder):
        try:
            mode, content = path.stat().st_mode, path.read_bytes()
        except FileNotFoundError:
            continue  # the brokers run on, and write and rename files
        if path.name in HOLDERS:
            seen.add(path.name)
            assert stat.S_IMODE(mode) == 0o600, path
        else:
            search.texts.append((str(path), content.decode("utf-8", "replace")))
    assert seen == set(HOLDERS)


def files_of(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder that is no link, also while other processes delete folders there."""
    for where, _, names in os.walk(folder):
        for path in (Path(where, name) for name in names):
            if path.is_file() and not path.is_symlink():
                yield path


def run_alone(workers: Workers, file: str) -> None:
    """Run a bridge with a wrong password until it writes a message; its log is in the state folder."""
    workers.start(f"bridge.{PORT}", ["bridge", "--site", PORT, "--topology", file])
    log = next(worker.log for worker in workers.all() if worker.name == f"bridge.{PORT}")
    before = len(log.read_text())
    try:
        within = time.monotonic() + PATIENCE
        while len(log.read_text()) <= before and time.monotonic() < within:
            time.sleep(0.05)
    finally:
        workers.stop()


def outside(world: World, file: Path, *, bootstrap: str) -> Path:
    """Return the topology with the ship as a foreign cluster."""
    text = world.file.read_text(encoding="utf-8")
    address = f'imo: "9074729", kafka: {{bootstrap: "{bootstrap}", security: SASL_PLAINTEXT}}}}'
    changed = text.replace('imo: "9074729"}', address, 1)
    assert changed != text
    file.write_text(changed, encoding="utf-8")
    return file
