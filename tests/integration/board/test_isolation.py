"""Twenty customers ask for everything that the OpenAPI document has, with what is theirs and with what is not.

Requests are made from the document, so that a new address is attacked without anybody thinking of it. An answer that
the document does not name fails as well (``Browser``).
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import httpx
import pytest

from board.app import create_app
from board.openapi import TOKEN
from board.service import BoardService
from board.sharing.protocol import PREFIX
from board.sharing.routes import routes
from board.sharing.service import SharingService
from board.sharing.tokens import Tokens
from board.viewer import LOCAL, Access, Viewer
from tests.integration.board.customers import CUSTOMERS, Browser, box_of, headers, plain, runner, secret_of, service
from tests.support.openapi import OPERATIONS, Described
from tests.support.sharing import fill_feeds
from tests.support.shore.fleet import alert, change, reading
from tests.support.tables import fill

__all__ = ["runner", "service"]

Values = dict[str, str]
NOBODYS: Values = {
    "number": "BIGU9999992",
    "share": "nobody",
    "alert_id": "a-nobody",
    "token": "nobody",
    "link": "bm9ib2R5.eA",
    "file": "nobody.css",
    "imo": "9074729",
}
"""What nobody has, by the parameters of paths."""


@dataclass
class World:
    """The application with all its routes, and a browser for each customer."""

    board: BoardService
    browsers: dict[str, Browser]
    nobody: Browser
    staff: Browser
    links: dict[str, str]

    def own(self, customer: str) -> Values:
        """Return what a customer may ask for, by the parameters of the document's paths."""
        return {
            "number": box_of(customer),
            "share": customer,
            "schema": "default",
            "table": "readings",
            "link": self.links.get(customer, "none"),
            "file": "board.css",
            "imo": "9321483",
        }

    def guessed(self, other: str) -> Values:
        """Return what another customer has, and secrets that are almost right, by the parameters of paths."""
        said, _, signature = self.links[other].partition(".")
        return self.own(other) | {
            "code": "JPTYO",
            "alert_id": f"a-{other}",
            "link": f"{said}.{signature[::-1]}",
            "token": other,
            "file": f"../../customers/{other}/feed",
        }


def shore_rows() -> dict[str, list[dict[str, Any]]]:
    """Return rows of shore's tables, from which shares are made: what each customer's bookings give it."""
    found: dict[str, list[dict[str, Any]]] = {"readings": [], "alerts": [], "booking_changes": []}
    for customer in CUSTOMERS:
        for box in (box_of(customer, 0), box_of(customer, 1)):
            device = f"{secret_of(customer)}-{box}"
            found["readings"] += [reading(i, i / 2, box, device_id=device, payload=b"{}") for i in range(4)]
            offset = len(found["booking_changes"])
            booking = {"booking_reference": f"B-{box}", "customer": customer, "equipment_reference": box}
            found["booking_changes"].append(change(offset, 0, **booking))
        found["alerts"].append(
            alert(
                len(found["alerts"]), 1, alert_id=f"a-{customer}", equipment_reference=box_of(customer), payload=b"{}"
            )
        )
    others = ("events", "excursions", "alerts_ashore", "custody_entries", "digests", "feeds", "sites", "owners")
    return found | {name: [] for name in others}


@pytest.fixture(scope="module")
def world(service: BoardService, runner: asyncio.Runner) -> Iterator[World]:
    folder = service.context.folder
    fill(folder, shore_rows())
    assert fill_feeds(folder, service.topology, {}, 0) > 0
    tokens = Tokens(folder)
    shares = SharingService(
        service.topology, folder, service.paths, folder / "sharing" / "files", fresh=dt.timedelta(hours=1)
    )
    app = create_app(service, further=routes(shares))
    browsers = {
        name: Browser(service, runner, app, name, tokens.issue(name).token) for name in (*CUSTOMERS, "poor", "receiver")
    }
    found = World(service, browsers, Browser(service, runner, app, None), Browser(service, runner, app, LOCAL.name), {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.sign_in, "check", wrong_password)  # there is no broker here
        for customer in CUSTOMERS:
            found.links[customer] = link_of(browsers[customer], customer)
        yield found


async def wrong_password(name: str, password: str) -> Viewer | None:
    return None


def link_of(browser: Browser, customer: str) -> str:
    """Return a link to the file of a customer's table."""
    answer = browser.ask("POST", f"{PREFIX}/shares/{customer}/schemas/default/tables/readings/query", json={})
    assert answer.status_code == 200, answer.text
    return str(json.loads(answer.text.splitlines()[2])["file"]["url"].rpartition("/")[2])


def foreign_to(customer: str) -> list[str]:
    """Return texts that no answer to a customer may have."""
    others = [each for each in CUSTOMERS if each != customer]
    return [text for each in others for text in (secret_of(each), *(box_of(each, n) for n in range(3)))]


PAIRS = tuple(zip(CUSTOMERS, CUSTOMERS[1:] + CUSTOMERS[:1], strict=True))
"""Each customer, and another one. Where a path has one of a few words, each pair takes another one, in turn."""


EVENTS: Final = "/mine/live"  # does not end; test_portal listens to it


def may_ask(each: Described) -> bool:
    """Whether a customer may ask for it at all, for what is its own."""
    return not each.roles or Access.CUSTOMER.value in each.roles


def ask(
    browser: Browser, each: Described, address: str, *, query: Values | None = None, body: Values | None = None
) -> httpx.Response:
    if query:
        address += f"?{urlencode(query)}"
    sent: dict[str, Any] = {}
    if each.method == "POST":
        sent = {"json": dict(body or {})} if TOKEN in each.schemes else {"data": dict(body or {})}
    return browser.ask(each.method, address, **sent)


def test_every_customer_gets_what_is_its_own_and_nothing_of_others(world: World) -> None:
    """The guesses below would prove little if their requests were wrong: with a customer's own values they work."""
    elsewhere = ("/local/", "/sign-in/oidc")  # a link of the command, and a provider: this topology has none
    asked = [
        each
        for each in OPERATIONS
        if may_ask(each) and each.method == "GET" and not each.path.startswith((*elsewhere, EVENTS))
    ]
    assert len(asked) >= 15
    for turn, customer in enumerate(CUSTOMERS):
        browser, own, foreign = world.browsers[customer], world.own(customer), foreign_to(customer)
        for each in asked:
            unknown = set(each.guessed) - own.keys()
            assert not unknown, f"{each.path}: say in World.own what a customer's own {unknown} is"
            query = {"startingVersion": "0"} if each.path.endswith("/changes") else {}
            address = each.address(own, turn=turn)
            answer = ask(browser, each, address, query=query)
            wanted = 400 if query else 303 if address == "/" else 200  # the version before the first is not kept
            assert answer.status_code == wanted, (customer, address)
            text = plain(answer)
            assert not [word for word in foreign if word in text], (customer, address)
            assert box_of(customer, 2) not in text, address
            if "number" in each.guessed or "link" in each.guessed:
                assert box_of(customer) in text or secret_of(customer) in text or "conditions" in address, address


def test_what_is_not_a_customers_is_as_what_does_not_exist(world: World) -> None:
    """Every path, with names that are another customer's, that were the customer's, and that are nobody's."""
    for turn, (customer, other) in enumerate(PAIRS):
        browser, foreign, own = world.browsers[customer], foreign_to(customer), world.own(customer)
        theirs, nobodys = world.guessed(other), {**own, **NOBODYS}
        for each in (each for each in OPERATIONS if each.guessed):
            thought_of = set(each.guessed) <= theirs.keys()
            tries = [nobodys, theirs] if may_ask(each) else [theirs]
            if "number" in each.guessed and may_ask(each):
                tries.append({**own, "number": box_of(customer, 2)})  # what was taken back
            refused = 403 if "{link}" in each.path else 404
            told = []
            for values in tries:
                for unknown in [""] if thought_of else theirs.values():
                    address = each.address(values, unknown, turn)
                    answer = ask(browser, each, address)
                    assert answer.status_code == refused, (customer, address)
                    text = plain(answer)
                    assert not [word for word in foreign if word in text], (customer, address)
                    told.append((text, headers(answer)))
            assert all(one == told[0] for one in told), (customer, each.path)


def test_no_filter_and_no_field_gives_what_is_anothers(world: World) -> None:
    """Every parameter of a query and every field of a body, filled with what is another customer's."""
    for customer, other in PAIRS:
        browser, foreign, own = world.browsers[customer], foreign_to(customer), world.own(customer)
        texts = (other, box_of(other), f"B-{box_of(other)}", f"a-{other}")
        for each in (each for each in OPERATIONS if each.path != EVENTS):
            names = [given["name"] for given in each.parameters("query")]
            for text in texts[:1] if not may_ask(each) else texts:
                if not names and not each.body:
                    continue
                address = each.address(own, other)
                query, body = dict.fromkeys(names, text), dict.fromkeys(each.body, text)
                answer = ask(browser, each, address, query=query, body=body)
                assert may_ask(each) or answer.status_code == 404, (customer, each.path)
                told = plain(answer).replace(text, "")  # a form may say again what was filled in
                assert not [word for word in foreign if word in told], (customer, each.path)


def test_nobody_and_no_other_customers_token_opens_anything(world: World) -> None:
    """Without a session, and with one customer's token for another's share: never what the address has."""
    customer, other = CUSTOMERS[0], CUSTOMERS[1]
    own = world.own(customer)
    for each in OPERATIONS:
        address = each.address(own, customer)
        answer = ask(world.nobody, each, address)
        if each.schemes:
            assert answer.status_code in (303, 401, 403), each.path
            assert not [word for word in (secret_of(customer), box_of(customer)) if word in answer.text]
        if TOKEN in each.schemes:
            token = world.browsers[other].token
            for guess in (token[:-1], token[::-1], f"{token}x", "x", ""):
                answer = world.nobody.ask(each.method, address, {"Authorization": f"Bearer {guess}"})
                assert answer.status_code == 401, (each.path, guess)
                assert secret_of(customer) not in answer.text


def test_methods_that_no_address_has_change_and_tell_nothing(world: World) -> None:
    customer, other = CUSTOMERS[2], CUSTOMERS[3]
    browser, theirs = world.browsers[customer], world.guessed(other)
    has = {(each.method, each.path) for each in OPERATIONS}
    for each in OPERATIONS:
        address = each.address(theirs, box_of(other))
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            if (method, each.path) in has:
                continue
            answer = browser.ask(method, address)
            assert answer.status_code in (404, 405), (method, each.path)
            assert secret_of(other) not in answer.text


def test_a_customer_whose_table_is_no_more_and_the_other_kind_of_feed_see_nothing_of_others(world: World) -> None:
    for name in ("poor", "receiver"):
        foreign = [secret_of(each) for each in CUSTOMERS]
        for each in (each for each in OPERATIONS if may_ask(each) and each.method == "GET" and each.path != EVENTS):
            for address in each.addresses(world.own(CUSTOMERS[4]), CUSTOMERS[4]):
                if "{link}" in each.path:
                    continue  # whoever has a link that is good may open it
                text = plain(ask(world.browsers[name], each, address))
                assert not [word for word in foreign if word in text], (name, address)
