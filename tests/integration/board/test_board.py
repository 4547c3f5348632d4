"""The board over HTTP with a real broker: who gets in, who sees what, and how soon an alert is on a page."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from pydantic import SecretStr

from acl.rotate import rotate
from board.openapi import SESSION
from board.security import COOKIE
from board.service import BoardService
from board.sessions import CHANGED_FOR
from board.viewer import Access
from fairlead.kafka.credentials import give_password, take_password
from fairlead.records import decoder
from fairlead.records.alert import ALERT_ORDERS, LEFT_PORT, AlertOrder, Evidence
from tests.integration.board.world import IMO, PORT, SHIP, World, alert, served
from tests.support.openapi import OPERATIONS
from tests.support.waits import PATIENCE, until

pytestmark = pytest.mark.integration

SECRETS = ("BIGU1000010", "BKG0000001", "customer0", "Duck Star", "Port of Tokyo")
"""What only staff may see of the fixture's tables and logs."""


VALUES = {"code": "JPTYO", "number": "BIGU1000010", "alert_id": "OVERBOARD-BIGU1000010-1-0", "imo": IMO}
"""Names that exist, by the parameters of paths."""


def addresses(method: str | None, *roles: Access) -> list[tuple[str, str]]:
    """Return method and path of all that the OpenAPI document has for sessions, for these roles if any are given."""
    wanted = {role.value for role in roles}
    return [
        (each.method, each.address(VALUES, "guessed"))
        for each in OPERATIONS
        if SESSION in each.schemes and method in (None, each.method) and (not roles or wanted & set(each.roles))
    ]


# --- signing in


@pytest.mark.parametrize("name", ["operator", "analyst", "customer3"])
def test_a_kafka_users_password_signs_in(world: World, name: str) -> None:
    with world.browser() as client:
        answer = world.sign_in(client, name, world.password(name))
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        first = client.get("/", follow_redirects=True)
        assert first.status_code == 200
        assert name in first.text


@pytest.mark.parametrize("name", ["operator", "stranger", "nobody", "shore", "board", "admin", "", "a" * 300])
def test_a_wrong_password_or_a_name_that_may_see_nothing_does_not(world: World, name: str) -> None:
    right = world.password(name) if name in ("stranger", "shore", "board", "admin") else "wrong"
    with world.browser() as client:
        answer = world.sign_in(client, name, right)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
        assert right not in answer.text.replace("wrong, or", "")
        assert client.get("/").status_code == 303


# --- passwords that change


class RunningClock:
    """The real clock, which a test can put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def watchful(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, RunningClock]]:
    """Give a second board of the site, which asks about passwords all the time."""
    monkeypatch.setattr("board.service._PASSWORDS_EVERY", 0.1)
    clock = RunningClock()
    board = BoardService(world.context, PORT, clock=clock)
    with served(board) as address:
        yield replace(world, board=board, address=address), clock


def rotated(world: World, name: str) -> None:
    (done,) = rotate(world.context.topology, world.context.resolver, world.local, name, [PORT])
    assert done.error is None, done.error


def wait_ended(world: World, clock: RunningClock) -> None:
    """Wait until the board has ended sessions, with seconds that pass fifty times as fast."""

    def has_ended() -> bool:
        clock.ahead += 1
        return world.board.audit.events["session-ended"] > 0

    until(has_ended, "the sessions to end")
    assert clock.ahead >= CHANGED_FOR


def test_a_changed_password_ends_sessions_and_event_streams_of_its_name(
    watchful: tuple[World, RunningClock],
) -> None:
    world, clock = watchful
    with world.browser("operator") as client, world.browser("operator") as page, world.browser("analyst") as other:
        with page.stream("GET", "/live") as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith(":")
            rotated(world, "operator")
            wait_ended(world, clock)
            for _ in lines:  # until the stream ends
                pass
        assert client.get("/").headers["location"].startswith("/sign-in")
        assert other.get("/").status_code == 200
    with world.browser("operator") as client:  # with the new password
        assert client.get("/").status_code == 200
    lines_of_log = [json.loads(line) for line in world.board.audit.file.read_text().splitlines()]
    reasons = [each["why"] for each in lines_of_log if (each["event"], each["who"]) == ("session-ended", "operator")]
    assert reasons == ["the password was changed"]


def test_a_password_that_is_taken_away_ends_sessions(watchful: tuple[World, RunningClock]) -> None:
    world, clock = watchful
    admin, password = world.context.resolver.kafka(PORT, "admin"), world.password("customer19")
    with world.browser("customer19") as client:
        take_password(admin, "customer19")
        try:
            wait_ended(world, clock)
            assert client.get("/").headers["location"].startswith("/sign-in")
        finally:
            give_password(admin, "customer19", SecretStr(password))


def test_a_session_that_began_without_a_password_ends_too(watchful: tuple[World, RunningClock]) -> None:
    world, clock = watchful
    token, session = world.board.sessions.open("analyst")  # as at a provider, while no broker answers
    until(lambda: session.password is not None, "the board to ask about the name")
    rotated(world, "analyst")
    wait_ended(world, clock)
    assert not world.board.sessions.is_open(token)


def test_a_broker_that_is_away_is_told_and_ends_no_session(watchful: tuple[World, RunningClock]) -> None:
    world, clock = watchful
    with world.browser("operator") as client:
        until(lambda: "Alerts and positions are" not in client.get("/").text, "the logs to be read")
        world.local.kill(PORT)
        try:
            until(lambda: "Alerts and positions are as of" in client.get("/").text, "the board to notice", patience=60)
            clock.ahead += 2 * CHANGED_FOR
            assert client.get("/").status_code == 200
        finally:
            world.local.restart(PORT)
        until(lambda: "Alerts and positions are" not in client.get("/").text, "the logs to be read", patience=60)
        assert world.board.audit.events["session-ended"] == 0


def test_guessing_is_slowed_down(world: World) -> None:
    with world.browser() as client:
        statuses = [world.sign_in(client, "operator", f"guess{number}").status_code for number in range(7)]
        assert statuses == [403] * 5 + [429] * 2
        refused = world.sign_in(client, "operator", world.password("operator"))
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0


def test_the_printed_link_signs_in_once(world: World) -> None:
    link = urlsplit(world.local_link()).path
    with world.browser() as client, world.browser() as other:
        assert client.get(link).status_code == 303
        assert client.get("/").status_code == 200
        assert other.get(link).status_code == 404
        assert other.get("/").status_code == 303


def test_a_cookie_that_was_stolen_is_worth_nothing_after_sign_out(world: World) -> None:
    with world.browser("operator") as client, world.browser() as thief:
        thief.cookies.set(COOKIE, client.cookies[COOKIE])
        assert thief.get("/").status_code == 200
        csrf = csrf_of(client.get("/").text)
        assert client.post("/sign-out", data={"csrf": csrf}).status_code == 303
        assert thief.get("/").status_code == 303
        assert thief.get("/live").status_code in (303, 401)


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}, {}],
    ids=["other origin", "no origin", "cross-site", "without the token"],
)
def test_a_forged_form_changes_nothing(world: World, headers: dict[str, str]) -> None:
    with world.browser("operator") as client:
        data = {"csrf": csrf_of(client.get("/").text)} if headers else {}
        paths = [path for _, path in addresses("POST")]
        assert "/sign-out" in paths
        for path in paths:
            assert client.post(path, data=data, headers=headers).status_code == 403
        assert client.get("/").status_code == 200  # still signed in


def csrf_of(page: str) -> str:
    match = re.search(r'name="csrf" value="([^"]+)"', page)
    assert match is not None
    return match[1]


# --- who sees what


def test_nobody_sees_anything_without_having_signed_in(world: World) -> None:
    with world.browser() as client:
        for method, path in addresses(None):
            answer = client.request(method, path)
            assert answer.status_code in (303, 401), path
            assert not any(secret in answer.text for secret in SECRETS)


def test_no_customer_sees_a_page_of_the_staff(world: World) -> None:
    """One over HTTP; ``test_isolation`` has twenty of them, and all addresses."""
    paths = addresses(None, Access.STAFF, Access.OPERATOR)
    assert len(paths) >= 8
    with world.browser("customer3") as client:
        for method, path in paths:
            answer = client.request(method, path)
            assert answer.status_code == 404, (method, path)
            assert not [secret for secret in SECRETS if secret in answer.text], path
        assert client.get("/").headers["location"] == "/mine"


def test_who_only_reads_orders_nothing(world: World) -> None:
    with world.browser("analyst") as client:
        csrf = csrf_of(client.get("/").text)
        for _, path in addresses("POST", Access.OPERATOR):
            assert client.post(path, data={"csrf": csrf, "reason": "x"}).status_code == 404
        assert client.get("/ports/JPTYO").status_code == 200


def test_what_the_topology_takes_away_is_gone_at_once(world: World) -> None:
    given = world.context.topology.board
    assert given is not None
    with world.browser("analyst") as client:
        assert client.get("/ports/JPTYO").status_code == 200
        less = world.context.topology.model_copy(update={"board": given.model_copy(update={"read": "g:operators"})})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(world.board), "topology", property(lambda _: less))
            assert client.get("/ports/JPTYO").status_code == 303
        assert client.get("/ports/JPTYO").status_code == 200


def test_every_answer_has_the_headers_that_keep_others_scripts_out(world: World) -> None:
    with world.browser("operator") as client:
        for path in ("/", "/ports/JPTYO", "/sign-in", "/nothing", "/healthz", "/static/board.css"):
            headers = client.get(path).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert "server" not in headers
        assert client.get("/").headers["cache-control"] == "no-store"


def test_the_board_answers_to_its_own_names_only(world: World) -> None:
    with world.browser("operator") as client:
        assert client.get("/", headers={"host": "evil.example"}).status_code == 421
        assert client.get("/", headers={"host": "localhost"}).status_code == 200


# --- pages


def test_the_port_page_has_what_is_wrong_and_script_in_a_booking_stays_text(world: World) -> None:
    with world.browser("operator") as client:
        page = client.get("/ports/jptyo", follow_redirects=True).text
        assert "BIGU1000010" in page
        assert "not plugged in" in page
        assert "<script>alert(1)" not in page
        assert "&lt;script&gt;alert(1)" in page
        assert client.get("/ports/XXXXX").status_code == 404


def test_the_access_page_says_who_may_read_a_box_and_why(world: World) -> None:
    with world.browser("analyst") as client:
        page = client.get("/access", params={"topic": "feeds.customer7"}).text
        assert "customers.customer7: feed of its own" in page
        page = client.get("/access", params={"topic": "bigu 100001 0"}).text
        assert "containers.BIGU1000010" in page
        assert "is empty: nobody" in page


# --- live


def test_an_alert_is_on_open_pages_within_two_seconds_and_only_on_those_that_it_concerns(world: World) -> None:
    raised = alert("BIGU2000000", raised_at=PORT, kind="NO_POWER", alert_id="NO_POWER-BIGU2000000-1-0")
    with world.browser("operator") as client:
        with live(client, "/live?port=JPTYO") as here, live(client, "/live?port=USLAX") as elsewhere:
            began = time.monotonic()
            world.raise_alert(raised)
            element = f"alert-{raised.raised_at}-{raised.alert_id}"
            event = here(lambda name, data: name == "fragment" and data["id"] == element)
            assert time.monotonic() - began < 2 * 5  # 2 s, and a machine that is five times as slow
            assert event["target"] == "alerts"
            assert "BIGU2000000" in event["html"]
            assert "in water for 30 s" in event["html"]
            cleared = alert(
                "BIGU2000000", raised_at=PORT, kind="NO_POWER", alert_id=raised.alert_id, state="CLEARED", revision=1
            )
            world.raise_alert(cleared)
            event = here(lambda name, data: name == "fragment" and data["html"] is None)
            assert event["id"] == element
            world.raise_alert(
                alert("BIGU4000007", alert_id="LAST", evidence=(Evidence(name=LEFT_PORT, weight=1, detail="USLAX"),))
            )
            last = elsewhere(lambda name, data: name == "fragment" and data["html"] is not None)
            assert last["id"] == f"alert-{SHIP}-LAST"  # what came before it was not for this page
        assert "BIGU2000000" not in client.get("/").text


def test_an_operator_acknowledges_an_alert_under_its_own_name(world: World) -> None:
    raised = alert("BIGU3000009", raised_at=PORT, kind="NO_POWER", alert_id="NO_POWER-BIGU3000009-1-0")
    world.raise_alert(raised)
    until(lambda: world.board.live.alert(raised.alert_id, "") is not None, "the alert on the board")
    with world.browser("operator") as client:
        page = client.get("/").text
        assert f"/alerts/{raised.alert_id}/acknowledge" in page
        bridge = threading.Thread(target=answer_the_order, args=(world, raised.alert_id))
        bridge.start()
        answer = client.post(
            f"/alerts/{raised.alert_id}/acknowledge", data={"csrf": csrf_of(page), "next": "/ports/JPTYO"}
        )
        bridge.join(PATIENCE)
        assert answer.status_code == 303, answer.text
        assert answer.headers["location"] == "/ports/JPTYO"
        until(lambda: "acknowledged by operator" in client.get("/").text, "the acknowledgement on the page")


def answer_the_order(world: World, alert_id: str) -> None:
    """Do what the bridge does: read the order, and append the alert's next state with the name in it."""
    orders = world.read(ALERT_ORDERS)
    order = next(each for each in map(decoder(AlertOrder).decode, orders) if each.acknowledges == alert_id)
    world.raise_alert(
        alert(
            order.equipment_reference,
            raised_at=PORT,
            kind="NO_POWER",
            alert_id=alert_id,
            state="UPDATED",
            revision=1,
            acknowledged_by=order.ordered_by,
            acknowledged_date_time=order.ordered_date_time,
        )
    )


# --- hostile clients


def test_headers_of_ten_megabytes_are_refused_and_the_board_goes_on(world: World) -> None:
    host, port = address_of(world)
    with socket.create_connection((host, port), PATIENCE) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            for _ in range(10):
                connection.sendall(b"X-Long: " + b"a" * (1 << 20) + b"\r\n")
            connection.sendall(b"\r\n")
        with contextlib.suppress(ConnectionError):
            answer = connection.recv(64)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    with world.browser("operator") as client:
        assert client.get("/").status_code == 200


def test_a_thousand_connections_that_send_nothing_keep_nobody_out(world: World) -> None:
    with contextlib.ExitStack() as open_ones:
        for number in range(1000):
            connection = open_ones.enter_context(socket.create_connection(address_of(world), PATIENCE))
            if number % 2:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        with world.browser("operator") as client:
            assert client.get("/").status_code == 200


def address_of(world: World) -> tuple[str, int]:
    parts = urlsplit(world.address)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


Wait = Callable[[Callable[[str, Any], bool]], Any]


@contextlib.contextmanager
def live(client: httpx.Client, path: str) -> Iterator[Wait]:
    """Open an event stream; give a function that waits for an event and returns its data."""
    with client.stream("GET", path) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines).startswith(":")  # from now on nothing is missed

        def wait(wanted: Callable[[str, Any], bool]) -> Any:
            name, ends = "", time.monotonic() + PATIENCE
            for line in lines:
                assert time.monotonic() < ends, "waited for an event"
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: ") and wanted(name, data := json.loads(line.removeprefix("data: "))):
                    return data
            raise AssertionError("the stream has ended")

        yield wait
