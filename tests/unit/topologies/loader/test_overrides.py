"""Local files and environment variables: what they change, and that their mistakes name them."""

from __future__ import annotations

import datetime as dt
import grp
import os
import pwd
from pathlib import Path

import pytest

from fairlead.errors import RefusedError
from tests.support.topologies.examples import RIGHT, mistakes_of
from topologies.loader.load import load, read
from topologies.loader.mistakes import Mistake, TopologyErrors
from topologies.model import SiteKind, Topology


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the right example as ``small.yaml``; the current folder is another one inside it."""
    (tmp_path / "small.yaml").write_text(RIGHT)
    (tmp_path / "current").mkdir()
    monkeypatch.chdir(tmp_path / "current")
    return tmp_path


def _mistakes(folder: Path, env: dict[str, str] | None = None) -> tuple[Mistake, ...]:
    with pytest.raises(TopologyErrors) as caught:
        load(folder / "small.yaml", env=env or {})
    return caught.value.mistakes


def test_a_local_file_is_merged_deep(here: Path) -> None:
    (here / "small.local.yaml").write_text(
        "sites:\n  tokyo:\n    kafka: {bootstrap: 'a:1,b:2'}\n    retention: {containers: 3d}\n"
    )
    tokyo = load(here / "small.yaml", env={}).sites["tokyo"]
    assert tokyo.kafka is not None and tokyo.kafka.bootstrap == "a:1,b:2"
    assert tokyo.unlocode == "JPTYO"
    assert tokyo.retention_of("containers") == dt.timedelta(days=3)
    assert tokyo.retention_of("alerts") == dt.timedelta(days=365)


def test_later_wins_the_file_beside_then_the_current_folder_then_the_environment(here: Path) -> None:
    (here / "small.local.yaml").write_text("sites: {tokyo: {title: one}, sydney: {title: one}, shop: {title: one}}")
    Path("small.local.yaml").write_text("sites: {sydney: {title: two}, shop: {title: two}}")
    sites = load(here / "small.yaml", env={"FAIRLEAD_SITES__SHOP__TITLE": "three"}).sites
    assert [sites[name].title for name in ("tokyo", "sydney", "shop")] == ["one", "two", "three"]


def test_a_shipped_topology_takes_the_local_file_of_the_current_folder(here: Path) -> None:
    Path("minimal.local.yaml").write_text("sites: {tokyo: {title: Here}}")
    assert load("minimal", env={}).sites["tokyo"].title == "Here"


def of_somebody_else(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a file to another user; without the right to do so, change our own user id instead."""
    if os.geteuid() == 0:
        os.chown(file, 54321, 54321, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)


@pytest.mark.parametrize("link", [False, True])
def test_a_local_file_of_another_user_is_refused(here: Path, link: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a file could redirect passwords and choose what Spark runs."""
    planted = Path("minimal.local.yaml")
    if link:
        planted.symlink_to(here / "small.yaml")
    else:
        planted.write_text("shore: {settings: {spark.driver.extraJavaOptions: -javaagent:evil.jar}}")
    of_somebody_else(planted, monkeypatch)
    with pytest.raises(RefusedError, match=r"to read .*minimal\.local\.yaml: it belongs to user 54321") as caught:
        load("minimal", env={})
    assert "chown" in caught.value.hint


def test_a_topology_of_another_user_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_somebody_else(here / "small.yaml", monkeypatch)
    with pytest.raises(RefusedError, match="it belongs to"):
        load(here / "small.yaml", env={})


@pytest.mark.parametrize("which", ["small.yaml", "small.local.yaml", "current/small.local.yaml"])
@pytest.mark.parametrize(("mode", "who"), [(0o666, "everybody"), (0o646, "everybody"), (0o664, "its group")])
def test_a_file_that_others_may_write_is_refused(
    here: Path, which: str, mode: int, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = here / which
    file.touch()
    file.chmod(mode)
    own = pwd.getpwuid(os.geteuid())
    shared = grp.struct_group((own.pw_name, "x", file.stat().st_gid, [own.pw_name, "mallory"]))
    monkeypatch.setattr(grp, "getgrgid", lambda _: shared)
    with pytest.raises(RefusedError, match=f"{who} can write to it") as caught:
        load(here / "small.yaml", env={})
    assert f"chmod go-w {file.name}" in caught.value.hint.replace(f"{file.parent}/", "")


def test_a_group_of_ones_own_may_write(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each user has a group, files are made with mode 0664."""
    (here / "small.yaml").chmod(0o664)
    own = pwd.getpwuid(os.geteuid())
    alone = grp.struct_group((own.pw_name, "x", (here / "small.yaml").stat().st_gid, []))
    monkeypatch.setattr(grp, "getgrgid", lambda _: alone)
    assert load(here / "small.yaml", env={}).name == "small"


def test_a_read_only_mount_may_belong_to_another_user(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user does not own the files mounted into it; here ``fstatvfs`` reports a read-only mount."""
    of_somebody_else(here / "small.yaml", monkeypatch)
    real = os.fstatvfs

    class ReadOnly:
        def __init__(self, descriptor: int) -> None:
            self.f_flag = real(descriptor).f_flag | os.ST_RDONLY

    monkeypatch.setattr(os, "fstatvfs", ReadOnly)
    assert load(here / "small.yaml", env={}).name == "small"


def test_links_are_matched_by_their_ends_and_policy(here: Path) -> None:
    (here / "small.local.yaml").write_text("links:\n  - {from: duck-star, to: tokyo, rate: 8 kB/s}\n")
    changed, original = load(here / "small.yaml", env={}), read(RIGHT, "small.yaml")
    assert [link.rate for link in changed.links] == [None, None, 8000, None]
    assert [link.streams for link in changed.links] == [link.streams for link in original.links]


def test_mistakes_of_a_local_file_have_its_name_and_lines(here: Path) -> None:
    local = here / "small.local.yaml"
    local.write_text(
        "sites:\n"
        "  tokio: {title: x}\n"
        "  tokyo: {kafka: {bootstrap: here}}\n"
        "links:\n"
        "  - {from: tokyo, to: duck-star, rate: 1 kbit/s}\n"
        "  - {from: duck-star, to: tokyo, rate: slow}\n"
    )
    found = _mistakes(here)
    assert [(m.file, m.line, m.path, m.nearest) for m in found] == [
        (str(local), 2, "sites.tokio", "tokyo"),
        (str(local), 3, "sites.tokyo.kafka.bootstrap", None),
        (str(local), 5, "links[0]", "from tokyo, to duck-star, when berthed"),
        (str(local), 6, "links[2].rate", None),
    ]
    assert found[1].excerpt == "  tokyo: {kafka: {bootstrap: here}}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("- a\n", "form of a topology"), ("sites: {\n", "not YAML"), ("", "empty"), ("sites: 3\n", "does not belong")],
)
def test_a_local_file_of_another_form_is_refused(here: Path, text: str, problem: str) -> None:
    (here / "small.local.yaml").write_text(text)
    (found,) = _mistakes(here)
    assert found.file == str(here / "small.local.yaml")
    assert problem in found.problem


def test_an_empty_section_of_a_local_file_changes_nothing(here: Path) -> None:
    (here / "small.local.yaml").write_text("sites:\nlinks:\n")
    assert load(here / "small.yaml", env={}) == read(RIGHT, "small.yaml")


def test_a_section_that_is_wrong_in_the_topology_is_shown_there(here: Path) -> None:
    (here / "small.yaml").write_text("name: small\nsites: [tokyo]\n")
    (here / "small.local.yaml").write_text("sites: {tokyo: {title: x}}\n")
    assert [(Path(m.file).name, m.line, m.path) for m in _mistakes(here)] == [("small.yaml", 2, "sites")]


def test_mistakes_of_all_files_come_together_the_topologys_first(here: Path) -> None:
    (here / "small.yaml").write_text(RIGHT.replace("name: small", "name: S"))
    (here / "small.local.yaml").write_text("shore: {at: nowhere}\n")
    found = _mistakes(here, {"FAIRLEAD_SITES__TOKYO__KIND": "prot"})
    assert [(Path(m.file).name, m.path) for m in found] == [
        ("small.yaml", "name"),
        ("small.local.yaml", "shore.at"),
        ("$FAIRLEAD_SITES__TOKYO__KIND", "sites.tokyo.kind"),
    ]


def test_a_variable_sets_an_address() -> None:
    env = {
        "FAIRLEAD_SITES__DUCK_STAR__KAFKA__BOOTSTRAP": "ship:9092",
        "FAIRLEAD_SITES__DUCK_STAR__MQTT__HOST": "ship",
        "FAIRLEAD_SITES__DUCK_STAR__MQTT__PORT": "1883",
        "FAIRLEAD_SITES__DUCK_STAR__RETENTION__ALERTS": "9d",
        "FAIRLEAD_CUSTOMERS__DUCKS__FEED_AT": "sydney",
        "FAIRLEAD_SHORE__MASTER": "spark://there:7077",
    }
    topology = read(RIGHT, "small.yaml", env=env)
    ship = topology.sites["duck-star"]
    assert ship.kafka is not None and ship.kafka.bootstrap == "ship:9092"
    assert ship.mqtt is not None and (ship.mqtt.host, ship.mqtt.port) == ("ship", 1883)
    assert ship.retention_of("alerts") == dt.timedelta(days=9)
    assert topology.shore is not None and topology.shore.master == "spark://there:7077"


@pytest.mark.parametrize(
    ("variable", "value", "path", "problem", "nearest"),
    [
        ("FAIRLEAD_SITES__TOKIO__TITLE", "x", "sites.tokio", "no such site", "tokyo"),
        ("FAIRLEAD_SITES__TOKYO__KAFKA__BOOTSTRAPS", "a:1", "sites.tokyo.kafka.bootstraps", "no such key", "bootstrap"),
        ("FAIRLEAD_SITES__TOKYO__KAFKA__BOOTSTRAP", "a", "sites.tokyo.kafka.bootstrap", "'a'", None),
        ("FAIRLEAD_SITES__TOKYO__MQTT__PORT", "many", "sites.tokyo.mqtt.port", "'many'", None),
        ("FAIRLEAD_SITES__TOKYO__MQTT__PORT", "1", "sites.tokyo.mqtt.host", "is missing", None),
        ("FAIRLEAD_SITE__TOKYO__KIND", "port", "site", "no such key", "sites"),
        ("FAIRLEAD_SITES__TOKYO", "here", "sites.tokyo", "'here'", None),
        ("FAIRLEAD_SITES__TOKYO__KAFKA__PASSWORD", "hunter2", "sites.tokyo.kafka.password", "a secret", None),
        ("FAIRLEAD_SITES____TITLE", "x", "", "an empty part", None),
    ],
)
def test_mistakes_of_a_variable_name_it(
    variable: str, value: str, path: str, problem: str, nearest: str | None
) -> None:
    found = [m for m in mistakes_of(RIGHT, {variable: value}) if m.path == path]
    assert [(m.file, m.line, m.nearest) for m in found] == [(f"${variable}", 0, nearest)]
    assert problem in found[0].problem
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize("name", ["big-blue", "minimal", "two-way", "chain", "fan-in"])
def test_a_topology_makes_the_round_trip_through_the_environment(name: str) -> None:
    """Setting every text of every site by a variable gives the same topology; another text changes it."""
    plain = load(name, env={})
    env: dict[str, str] = {}
    for site, facts in plain.sites.items():
        head = f"FAIRLEAD_SITES__{site.upper().replace('-', '_')}"
        env |= {f"{head}__{k.upper()}": v for k, v in facts.model_dump(mode="json").items() if isinstance(v, str)}
    assert load(name, env=env) == plain
    titled: Topology = load(name, env={k: "elsewhere" if k.endswith("__TITLE") else v for k, v in env.items()})
    assert {site.title for site in titled.sites.values()} == {"elsewhere"}
    assert [site.kind for site in titled.sites.values()] == [SiteKind(site.kind) for site in plain.sites.values()]
