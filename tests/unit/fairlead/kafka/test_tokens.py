"""Tokens for OAUTHBEARER: kept while they last, asked for once, and never shown."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from pydantic import SecretStr

from fairlead.errors import ConfigurationError, LoginRefusedError, UnavailableError
from fairlead.kafka.tokens import MskRegion, OidcEndpoint, Token, cached, forget, obtain
from tests.support import oidc

SECRET = SecretStr("the-clients-secret")


@pytest.fixture
def provider() -> Iterator[oidc.Provider]:
    with oidc.running({"bridge": SECRET.get_secret_value()}) as running:
        yield running


def ask(provider: oidc.Provider, *, secret: SecretStr = SECRET, unlike: SecretStr | None = None) -> Token:
    return obtain(OidcEndpoint(provider.endpoint, "kafka"), "bridge", secret, site="tokyo", unlike=unlike)


def test_a_token_is_asked_for_once_and_kept(provider: oidc.Provider) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = {threads.submit(ask, provider).result().text.get_secret_value() for _ in range(20)}
    assert len(found) == 1 and provider.issued["bridge"] == 1
    assert provider.scopes == ["kafka"]


def test_a_token_near_its_end_is_not_used(provider: oidc.Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    provider.lifetime = 100
    first, now = ask(provider), time.time()
    assert 99 < first.ends - now <= 101
    monkeypatch.setattr(time, "time", lambda: now + 70)
    assert ask(provider) == first
    monkeypatch.setattr(time, "time", lambda: now + 80)
    assert ask(provider) != first


def test_a_session_is_prolonged_with_another_token(provider: oidc.Provider) -> None:
    first = ask(provider)
    second = ask(provider, unlike=first.text)
    assert second != first
    assert ask(provider, unlike=first.text) == second  # other connections share it
    assert provider.issued["bridge"] == 2


def test_a_refused_token_is_forgotten(provider: oidc.Provider) -> None:
    first, source = ask(provider), OidcEndpoint(provider.endpoint, "kafka")
    forget(source, "bridge", SECRET)
    assert cached(source, "bridge", SECRET) is None
    assert ask(provider) != first


def test_the_end_is_read_from_the_token_if_the_answer_does_not_say_it(
    provider: oidc.Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = provider.token("bridge")
    monkeypatch.setattr(provider, "answer", lambda *_: (200, {"access_token": text}))
    assert 3500 < ask(provider).ends - time.time() <= 3600


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, {"error": "invalid_client"}, LoginRefusedError, "refuses the client 'bridge': HTTP 401 invalid_client"),
        (400, {"error": "invalid_scope"}, LoginRefusedError, "HTTP 400 invalid_scope"),
        (503, {}, UnavailableError, "gives no token: HTTP 503"),
        (302, {}, UnavailableError, "gives no token: HTTP 302"),
        (200, {"token": "x"}, UnavailableError, "answered without a token"),
    ],
)
def test_errors_say_what_happened_and_show_no_secret(
    provider: oidc.Provider,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: dict[str, str],
    kind: type[Exception],
    words: str,
) -> None:
    monkeypatch.setattr(provider, "answer", lambda *_: (status, body))
    with pytest.raises(kind, match=words) as caught:
        ask(provider)
    assert SECRET.get_secret_value() not in repr(caught.value) + str(caught.value)


def test_an_endpoint_that_does_not_answer_may_answer_later() -> None:
    with pytest.raises(UnavailableError, match="does not answer") as caught:
        obtain(OidcEndpoint("http://127.0.0.1:9/token"), "bridge", SECRET, site="tokyo")
    assert caught.value.retriable


def test_amazons_library_signs_for_the_region_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def signed(region: str) -> tuple[str, int]:
        asked.append(region)
        return f"signed for {region}", int((time.time() + 900) * 1000)

    provider = SimpleNamespace(generate_auth_token=signed)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", SimpleNamespace(MSKAuthTokenProvider=provider))
    region = MskRegion(f"region-{secrets.token_hex(2)}")
    assert obtain(region, "bridge", None, site="msk").text.get_secret_value() == f"signed for {region.region}"
    obtain(region, "bridge", None, site="msk")
    assert asked == [region.region]


def test_without_amazons_library_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigurationError) as caught:
        obtain(MskRegion("eu-west-1"), "bridge", None, site="msk")
    assert caught.value.hint == "pip install 'fairlead[msk]'"
