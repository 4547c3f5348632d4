"""Passwords: made once, private, overridden by the environment, never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from fairlead.errors import ConfigurationError
from fairlead.local.passwords import Passwords, secret_variable


def test_the_variable_of_a_user() -> None:
    assert secret_variable("los-angeles", "replicator.duck-star") == (
        "FAIRLEAD_SECRET_LOS_ANGELES_REPLICATOR_DUCK_STAR"
    )


def test_kept_passwords_are_private_and_stay(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    passwords = Passwords(file, env={})
    made = passwords.wanted("tokyo", "bridge")
    assert passwords.known("tokyo", "bridge") is None
    assert made != passwords.wanted("tokyo", "bridge")  # not kept yet
    passwords.keep("tokyo", {"bridge": made})
    assert file.stat().st_mode & 0o777 == 0o600
    assert Passwords(file, env={}).wanted("tokyo", "bridge") == made
    passwords.forget("tokyo")
    assert passwords.known("tokyo", "bridge") is None


def test_the_environment_wins(tmp_path: Path) -> None:
    passwords = Passwords(tmp_path / "secrets.json", env={"FAIRLEAD_SECRET_TOKYO_BRIDGE": "from the env"})
    passwords.keep("tokyo", {"bridge": SecretStr("kept")})
    assert passwords.given("tokyo", "bridge") == SecretStr("from the env")
    assert passwords.known("tokyo", "bridge") == SecretStr("kept")


@pytest.mark.parametrize(
    "secret", ["short", 'has"quote-inside', "back\\slash-inside", "line\nbreak-inside", "ümlaut-inside"]
)
def test_a_password_that_cannot_be_used_is_named_not_shown(tmp_path: Path, secret: str) -> None:
    passwords = Passwords(tmp_path / "secrets.json", env={"FAIRLEAD_SECRET_TOKYO_BRIDGE": secret})
    with pytest.raises(ConfigurationError, match="FAIRLEAD_SECRET_TOKYO_BRIDGE") as caught:
        passwords.wanted("tokyo", "bridge")
    assert secret not in str(caught.value) + repr(caught.value.fields)


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "secrets.json").write_text("{")
    with pytest.raises(ConfigurationError, match=rf"(?s)is damaged.*--topology {tmp_path.name} --purge"):
        Passwords(tmp_path / "secrets.json", env={}).known("tokyo", "bridge")


def test_a_change_is_known_before_the_brokers_hear_of_it_and_until_they_took_it(tmp_path: Path) -> None:
    passwords = Passwords(tmp_path / "secrets.json", env={})
    passwords.keep("tokyo", {"bridge": SecretStr("the old one"), "ducks": SecretStr("quack quack")})
    new = passwords.begin("tokyo", "bridge")
    assert passwords.given("tokyo", "bridge") == SecretStr("the old one")
    assert passwords.others("tokyo", "bridge") == (new,)
    assert passwords.others("tokyo", "ducks") == ()
    assert passwords.begin("tokyo", "bridge") == new, "a change that was cut off goes on"
    passwords.keep("tokyo", {"ducks": SecretStr("quack quack")})
    assert passwords.next("tokyo", "bridge") == new
    passwords.keep("tokyo", {"bridge": new})
    assert passwords.given("tokyo", "bridge") == new
    assert passwords.others("tokyo", "bridge") == ()


def test_the_new_password_may_come_from_the_environment(tmp_path: Path) -> None:
    env = {"FAIRLEAD_SECRET_TOKYO_BRIDGE": "of the environment"}
    passwords = Passwords(tmp_path / "secrets.json", env=env)
    passwords.keep("tokyo", {"bridge": SecretStr("the old one")})
    assert passwords.begin("tokyo", "bridge") == SecretStr("of the environment")
    assert passwords.others("tokyo", "bridge") == (SecretStr("the old one"),)
    passwords.keep("tokyo", {"bridge": SecretStr("of the environment")})
    with pytest.raises(ConfigurationError, match="FAIRLEAD_SECRET_TOKYO_BRIDGE") as caught:
        passwords.begin("tokyo", "bridge")
    assert "of the environment" not in str(caught.value)


def test_a_site_that_is_forgotten_has_no_next_passwords(tmp_path: Path) -> None:
    passwords = Passwords(tmp_path / "secrets.json", env={})
    passwords.begin("tokyo", "bridge")
    passwords.forget("tokyo")
    assert passwords.next("tokyo", "bridge") is None
