"""Who may see what on the board, sessions, the throttle of sign-ins, and what a request must look like."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request

from board.audit import AuditLog
from board.security import host_of, is_same_origin, is_token, local_path, masked, origin_of
from board.server import Listen, serving
from board.service import BoardService
from board.sessions import CHANGED_FOR, IDLE, LONGEST, Sessions
from board.sign_in import Throttle
from board.viewer import LOCAL, Access, Viewer, viewer_of
from fairlead.errors import ConfigurationError
from fairlead.kafka.credentials import PasswordVersion
from tests.support.waits import Clock
from topologies.loader.load import load
from topologies.loader.mistakes import TopologyErrors
from topologies.model import Topology

TOPOLOGY = """
name: board
sites:
  tokyo: {kind: port, unlocode: JPTYO}
customers:
  ducks: {feed_at: tokyo, table: true}
  partner: {feed_at: tokyo, groups: [operators]}
users:
  operator: {groups: [operators], at: [tokyo]}
  analyst: {groups: [analysts], at: [tokyo]}
  stranger: {at: [tokyo]}
shore: {at: tokyo}
board: {at: [tokyo], read: "g:analysts | g:operators", operate: "g:operators"}
"""


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    return loaded(tmp_path, TOPOLOGY)


def loaded(folder: Path, text: str) -> Topology:
    file = folder / "board.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file)


# --- who may see what


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("operator", Viewer("operator", reads=True, operates=True)),
        ("analyst", Viewer("analyst", reads=True)),
        ("ducks", Viewer("ducks", customer=True)),
        ("partner", Viewer("partner", customer=True, reads=True, operates=True)),
        ("stranger", None),
        ("nobody", None),
        ("admin", None),
        ("shore", None),
        ("board", None),
        (LOCAL.name, LOCAL),
    ],
)
def test_what_a_name_may_see_follows_from_the_topology(topology: Topology, name: str, expected: Viewer | None) -> None:
    assert viewer_of(topology, name) == expected


def test_without_a_board_in_the_topology_only_customers_sign_in(topology: Topology) -> None:
    without = topology.model_copy(update={"board": None})
    assert viewer_of(without, "operator") is None
    assert viewer_of(without, "ducks") == Viewer("ducks", customer=True)


def test_each_access_is_for_whom_it_says() -> None:
    customer, reader, operator = Viewer("c", customer=True), Viewer("r", reads=True), Viewer("o", False, True, True)
    may = {access: [viewer.name for viewer in (customer, reader, operator) if viewer.may(access)] for access in Access}
    assert may == {
        Access.ANYONE: ["c", "r", "o"],
        Access.SIGNED_IN: ["c", "r", "o"],
        Access.CUSTOMER: ["c"],
        Access.STAFF: ["r", "o"],
        Access.OPERATOR: ["o"],
    }


@pytest.mark.parametrize(
    ("board", "problem"),
    [
        ("{at: [kyoto]}", "there is no site 'kyoto'"),
        ("{at: []}", "at least 1"),
        ("{at: [ducks-hq]}", "the board cannot run at the customer's site ducks-hq"),
        ('{at: [tokyo], read: "u:nobody"}', "there is no customer or user 'nobody'"),
        ('{at: [tokyo], operate: "g:a &"}', "access expression"),
        ("{at: [tokyo], write: p}", "write"),
    ],
)
def test_a_mistake_in_the_board_is_named(tmp_path: Path, board: str, problem: str) -> None:
    text = TOPOLOGY[: TOPOLOGY.index("board: {at")] + f"board: {board}\n"
    text = text.replace(
        "  tokyo: {kind: port, unlocode: JPTYO}", "  tokyo: {kind: port, unlocode: JPTYO}\n  ducks-hq: {kind: customer}"
    )
    with pytest.raises(TopologyErrors) as error:
        loaded(tmp_path, text)
    assert problem in str(error.value)


# --- sessions


def test_a_session_ends_an_hour_after_its_last_request() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    token, session = sessions.open("ducks")
    clock.now += IDLE - 1
    assert sessions.find(token) is session
    clock.now += IDLE - 1
    assert sessions.is_open(token)  # a live page asks this, and does not keep the session open by it
    assert sessions.is_open(token)
    clock.now += 2
    assert not sessions.is_open(token)
    assert sessions.find(token) is None


def test_a_session_ends_after_twelve_hours_however_busy_it_is() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    token, _ = sessions.open("ducks")
    while clock.now < 1000 + LONGEST:
        assert sessions.find(token) is not None
        clock.now += IDLE / 2
    clock.now += 1
    assert sessions.find(token) is None


def test_a_token_is_worth_nothing_after_sign_out_and_no_other_token_is_worth_anything() -> None:
    sessions = Sessions()
    token, _ = sessions.open("ducks")
    other, _ = sessions.open("ducks")
    sessions.close(token)
    assert sessions.find(token) is None
    assert sessions.find(other) is not None
    assert sessions.find("") is sessions.find("guessed") is None


OLD, NEW = PasswordVersion("tokyo", b"old"), PasswordVersion("tokyo", b"new")


@pytest.mark.parametrize("now", [NEW, PasswordVersion("tokyo", None)], ids=["another password", "none"])
def test_all_sessions_of_a_name_end_when_its_password_has_been_another_one_for_a_while(now: PasswordVersion) -> None:
    clock = Clock()
    sessions = Sessions(clock)
    mine = [sessions.open("ducks", OLD)[0] for _ in range(2)]
    other, _ = sessions.open("operator", OLD)
    assert sessions.end_outdated("ducks", now) == 0
    clock.now += CHANGED_FOR - 1
    assert sessions.end_outdated("ducks", now) == 0
    assert all(map(sessions.is_open, mine))
    clock.now += 1
    assert sessions.end_outdated("ducks", now) == 2
    assert not any(map(sessions.is_open, mine))
    assert sessions.is_open(other)


def test_who_signs_in_with_the_new_password_stays() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    before, after = sessions.open("ducks", OLD)[0], sessions.open("ducks", NEW)[0]
    sessions.end_outdated("ducks", NEW)
    clock.now += CHANGED_FOR
    assert sessions.end_outdated("ducks", NEW) == 1
    assert (sessions.is_open(before), sessions.is_open(after)) == (False, True)


def test_a_broker_that_has_just_started_ends_no_session() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    token, _ = sessions.open("ducks", OLD)
    for mark in (PasswordVersion("tokyo", None), OLD, PasswordVersion("tokyo", None)):
        assert sessions.end_outdated("ducks", mark) == 0
        clock.now += CHANGED_FOR
    assert sessions.is_open(token)


def test_a_password_of_another_site_says_nothing_about_a_session() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    token, _ = sessions.open("ducks", OLD)
    for _ in range(2):
        assert sessions.end_outdated("ducks", PasswordVersion("singapore", b"new")) == 0
        clock.now += CHANGED_FOR
    assert sessions.is_open(token)


def test_a_session_without_a_password_version_takes_the_first_one() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    token, _ = sessions.open("ducks")
    assert sessions.names_and_sites() == {("ducks", None)}
    sessions.end_outdated("ducks", OLD)
    assert sessions.names_and_sites() == {("ducks", "tokyo")}
    sessions.end_outdated("ducks", NEW)
    clock.now += CHANGED_FOR
    assert sessions.end_outdated("ducks", NEW) == 1
    assert not sessions.is_open(token)
    assert sessions.names_and_sites() == set()


def test_a_link_signs_in_once_within_ten_minutes() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    token, late = sessions.link_for("somebody"), sessions.link_for("somebody")
    clock.now += 600
    assert sessions.redeem("guessed") is None
    assert sessions.redeem(token) == "somebody"
    assert sessions.redeem(token) is None
    clock.now += 1
    assert sessions.redeem(late) is None


@pytest.mark.parametrize(
    ("listen", "private"),
    [
        (Listen(), True),
        (Listen(host="::1"), True),
        (Listen(names=("board.example.com",)), False),  # behind a proxy
        (Listen(host="0.0.0.0", certificate=Path("cert.pem"), key=Path("key.pem")), False),  # noqa: S104
    ],
)
def test_a_log_has_the_link_only_where_no_others_reach_the_board(listen: Listen, private: bool) -> None:
    assert listen.is_private is private


# --- guessing


def test_after_five_failures_each_one_more_doubles_the_wait() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    for _ in range(4):
        throttle.failed("ducks", "10.0.0.1")
        assert throttle.wait("ducks", "10.0.0.1") == 0
    waits = []
    for _ in range(12):
        throttle.failed("ducks", "10.0.0.1")
        waits.append(throttle.wait("ducks", "10.0.0.1"))
        clock.now += waits[-1]
        assert throttle.wait("ducks", "10.0.0.1") == 0
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]


def test_a_name_is_slowed_down_from_everywhere_and_an_address_for_every_name() -> None:
    throttle = Throttle(Clock())
    for number in range(6):
        throttle.failed("ducks", f"10.0.0.{number}")
        throttle.failed(f"name{number}", "10.0.1.1")
    assert throttle.wait("ducks", "10.9.9.9") > 0
    assert throttle.wait("unheard-of", "10.0.1.1") > 0
    assert throttle.wait("unheard-of", "10.9.9.9") == 0


def test_a_success_forgets_the_failures_of_the_name_and_not_those_of_the_address() -> None:
    throttle = Throttle(Clock())
    for _ in range(7):
        throttle.failed("ducks", "10.0.0.1")
    throttle.succeeded("ducks", "10.0.0.1")
    assert throttle.wait("ducks", "10.9.9.9") == 0
    assert throttle.wait("other", "10.0.0.1") > 0


def test_an_attempt_that_could_not_be_checked_is_no_failure_and_no_success() -> None:
    throttle = Throttle(Clock())
    for _ in range(4):
        throttle.failed("ducks", "10.0.0.1")
    for _ in range(9):
        throttle.failed("ducks", "10.0.0.1")
        throttle.unchecked("ducks", "10.0.0.1")
    assert throttle.wait("ducks", "10.0.0.1") == 0
    throttle.failed("ducks", "10.0.0.1")
    assert throttle.wait("ducks", "10.9.9.9") > 0 and throttle.wait("other", "10.0.0.1") > 0


def test_an_attempt_that_could_not_be_checked_does_not_begin_the_wait_anew() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    for _ in range(6):
        throttle.failed("ducks", "10.0.0.1")
    clock.now += throttle.wait("ducks", "10.0.0.1")
    throttle.failed("ducks", "10.0.0.1")
    throttle.unchecked("ducks", "10.0.0.1")
    assert throttle.wait("ducks", "10.0.0.1") == 0
    throttle.failed("ducks", "10.0.0.1")
    throttle.succeeded("ducks", "10.0.0.1")
    assert throttle.wait("other", "10.0.0.1") == 0


# --- requests


@pytest.mark.parametrize(
    ("headers", "same"),
    [
        ({"host": "board:8470", "origin": "http://board:8470"}, True),
        ({"host": "board:8470", "origin": "http://board"}, False),
        ({"host": "board:8470", "origin": "https://evil.example"}, False),
        ({"host": "board:8470", "origin": "null"}, False),
        ({"host": "board:8470", "sec-fetch-site": "cross-site"}, False),
        ({"host": "board:8470", "sec-fetch-site": "same-site"}, False),
        ({"host": "board:8470", "sec-fetch-site": "same-origin"}, True),
        ({"host": "board:8470"}, True),
    ],
)
def test_a_form_of_another_origin_is_recognised(headers: dict[str, str], same: bool) -> None:
    assert is_same_origin(Headers(headers)) is same


@pytest.mark.parametrize(
    ("header", "host"),
    [("localhost:8470", "localhost"), ("[::1]:8470", "::1"), ("EVIL.example", "evil.example"), ("", ""), ("[", "")],
)
def test_the_host_of_a_request(header: str, host: str) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize(
    ("scheme", "host", "origin"),
    [
        ("http", "localhost:8470", "http://localhost:8470"),
        ("http", "[::1]:8470", "http://[::1]:8470"),
        ("http", "board.example", "https://board.example"),  # through a proxy with TLS
        ("https", "localhost:8470", "https://localhost:8470"),
    ],
)
def test_the_origin_of_a_request(scheme: str, host: str, origin: str) -> None:
    headers = [(b"host", host.encode())]
    request = Request({"type": "http", "scheme": scheme, "path": "/share", "query_string": b"", "headers": headers})
    assert origin_of(request) == origin


def test_a_forms_token_is_that_of_its_session() -> None:
    assert is_token(masked("abc"), "abc")
    assert not is_token(masked("abd"), "abc")
    assert not is_token(masked("ab"), "abc")
    assert not is_token(masked(""), "abc")
    for given in (None, "", "abc", "\u00e4", "====", 3):
        assert not is_token(given, "abc")


def test_a_page_carries_another_text_each_time() -> None:
    assert len({masked("abc") for _ in range(20)}) == 20


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ("/ports/JPTYO?x=1", "/ports/JPTYO?x=1"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/a\r\nSet-Cookie: x", "/"),
        ("/sign-in", "/"),
        ("", "/"),
        (None, "/"),
    ],
)
def test_after_sign_in_a_browser_stays_on_this_board(asked: str | None, path: str) -> None:
    assert local_path(asked) == path


@pytest.mark.parametrize(
    "listen",
    [
        Listen(host="0.0.0.0"),  # noqa: S104 - is refused
        Listen(host="board.example"),
        Listen(certificate=Path("cert.pem")),
        Listen(key=Path("key.pem")),
    ],
)
def test_passwords_never_cross_a_network_in_clear_text(listen: Listen) -> None:
    with pytest.raises(ConfigurationError):
        listen.check()


def test_on_this_machine_or_with_tls_it_listens() -> None:
    Listen().check()
    Listen(host="0.0.0.0", certificate=Path("cert.pem"), key=Path("key.pem")).check()  # noqa: S104


@pytest.mark.parametrize("wrong", ["missing", "no certificate"])
async def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path, service: BoardService, wrong: str) -> None:
    file = tmp_path / "board.pem"
    if wrong == "no certificate":
        file.write_text("hello", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=str(file)):
        async with serving(service, Listen(port=0, certificate=file, key=file)):
            pass


def test_the_audit_log_has_a_line_for_each_event_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "run")
    log.note("sign-in", "ducks", "10.0.0.1")
    log.note("looked-at-container", 'a"b\n', "10.0.0.1", container="BIGU1000010")
    lines = [json.loads(line) for line in log.file.read_text().splitlines()]
    assert [(each["event"], each["who"], each.get("container")) for each in lines] == [
        ("sign-in", "ducks", None),
        ("looked-at-container", 'a"b\n', "BIGU1000010"),
    ]
    assert stat.S_IMODE(log.file.stat().st_mode) == 0o600
