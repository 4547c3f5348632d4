"""What a user gets back once the sessions of its leaked password have ended, at the sites that answer then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acl import rotate as rotation
from acl.compile import compile_site
from acl.history import Phase, UserChange
from acl.rotate import RevokedAcls, Rotated, RotationIncomplete, check_complete, readmit
from acl.rules import Binding
from fairlead.cli import app as cli
from fairlead.cli.commands.acl import users
from fairlead.errors import ExitCode, UnavailableError
from tests.support.acl.stores_in_memory import MemoryStore, opened
from topologies.loader.load import load

TOKYO, STAR = "tokyo", "duck-star"
OVER = RevokedAcls(0, 0.0, 0.0)  # an earlier rotation, cut off, has revoked the rules; the old sessions have ended
GONE = UnavailableError("it does not answer")


def rules_of(user: str, site: str = TOKYO) -> set[Binding]:
    return {Binding.of(rule) for rule in compile_site(load("minimal"), site) if rule.user == user}


def test_a_user_gets_the_rules_of_the_topology_though_this_rotation_found_none() -> None:
    store, done = MemoryStore(), Rotated(TOKYO, "ducks", "secrets.json", revoked=OVER)
    assert readmit(lambda: load("minimal"), opened({TOKYO: store}), done) == done
    assert store.bindings == rules_of("ducks") != set()
    noted = [entry for entry in store.entries if isinstance(entry, UserChange)]
    assert [(entry.action, entry.phase) for entry in noted] == [("readmit", Phase.INTENT), ("readmit", Phase.DONE)]


def test_a_user_gets_nothing_that_the_topology_has_taken_away_meanwhile() -> None:
    topology, store = load("minimal"), MemoryStore()
    now = topology.model_copy(update={"customers": {}})
    done = Rotated(TOKYO, "ducks", "secrets.json", revoked=OVER)
    assert readmit(lambda: now, opened({TOKYO: store}), done).error is None
    assert store.bindings == set()


def test_sites_with_the_old_password_and_sites_without_rules_are_told_apart() -> None:
    changed = Rotated(STAR, "ducks", "secrets.json", GONE, OVER)
    with pytest.raises(RotationIncomplete) as caught:
        check_complete([Rotated(TOKYO, "ducks", error=GONE), changed])
    assert caught.value.what == (
        "the old password still counts at tokyo (it does not answer); ducks has no ACLs yet at duck-star (it does not "
        "answer)"
    )
    with pytest.raises(RotationIncomplete, match="ducks has no ACLs yet at duck-star") as caught:
        check_complete([changed])
    assert "fairlead acl apply restores" in caught.value.hint and "--site" not in caught.value.hint


def test_a_site_that_does_not_answer_keeps_no_other_from_its_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    store = MemoryStore()

    def rotate(*_: Any, **__: Any) -> tuple[Rotated, ...]:
        return tuple(Rotated(site, "ducks", "secrets.json", revoked=OVER) for site in (STAR, TOKYO))

    monkeypatch.setattr(rotation, "rotate", rotate)
    monkeypatch.setattr(users, "admin_stores", lambda _: opened({TOKYO: store}))
    assert cli.run(["acl", "rotate", "ducks", "--now", "--yes", "--topology", "minimal"]) is ExitCode.UNAVAILABLE
    assert store.bindings == rules_of("ducks")
    said = capsys.readouterr().err
    assert "duck-star: the ACLs of ducks are not restored: duck-star does not answer" in said
    assert "tokyo: the ACLs of ducks are restored" in said and "ducks has no ACLs yet at duck-star" in said
