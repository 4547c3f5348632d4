"""Who may ask: tokens, links to files, and the profile file."""

from __future__ import annotations

import base64
import datetime as dt
import json
from pathlib import Path

import pytest

from board.security import digest_of
from board.sharing.profile import endpoint, profile
from board.sharing.service import LIFETIME, FileLink, Links
from board.sharing.tokens import IssuedToken, Recipient, Tokens
from fairlead.errors import ConfigurationError
from tests.support.sharing import Clock

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(tmp_path: Path, clock: Clock) -> Tokens:
    return Tokens(tmp_path, clock)


def test_a_token_is_its_customers_until_it_ends(tokens: Tokens, clock: Clock) -> None:
    issued = tokens.issue("ducks", lifetime=HOUR)
    assert tokens.recipient(issued.token) == Recipient("ducks", digest_of(issued.token))
    assert issued.expires == clock.now + HOUR
    clock.forward(minutes=59)
    assert tokens.recipient(issued.token) is not None
    clock.forward(minutes=1)
    assert tokens.recipient(issued.token) is None


@pytest.mark.parametrize("token", ["", "x", "a" * 10_000, "\N{DUCK}"])
def test_what_is_no_token_is_nobodys(tokens: Tokens, token: str) -> None:
    tokens.issue("ducks")
    assert tokens.recipient(token) is None


def test_a_stolen_file_gives_no_token(tokens: Tokens, tmp_path: Path) -> None:
    issued = tokens.issue("ducks")
    file = tmp_path / "sharing" / "tokens.json"
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    assert issued.token not in text
    assert tokens.recipient(json.loads(text)[0]["digest"]) is None  # the digest is no token


def test_a_new_token_ends_the_one_before(tokens: Tokens, clock: Clock) -> None:
    first, other = tokens.issue("ducks"), tokens.issue("beans")
    second = tokens.issue("ducks")
    assert tokens.recipient(first.token) is None
    assert tokens.recipient(second.token) == Recipient("ducks", digest_of(second.token))
    assert tokens.recipient(other.token) == Recipient("beans", digest_of(other.token))
    third = tokens.issue("ducks", overlap=HOUR)
    assert tokens.recipient(second.token) and tokens.recipient(third.token)
    clock.forward(hours=1)
    assert tokens.recipient(second.token) is None and tokens.recipient(third.token)


def test_an_overlap_lengthens_no_token(tokens: Tokens, clock: Clock) -> None:
    first = tokens.issue("ducks", lifetime=HOUR)
    tokens.issue("ducks", overlap=5 * HOUR)
    clock.forward(hours=2)
    assert tokens.recipient(first.token) is None


def test_revoking_ends_all_of_one_customer(tokens: Tokens) -> None:
    first, second, other = tokens.issue("ducks"), tokens.issue("ducks", overlap=HOUR), tokens.issue("beans")
    assert tokens.known("ducks") and tokens.revoke("ducks") == 2
    assert tokens.recipient(first.token) is None and tokens.recipient(second.token) is None
    assert tokens.recipient(other.token) is not None
    assert tokens.revoke("ducks") == 0 and not tokens.known("ducks")


def test_a_damaged_file_lets_nobody_in(tokens: Tokens, tmp_path: Path) -> None:
    issued = tokens.issue("ducks")
    (tmp_path / "sharing" / "tokens.json").write_text('[{"customer": "ducks"')
    with pytest.raises(ConfigurationError, match="is damaged"):
        tokens.recipient(issued.token)


def test_a_link_says_one_file_until_it_ends(clock: Clock) -> None:
    links = Links(clock)
    text, expires = links.make(Recipient("ducks", "t"), "readings", "ab")
    assert links.read(text) == FileLink("ducks", "readings", "ab", "t", expires)
    clock.forward(seconds=LIFETIME.total_seconds() - 1)
    assert links.read(text) is not None
    clock.forward(seconds=1)
    assert links.read(text) is None


def test_a_changed_or_foreign_link_is_none(clock: Clock) -> None:
    links = Links(clock)
    text, _ = links.make(Recipient("ducks", "t"), "readings", "ab")
    said, signature = text.split(".")
    content = base64.urlsafe_b64decode(said + "=" * (-len(said) % 4))
    forged = base64.urlsafe_b64encode(content.replace(b"ducks", b"beans")).decode().rstrip("=")
    bad = [f"{forged}.{signature}", said, f"{said}.", f".{signature}", f"{text}.x", f"{text}=", "", ".", "é.é"]
    bad += [text[:i] + ("A" if text[i] != "A" else "B") + text[i + 1 :] for i in range(len(text))]
    assert [each for each in bad if links.read(each) is not None] == []
    assert Links(clock).read(text) is None  # another process


@pytest.mark.parametrize(
    ("board", "found"),
    [
        ("https://board.example.com", "https://board.example.com/delta-sharing"),
        ("https://example.com:8443/", "https://example.com:8443/delta-sharing"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/delta-sharing"),
        ("http://localhost:8080", "http://localhost:8080/delta-sharing"),
        ("http://[::1]:8080", "http://[::1]:8080/delta-sharing"),
    ],
)
def test_the_endpoint_of_a_board(board: str, found: str) -> None:
    assert endpoint(board) == found


@pytest.mark.parametrize(
    "board",
    [
        "",
        "board",
        "ftp://board",
        "https://",
        "https://u@board",
        "https://board?x=1",
        "https://board/fleet",
        "https://b:99999",
        "http://[x",
    ],
)
def test_what_is_no_address_is_refused(board: str) -> None:
    with pytest.raises(ConfigurationError, match="is no address of a board"):
        endpoint(board)


@pytest.mark.parametrize("board", ["http://board.example.com", "http://10.0.0.1:80", "http://127.0.0.1.example.com"])
def test_no_token_goes_over_the_network_in_the_clear(board: str) -> None:
    with pytest.raises(ConfigurationError, match="in the clear"):
        endpoint(board)


def test_the_client_reads_a_profile(tmp_path: Path) -> None:
    from delta_sharing.protocol import DeltaSharingProfile

    expires = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
    read = DeltaSharingProfile.from_json(profile("https://b/delta-sharing", IssuedToken("secret", expires)))
    assert (read.share_credentials_version, read.endpoint) == (1, "https://b/delta-sharing")
    assert (read.bearer_token, read.expiration_time) == ("secret", "2026-06-01T00:00:00Z")
