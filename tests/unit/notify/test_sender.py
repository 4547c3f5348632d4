"""Senders against a real web server and a real mail server: signatures, answers, secrets that stay hidden."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import socket
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from pydantic import SecretStr

from edge.alerts.rules.bookings import Bookings
from fairlead.errors import ConfigurationError
from notify.routes import Message, RouteBook
from notify.sender import Outcome, sender_for, with_secret
from tests.support.notices import alert, fleet
from tests.support.receivers import Post, mail_receiver, web_receiver

KEYS = [base64.b64encode(bytes([each]) * 32).decode() for each in (1, 2)]
PASSWORD = "p@ss/w:rd%"


class Secrets:
    """A route's secret, which changes while the service runs."""

    def __init__(self, *values: str) -> None:
        self.values = list(values)

    def __call__(self) -> SecretStr | None:
        return SecretStr(self.values[-1]) if self.values else None


def book_of(to: Any) -> RouteBook:
    topology = fleet({"r": {"to": to}})
    assert topology.notify is not None
    return RouteBook("r", topology.notify.routes["r"], topology, Bookings())


def message(to: Any) -> Message:
    return book_of(to).message("opened", alert("a"))


def sent(to: Any, secrets: Secrets, what: Message | None = None) -> Outcome:
    topology = fleet({"r": {"to": to}})
    assert topology.notify is not None
    sender = sender_for("r", topology.notify.routes["r"], secrets, "set it")
    return asyncio.run(sender.send(what or message(to)))


def test_a_webhook_is_signed_with_the_newest_secret() -> None:
    secrets = Secrets(KEYS[0])
    with web_receiver() as receiver:
        hook = {"webhook": receiver.url}
        assert sent(hook, secrets) == Outcome(True, "HTTP 204")
        secrets.values.append(KEYS[1])
        assert sent(hook, secrets).delivered
    for post, key in zip(receiver.posts, KEYS, strict=True):
        wanted = hmac.new(base64.b64decode(key), post.body, hashlib.sha256).hexdigest()
        assert post.headers["Notification-Signature"] == f"sha256={wanted}"
        assert post.headers["Subscription-ID"] == "r" and post.about() == [("opened", "a")]
        assert post.headers["Content-Type"] == "application/json"
    assert receiver.posts[0].number == receiver.posts[1].number == message(hook).id


@pytest.mark.parametrize(
    ("status", "delivered", "refused"),
    [
        (200, True, False),
        (302, False, True),
        (400, False, True),
        (401, False, True),
        (408, False, False),
        (410, False, True),
        (429, False, False),
        (500, False, False),
        (503, False, False),
    ],
)
def test_answers_of_a_webhook(status: int, delivered: bool, refused: bool) -> None:
    """A redirect is not followed: the data is for the address in the topology."""
    with web_receiver(lambda post: status) as receiver:
        outcome = sent({"webhook": receiver.url}, Secrets(KEYS[0]))
    assert outcome == Outcome(delivered, f"HTTP {status}", refused)
    assert len(receiver.posts) == 1


def test_a_webhook_that_is_away_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    outcome = sent({"webhook": f"http://127.0.0.1:{port}/"}, Secrets(KEYS[0]))
    assert not outcome.delivered and not outcome.refused and "refused" in outcome.said


@pytest.mark.parametrize("secret", [[], ["short"], [base64.b64encode(b"x" * 31).decode()], ["*" * 64]])
def test_a_webhook_needs_a_secret_of_32_bytes(secret: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        sent({"webhook": "https://receiver.example/"}, Secrets(*secret))
    assert not secret or secret[0] not in str(caught.value)


def test_mail_arrives_as_plain_words() -> None:
    with mail_receiver() as receiver:
        to = f"mailto://127.0.0.1:{receiver.port}/?from=alerts@example.com&to=office@example.com&mode=insecure"
        outcome = sent(to, Secrets())
        assert outcome == Outcome(True, "delivered")
        assert receiver.subjects() == [message(to).title]
        assert receiver.mails[0]["To"] == "office@example.com"
        text = receiver.text(0)
    assert "-11.2 C for 60 min" in text and message(to).id in text


def test_mail_that_is_not_taken_is_tried_again_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    with mail_receiver() as receiver, caplog.at_level(logging.DEBUG):
        receiver.refuses = True
        to = (
            f"mailto://fairlead:{{secret}}@127.0.0.1:{receiver.port}/?from=a@example.com&to=b@example.com&mode=insecure"
        )
        outcome = sent(to, Secrets(PASSWORD))
    assert not outcome.delivered and not outcome.refused and outcome.said.startswith("not delivered: ")
    shown = outcome.said + caplog.text
    assert PASSWORD not in shown and with_secret("{secret}@", PASSWORD).rstrip("@") not in shown


def test_a_message_that_is_too_long_for_a_service_comes_in_parts() -> None:
    """Refused as a whole, it would be sent for ever, and all later alerts would wait for it."""

    def text(post: Post) -> str:
        return str(msgspec.json.decode(post.body)["text"])

    with web_receiver(lambda post: 200 if len(text(post)) <= 4000 else 400) as receiver:
        to = f"mmost://127.0.0.1:{urlsplit(receiver.url).port}/{'t' * 26}"
        book = book_of(to)
        for n in range(50):
            book.hold("opened", alert(f"a{n}"))
        digest = book.digest([("alerts.tokyo", 0, 50)])
        assert digest is not None
        assert sent(to, Secrets(), digest) == Outcome(True, "delivered")
    refused, *taken = map(text, receiver.posts)
    assert len(refused) > 4000 and len(taken) > 1
    assert [line for part in taken for line in part.split("\n") if "alert: " in line] == [
        line for line in digest.text.split("\n") if "alert: " in line
    ]


def test_an_address_that_apprise_does_not_know_is_refused_without_its_secret() -> None:
    for to, secret in (("nonsense://{secret}/", "token/b"), ("{secret}", "nonsense://token")):
        with pytest.raises(ConfigurationError) as caught:
            sent(to, Secrets(secret))
        assert "token" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="is not set"):
        sent("slack://{secret}/#fleet", Secrets())


@pytest.mark.parametrize(
    ("url", "made"),
    [
        ("mailtos://u:{secret}@h/?to=a@b.example", "mailtos://u:p%40ss%2Fw%3Ard%25@h/?to=a@b.example"),
        ("slack://{secret}/#fleet", "slack://p%40ss/w%3Ard%25/#fleet"),
        ("{secret}", PASSWORD),
    ],
)
def test_a_secret_is_put_in_its_place(url: str, made: str) -> None:
    assert with_secret(url, PASSWORD) == made
