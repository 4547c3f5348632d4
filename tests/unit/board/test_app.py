"""What the board's answers have, whoever asks."""

from __future__ import annotations

import httpx
import pytest

from board.app import create_app
from board.service import Board
from board.viewer import LOCAL

NAME = "board.example.com"


def client(service: Board, address: str) -> httpx.AsyncClient:
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
    service: Board, address: str, safe: bool
) -> None:
    async with client(service, address) as browser:
        answer = await browser.get(f"/local/{service.sessions.link_for(LOCAL.name)}")
    assert answer.status_code == 303
    assert ("secure" in answer.headers["set-cookie"].lower()) is safe
    assert ("strict-transport-security" in answer.headers) is safe


@pytest.mark.parametrize("path", ["/sign-in", "/no-such-page"])
async def test_strangers_hear_nothing_of_the_sites_kafka(service: Board, path: str) -> None:
    service.live.trouble = "Kafka of site 'tokyo' cannot be reached at 10.0.0.5:9093"
    async with client(service, "http://localhost") as browser:
        answer = await browser.get(path)
        assert "10.0.0.5" not in answer.text
        await browser.get(f"/local/{service.sessions.link_for(LOCAL.name)}")
        assert "10.0.0.5" in (await browser.get("/no-such-page")).text
