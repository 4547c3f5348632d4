"""What the board's answers have, whoever asks."""

from __future__ import annotations

import io
from typing import Any

import httpx
import pytest

import board.pages.container
from board.app import create_app
from board.pages.container import Listed
from board.service import BoardService
from board.viewer import LOCAL
from fairlead.errors import ConfigurationError, FairleadError, RefusedError, UnavailableError
from shore.report.container import UnknownContainerError
from tests.support.board import NOW, alert

NAME = "board.example.com"
OWN = {"origin": "http://localhost"}


def client(service: BoardService, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(service, hosts=["localhost", NAME]))
    return httpx.AsyncClient(transport=transport, base_url=address)


@pytest.mark.parametrize(
    ("address", "safe"),
    [
        ("http://localhost:8470", False),
        ("https://localhost:8470", True),
        (f"http://{NAME}", True),  # through a proxy with TLS
        (f"https://{NAME}", True),
    ],
)
async def test_who_comes_over_tls_gets_a_cookie_and_a_policy_for_tls_alone(
    service: BoardService, address: str, safe: bool
) -> None:
    async with client(service, address) as browser:
        answer = await browser.get(f"/local/{service.sessions.link_for(LOCAL.name)}")
    assert answer.status_code == 303
    assert ("secure" in answer.headers["set-cookie"].lower()) is safe
    assert ("strict-transport-security" in answer.headers) is safe


@pytest.mark.parametrize("path", ["/sign-in", "/no-such-page"])
async def test_strangers_hear_nothing_of_the_sites_kafka(service: BoardService, path: str) -> None:
    service.live.trouble = "Kafka of site 'tokyo' cannot be reached at 10.0.0.5:9093"
    async with client(service, "http://localhost") as browser:
        answer = await browser.get(path)
        assert "10.0.0.5" not in answer.text
        await browser.get(f"/local/{service.sessions.link_for(LOCAL.name)}")
        assert "10.0.0.5" in (await browser.get("/no-such-page")).text


async def test_who_signs_in_while_kafka_is_away_has_typed_no_wrong_password(
    service: BoardService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise UnavailableError("10.0.0.5:9093 does not answer", hint="look at 10.0.0.5")

    monkeypatch.setattr(service.sign_in, "check", away)
    async with client(service, "http://localhost") as browser:
        for _ in range(8):
            answer = await browser.post("/sign-in", data={"name": "ducks", "password": "x"}, headers=OWN)
            assert answer.status_code == 503 and "10.0.0.5" not in answer.text
            assert "cannot be checked now" in answer.text


@pytest.mark.parametrize(
    ("error", "status"), [(UnavailableError, 503), (ConfigurationError, 404), (RefusedError, 409), (FairleadError, 500)]
)
async def test_only_who_reads_the_fleet_hears_where_something_is_wrong(
    service: BoardService, monkeypatch: pytest.MonkeyPatch, error: type[FairleadError], status: int
) -> None:
    async def away(*_: object) -> None:
        raise error("10.0.0.5:9093 does not answer", hint="look at 10.0.0.6")

    monkeypatch.setattr(service.oidc, "provider", lambda: "provider")
    monkeypatch.setattr(service.oidc, "begin", away)
    async with client(service, "http://localhost") as browser:
        answer = await browser.get("/sign-in/oidc")
        assert answer.status_code == status and "10.0.0." not in answer.text
        await browser.get(f"/local/{service.sessions.link_for(LOCAL.name)}")
        answer = await browser.get("/sign-in/oidc")
        assert answer.status_code == status and "10.0.0.5" in answer.text and "10.0.0.6" in answer.text


@pytest.mark.parametrize(
    ("path", "reads"),
    [("/", "board.pages.fleet._ships_in_tables"), ("/voyages", "board.pages.voyage._read_legs")],
)
async def test_what_the_logs_and_the_sites_tell_is_shown_while_the_tables_are_away(
    service: BoardService, monkeypatch: pytest.MonkeyPatch, path: str, reads: str
) -> None:
    """The page says at its top what it does not know."""

    def away(*_: object) -> None:
        raise UnavailableError("the bucket does not answer")

    monkeypatch.setattr(reads, away)
    monkeypatch.setattr(service.live, "read_at", NOW)
    async with client(service, "http://localhost") as browser:
        await browser.get(f"/local/{service.sessions.link_for(LOCAL.name)}")
        answer = await browser.get(path)
        assert answer.status_code == 200
        assert "the bucket does not answer" in answer.text and "No alert is open." in answer.text


async def test_a_container_that_is_not_known_leads_to_the_list(
    service: BoardService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> None:
        raise UnknownContainerError("no table has container BIGU1000010")

    monkeypatch.setattr(board.pages.container, "read_container", unknown)
    async with client(service, "http://localhost") as browser:
        assert 'href="/containers"' not in (await browser.get("/containers/BIGU1000010")).text
        await browser.get(f"/local/{service.sessions.link_for(LOCAL.name)}")
        answer = await browser.get("/containers/BIGU1000010")
        assert answer.status_code == 404 and '<a href="/containers">' in main_of(answer.text)
        assert '<a href="/containers">' not in main_of((await browser.get("/no-such-page")).text)


async def test_the_last_day_of_a_claims_pack_may_be_that_of_the_calendar(
    service: BoardService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who writes it means: without an end."""
    monkeypatch.setattr(board.pages.container, "packed", lambda *_: io.BytesIO(b"the pack"))
    async with client(service, "http://localhost") as browser:
        await browser.get(f"/local/{service.sessions.link_for(LOCAL.name)}")
        answer = await browser.get("/containers/BIGU1000010/pack?until=9999-12-31")
    assert (answer.status_code, answer.content) == (200, b"the pack")


def main_of(page: str) -> str:
    return page[page.index("<main") :]


_COLUMNS = ("setpoint_temperature", "supply_temperature", "return_temperature", "is_connected_to_power_source",
            "is_powered", "bookings", "customer", "minutes_left", "booking_reference", "reading_date_time")  # fmt: skip
BOX = dict.fromkeys(_COLUMNS) | {"tone": "good", "equipment_reference": "BIGU1000010", "where": "", "concerns": ()}


@pytest.mark.parametrize("rows", [(), (BOX,)], ids=["empty", "one"])
async def test_words_for_an_empty_list_are_on_the_page_only_while_it_is_empty(
    service: BoardService, monkeypatch: pytest.MonkeyPatch, rows: tuple[dict[str, Any], ...]
) -> None:
    """Text browsers and programs read also what a style sheet hides."""
    listed = Listed(rows, dict.fromkeys(board.pages.container.TONES, len(rows)), NOW, ())
    monkeypatch.setattr(board.pages.container, "read_list", lambda *_: listed)
    monkeypatch.setattr(service.live, "read_at", NOW)
    monkeypatch.setattr(service.live, "opened", lambda _id: NOW)
    monkeypatch.setattr(service.live, "open_alerts", lambda: [alert("tokyo")] if rows else [])
    async with client(service, "http://localhost") as browser:
        await browser.get(f"/local/{service.sessions.link_for(LOCAL.name)}")
        assert ("No alert is open." in (await browser.get("/")).text) is not bool(rows)
        assert ("The tables know no container yet." in (await browser.get("/containers")).text) is not bool(rows)
