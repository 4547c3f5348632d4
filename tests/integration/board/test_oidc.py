"""Sign-in at an OpenID Connect provider: a real one in a process of its own, and one that forges its answers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from joserfc.jws import JWSRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from board.app import create_app
from board.oidc import LASTS
from board.security import COOKIE
from board.service import BoardService
from board.sign_in import SignedIn
from board.viewer import Viewer
from fairlead.kafka.credentials import PasswordVersion
from tests.support.browser import Pages
from tests.support.serving import served
from tests.support.spark_cluster import free_port
from tests.support.waits import Clock, until
from topologies.context import open_topology

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

CLIENT: Final = "the-board"
LATER: Final = 10.0
"""Seconds after which a provider that could not be used is asked again."""
RETURN: Final = "/sign-in/oidc/return"
TOPOLOGY: Final = """
name: oidc
sites: {{tokyo: {{kind: port, unlocode: JPTYO}}}}
customers: {{ducks: {{feed_at: tokyo, table: true}}}}
users:
  operator: {{groups: [operators], at: [tokyo]}}
  stranger: {{at: [tokyo]}}
shore: {{at: tokyo}}
board:
  at: [tokyo]
  read: "g:operators"
  oidc:
    issuer: {issuer}
    client_id: the-board
    claim: {claim}
    passwords: {passwords}
    names: {{anna@line.example: operator, bert@ducks.example: ducks, carl@line.example: stranger}}
"""


def changed(honest: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (honest | changes).items() if value is not None}


@dataclass
class Provider:
    """A provider that answers as a test wants.

    ``described`` changes its discovery document, or is what it answers instead of one; ``claims`` change what an honest
    ID token has. None leaves a field out.
    """

    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))
    issuer: str = ""
    described: dict[str, Any] | str = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    sign: Callable[[dict[str, Any]], str] | None = None
    status: int = 200
    challenges: dict[str, tuple[str, str]] = field(default_factory=dict)  # by code: challenge and nonce
    asked: list[dict[str, str]] = field(default_factory=list)
    read: int = 0  # times that its discovery document was read

    def application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.describe),
                Route("/jwks", self.keys),
                Route("/token", self.token, methods=["POST"]),
            ]
        )

    def describe(self, _: Request) -> Response:
        self.read += 1
        if isinstance(self.described, str):
            return Response(self.described)
        endpoints = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "jwks"}
        honest: dict[str, Any] = {
            "issuer": self.issuer,
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
            **{name: f"{self.issuer}/{path}" for name, path in endpoints.items()},
        }
        return JSONResponse(changed(honest, self.described))

    def keys(self, _: Request) -> Response:
        return JSONResponse({"keys": [self.key.as_dict(private=False, alg="RS256", use="sig")]})

    async def token(self, request: Request) -> Response:
        if self.status != 200:
            return Response(status_code=self.status)
        form = {name: str(value) for name, value in (await request.form()).items()}
        self.asked.append(form)
        challenge, nonce = self.challenges.pop(form["code"], ("", ""))
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != challenge:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        honest = {"iss": self.issuer, "sub": "7", "aud": CLIENT, "iat": now, "exp": now + 60, "nonce": nonce}
        honest |= {"email": "anna@line.example", "email_verified": True}
        signed = (self.sign or self.signed)(changed(honest, self.claims))
        return JSONResponse({"access_token": "a", "token_type": "Bearer", "expires_in": 60, "id_token": signed})

    def signed(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.key)


@dataclass
class Front:
    """A board and its provider, without brokers: whoever signs in here needs no password."""

    provider: Provider
    board: BoardService
    clock: Clock

    def client(self, host: str = "127.0.0.1:8321") -> httpx.AsyncClient:
        hosts = ("127.0.0.1", "board.line.example")
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(create_app(self.board, hosts=hosts)), base_url=f"http://{host}"
        )

    async def begin(self, client: httpx.AsyncClient, target: str = "/") -> dict[str, str]:
        """Begin an attempt; return what the board gives the browser for the provider."""
        answer = await client.get("/sign-in/oidc", params={"next": target})
        assert answer.status_code == 303
        there = urlsplit(answer.headers["location"])
        assert f"{there.scheme}://{there.netloc}{there.path}" == f"{self.provider.issuer}/authorize"
        return {name: values[0] for name, values in parse_qs(there.query).items()}

    def code(self, given: dict[str, str]) -> dict[str, str]:
        """Return the provider's answer to what ``begin`` gave."""
        self.provider.challenges["c"] = (given["code_challenge"], given["nonce"])
        return {"code": "c", "state": given["state"]}

    async def sign_in(self, client: httpx.AsyncClient, target: str = "/") -> httpx.Response:
        return await client.get(RETURN, params=self.code(await self.begin(client, target)))

    def audit(self) -> list[dict[str, str]]:
        file = self.board.audit.file
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture(scope="session")
def forger() -> Iterator[Provider]:
    provider = Provider()
    with served(provider.application()) as address:
        provider.issuer = address
        yield provider


def opened(folder: Path, issuer: str, clock: Clock, claim: str = "email", passwords: str = "true") -> BoardService:
    file = folder / "oidc.yaml"
    file.write_text(TOPOLOGY.format(issuer=issuer, claim=claim, passwords=passwords), encoding="utf-8")
    return BoardService(open_topology(str(file)), "tokyo", clock=clock)


@pytest.fixture
def front(forger: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Front:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_SECRET_TOKYO_BOARD_OIDC", "the board's secret")
    forger.described, forger.claims, forger.sign, forger.status = {}, {}, None, 200
    forger.asked.clear()
    forger.read = 0
    clock = Clock()
    return Front(forger, opened(tmp_path, forger.issuer, clock), clock)


# --- a real provider

OF_PROVIDER: Final = "ERR_NAME_NOT_RESOLVED|404"
"""Its own pages load a style sheet from the internet, and have no icon."""


@pytest.fixture
def real(tmp_path: Path) -> Iterator[str]:
    """Run oidc-provider-mock, and give its address."""
    port = free_port()
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--host", "127.0.0.1"]
    with (tmp_path / "provider.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:  # noqa: S603
        address = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            try:
                return httpx.get(f"{address}/.well-known/openid-configuration").is_success
            except httpx.TransportError:
                return False

        try:
            until(answers, "the provider to answer")
            yield address
        finally:
            process.terminate()


async def test_somebody_signs_in_at_a_real_provider_with_a_browser(
    real: str, pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_SECRET_TOKYO_BOARD_OIDC", "the board's secret")
    claims = {"email": "anna@line.example", "email_verified": True}
    async with httpx.AsyncClient() as client:
        assert (await client.put(f"{real}/users/anna", json=claims)).is_success
    with served(create_app(opened(tmp_path, real, Clock()))) as address:
        page = await pages.open(f"{address}/access?container=BIGU1000010", allowed=OF_PROVIDER)
        assert urlsplit(page.url).path == "/sign-in"
        await page.get_by_role("link", name=f"Sign in with {urlsplit(real).netloc}").click()
        await page.get_by_placeholder("sub").fill("anna")
        await page.get_by_role("button", name="Authorize").click()
        await page.wait_for_url(f"{address}/access?container=BIGU1000010")
        assert "operator" in await page.locator("header").inner_text()


async def test_who_says_no_at_a_real_provider_is_not_signed_in(
    real: str, pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    with served(create_app(opened(tmp_path, real, Clock()))) as address:
        page = await pages.open(f"{address}/sign-in", allowed=f"403|{OF_PROVIDER}")
        await page.get_by_role("link", name="Sign in with").click()
        await page.get_by_role("button", name="Deny").click()
        await page.wait_for_url(f"{address}{RETURN}**")
        assert "has not signed you in" in await page.get_by_role("alert").inner_text()


# --- whom an answer signs in


@pytest.mark.parametrize(
    ("email", "name"), [("anna@line.example", "operator"), ("bert@ducks.example", "ducks")], ids=["user", "customer"]
)
async def test_a_valid_answer_opens_a_session_of_the_name_that_the_topology_has(
    front: Front, email: str, name: str
) -> None:
    front.provider.claims = {"email": email}
    async with front.client() as client:
        answer = await front.sign_in(client, "/access")
        assert (answer.status_code, answer.headers["location"]) == (303, "/access")
        session = front.board.sessions.find(client.cookies[COOKIE])
        assert session is not None
        assert session.name == name
    line = front.audit()[-1]
    assert (line["event"], line["who"], line["subject"]) == ("sign-in", name, "7")
    assert "the board's secret" not in front.board.audit.file.read_text()


@pytest.mark.parametrize(
    "claims",
    [
        {"email": "dora@line.example"},
        {"email": "operator"},
        {"email": "carl@line.example"},
        {"email_verified": False},
        {"email_verified": None},
        {"email": None},
        {"email": ["anna@line.example", "bert@ducks.example"]},
        {"email": {"anna@line.example": 1}},
    ],
    ids=["unknown", "a name itself", "sees nothing", "not verified", "nobody says verified", "none", "two", "no text"],
)
async def test_an_answer_that_fits_nobody_is_refused(front: Front, claims: dict[str, Any]) -> None:
    front.provider.claims = claims
    await refused(front)


async def test_an_answer_for_a_name_whose_kafka_user_is_gone_is_refused(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def version(name: str, site: str | None = None) -> PasswordVersion:
        return PasswordVersion(site or "tokyo", None if name == "operator" else b"salt")

    monkeypatch.setattr(front.board.sign_in, "password_version", version)
    await refused(front)
    front.provider.claims = {"email": "bert@ducks.example"}
    async with front.client() as client:
        assert (await front.sign_in(client)).status_code == 303


# --- forged answers


def by_none(claims: dict[str, Any]) -> str:
    parts = ({"alg": "none"}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts) + "."


def by_another_key(claims: dict[str, Any]) -> str:
    return jwt.encode({"alg": "RS256", "kid": "one"}, claims, RSAKey.generate_key(2048))


def by_an_unknown_key(claims: dict[str, Any]) -> str:
    return jwt.encode({"alg": "RS256", "kid": "two"}, claims, RSAKey.generate_key(2048, {"kid": "two"}))


def by_the_boards_secret(claims: dict[str, Any]) -> str:
    secret = OctKey.import_key({"kty": "oct", "k": base64.urlsafe_b64encode(b"the board's secret").decode()})
    return jwt.encode({"alg": "HS256", "kid": "one"}, claims, secret, registry=JWSRegistry(algorithms=["HS256"]))


@pytest.mark.parametrize(
    "sign", [by_none, by_another_key, by_an_unknown_key, by_the_boards_secret, lambda _: "no token", lambda _: ""]
)
async def test_a_token_without_the_providers_signature_is_refused(
    front: Front, sign: Callable[[dict[str, Any]], str]
) -> None:
    front.provider.sign = sign
    await refused(front)


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"aud": "another client"},
        {"aud": [CLIENT, "another client"], "azp": "another client"},
        {"nonce": "of another attempt"},
        {"nonce": None},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"iat": 4_000_000_000},
        {"sub": None},
    ],
    ids=lambda claims: json.dumps(claims)[:24],
)
async def test_a_token_for_something_else_is_refused(front: Front, claims: dict[str, Any]) -> None:
    front.provider.claims = claims
    await refused(front)


async def refused(front: Front) -> None:
    async with front.client() as client:
        answer = await front.sign_in(client)
        assert answer.status_code == 403
        assert "has not signed you in" in answer.text
        assert COOKIE not in client.cookies
        assert front.board.sessions.number() == 0
        assert front.audit()[-1]["event"] == "sign-in-refused"


# --- whose attempt it is


async def test_an_answer_is_taken_once(front: Front) -> None:
    async with front.client() as client:
        answer = front.code(await front.begin(client))
        held = client.cookies["fairlead_oidc"]
        assert (await client.get(RETURN, params=answer)).status_code == 303
        async with front.client() as thief:
            thief.cookies.set("fairlead_oidc", held)
            assert (await thief.get(RETURN, params=answer)).status_code == 403
    assert len(front.provider.asked) == 1


async def test_attempts_of_others_do_not_end_one(front: Front) -> None:
    async with front.client() as client, front.client() as other:
        answer = front.code(await front.begin(client))
        for _ in range(1001):
            await other.get("/sign-in/oidc")
        assert (await client.get(RETURN, params=answer)).status_code == 303


async def test_a_long_address_to_open_afterwards_is_left_out(front: Front) -> None:
    """Browsers keep cookies of up to 4,096 bytes."""
    async with front.client() as client:
        given = await front.begin(client, "/access?" + "é" * 450)
        assert len(client.cookies["fairlead_oidc"]) < 3900
        answer = await client.get(RETURN, params=front.code(given))
        assert answer.headers["location"].startswith("/access")
        answer = await front.sign_in(client, "/access?" + "é" * 600)
        assert answer.headers["location"] == "/"


async def test_the_answer_of_one_browser_signs_in_no_other(front: Front) -> None:
    async with front.client() as client, front.client() as other:
        answer = front.code(await front.begin(client))
        assert (await other.get(RETURN, params=answer)).status_code == 403  # without a cookie
        for forged in ("guessed", "gAAAAAB" + "A" * 200, "\x80=é"):
            cookie = f"fairlead_oidc={forged}".encode()
            assert (await other.get(RETURN, params=answer, headers={b"cookie": cookie})).status_code == 403
        await front.begin(other)
        assert (await other.get(RETURN, params=answer)).status_code == 403  # with that of its own attempt
    assert front.provider.asked == []  # the code has not left the board


@pytest.mark.parametrize("change", [{"state": "guessed"}, {"state": ""}, {"error": "access_denied"}], ids=str)
async def test_an_answer_with_another_state_is_refused(front: Front, change: dict[str, str]) -> None:
    async with front.client() as client:
        answer = front.code(await front.begin(client)) | change
        assert (await client.get(RETURN, params=answer)).status_code == 403
    assert front.provider.asked == []


async def test_an_attempt_ends_after_ten_minutes(front: Front) -> None:
    async with front.client() as client:
        answer = front.code(await front.begin(client))
        front.clock.now += LASTS + 1
        assert (await client.get(RETURN, params=answer)).status_code == 403


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/\\evil.example", "/sign-in"])
async def test_nobody_is_sent_to_another_site(front: Front, target: str) -> None:
    async with front.client() as client:
        answer = await front.sign_in(client, target)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")


async def test_what_the_provider_sees_of_the_board(front: Front) -> None:
    async with front.client() as client:
        given = await front.begin(client)
    assert given["redirect_uri"] == f"http://127.0.0.1:8321{RETURN}"
    assert given["client_id"] == CLIENT
    assert given["code_challenge_method"] == "S256"
    assert set(given["scope"].split()) == {"openid", "email"}
    async with front.client("board.line.example") as client:  # through a proxy that ends TLS
        assert (await front.begin(client))["redirect_uri"] == f"https://board.line.example{RETURN}"


# --- a provider in trouble


async def test_a_provider_that_calls_itself_something_else_is_not_used(front: Front) -> None:
    front.provider.described = {"issuer": "https://evil.example"}
    async with front.client() as client:
        answer = await client.get("/sign-in/oidc")
        assert answer.status_code == 503
        assert "calls itself https://evil.example" in answer.text


@pytest.mark.parametrize(
    "described",
    [
        {"authorization_endpoint": None},
        {"token_endpoint": None},
        {"jwks_uri": None},
        {"jwks_uri": 5},
        {"id_token_signing_alg_values_supported": 5},
        {"issuer": None},
        "",
        "<html>",
        "[]",
        "null",
    ],
    ids=str,
)
async def test_a_provider_whose_discovery_document_is_of_no_use_is_not_used(
    front: Front, described: dict[str, Any] | str
) -> None:
    front.provider.described = described
    async with front.client() as client:
        answer = await client.get("/sign-in/oidc")
        assert answer.status_code == 503
        assert f"The sign-in provider {urlsplit(front.provider.issuer).netloc}" in answer.text
        front.provider.described = {}
        front.clock.now += LATER
        assert (await front.sign_in(client)).status_code == 303


async def test_a_provider_that_cannot_be_used_is_asked_once_however_many_want_to_sign_in(front: Front) -> None:
    front.provider.described = ""
    async with front.client() as client:
        for asked in (1, 2):
            answers = await asyncio.gather(*(client.get("/sign-in/oidc") for _ in range(20)))
            assert {answer.status_code for answer in answers} == {503}
            assert (await client.get("/sign-in/oidc")).status_code == 503
            assert front.provider.read == asked
            front.clock.now += LATER
        front.provider.described = {}
        assert (await front.sign_in(client)).status_code == 303


async def test_other_fields_of_a_discovery_document_change_nothing(front: Front) -> None:
    front.provider.described = {"client_id": "another", "verify": False, "timeout": "long", "jwks": {"keys": []}}
    async with front.client() as client:
        assert (await front.sign_in(client)).status_code == 303


async def test_a_discovery_document_that_is_of_no_use_any_more_is_said_at_the_return(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("board.oidc._RENEWED", 0.0)
    async with front.client() as client:
        answer = front.code(await front.begin(client))
        front.provider.described = {"jwks_uri": None}
        assert (await client.get(RETURN, params=answer)).status_code == 503
        front.provider.described = {}
        front.clock.now += LATER
        assert (await client.get(RETURN, params=answer)).status_code == 303


async def test_a_provider_that_fails_is_named(front: Front) -> None:
    async with front.client() as client:
        answer = front.code(await front.begin(client))
        front.provider.status = 500
        found = await client.get(RETURN, params=answer)
        assert found.status_code in (403, 503)
        assert front.board.sessions.number() == 0
        front.provider.status = 200
        assert (await front.sign_in(client)).status_code == 303


async def test_without_a_provider_passwords_are_the_only_way(
    front: Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    front.board = BoardService(open_topology("minimal"), "tokyo")
    async with front.client() as client:
        assert "oidc" not in (await client.get("/sign-in")).text
        for path in ("/sign-in/oidc", RETURN):
            assert (await client.get(path)).status_code == 404


async def test_without_passwords_the_provider_is_the_only_way(
    front: Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = {"name": "operator", "password": "right"}
    asked: list[str] = []

    async def check(name: str, password: str) -> SignedIn:
        asked.append(name)
        return SignedIn(Viewer(name, reads=True), None)

    monkeypatch.setattr(front.board.sign_in, "check", check)
    async with front.client() as client:
        assert 'name="password"' in (await client.get("/sign-in")).text
        assert (await client.post("/sign-in", data=form)).status_code == 303
    front.board = opened(tmp_path, front.provider.issuer, front.clock, passwords="false")
    monkeypatch.setattr(front.board.sign_in, "check", check)
    async with front.client() as client:
        assert 'name="password"' not in (await client.get("/sign-in")).text
        assert (await client.post("/sign-in", data=form)).status_code == 404
        assert (await front.sign_in(client)).status_code == 303
    assert asked == ["operator"]


async def test_a_provider_that_is_away_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    away = f"http://127.0.0.1:{free_port()}"
    front = Front(Provider(issuer=away), opened(tmp_path, away, Clock()), Clock())
    async with front.client() as client:
        answer = await client.get("/sign-in/oidc")
        assert answer.status_code == 503
        assert f"{urlsplit(away).netloc} does not answer" in answer.text
        assert "password of your Kafka user" in answer.text
