"""Twenty customers with tables of their own, for the portal and shares, in an application without a network."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from starlette.applications import Starlette

from board.app import create_app
from board.security import COOKIE
from board.service import BoardService
from board.sharing.protocol import PREFIX
from fairlead.names import container_check_digit
from tests.support.customer_tables import FeedRows
from tests.support.openapi import check_answer
from tests.support.waits import PATIENCE
from topologies.context import open_topology
from topologies.model import Customer

T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)
CUSTOMERS = [f"customer{n:02}" for n in range(20)]
FORMS = ("csv", "parquet")


def box_of(customer: str, n: int = 0) -> str:
    ten = f"BIGU{100_000 + 10 * CUSTOMERS.index(customer) + n}"
    return ten + container_check_digit(ten)


def secret_of(customer: str) -> str:
    """A text that stands in every record of a customer, and in no other's."""
    return f"secret-of-{customer}"


def rows_of(customer: str) -> FeedRows:
    """Two boxes, with each kind of record, and a third about which everything was taken back."""
    rows, secret = FeedRows(), secret_of(customer)
    for n in range(3):
        box, device = box_of(customer, n), {"deviceId": f"{secret}-{n}", "bootId": 1}
        for sequence in range(8):
            rows.reading(
                box,
                T0 + sequence * 10 * MINUTE,
                sequence,
                device={**device, "sequence": sequence},
                geoLocation={"latitude": 35.0, "longitude": 139.0 + sequence / 10},
            )
        rows.alert(box, T0, 10 + n, evidence=[{"name": secret, "weight": 1.0}])
        rows.digest(box, T0 + 90 * MINUTE)
        rows.milestone(box, T0, "e1", voyageReference=secret)
        rows.custody(box, T0, 20 + n, reason=secret)
    gone = box_of(customer, 2)
    for row in list(rows.rows):
        if row["equipment_reference"] == gone:
            rows.take_back(row["log"], row["log_offset"])
    return rows


def hourly_rows() -> FeedRows:
    """A box of a coarse feed, with a gap and a time out of band."""
    rows = FeedRows()
    for hour in (0, 1, 2, 6, 7):
        rows.hour(box_of(CUSTOMERS[0]), T0 + hour * 60 * MINUTE, minutesOutOfBand=5.0 if hour == 1 else 0.0)
    rows.milestone(box_of(CUSTOMERS[0]), T0, "e1")
    return rows


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> BoardService:
    folder = tmp_path_factory.mktemp("board")
    context = open_topology("minimal")
    customers = {name: Customer(feed_at="tokyo", table=True) for name in CUSTOMERS}
    customers |= {"poor": Customer(feed_at="tokyo"), "early": Customer(feed_at="tokyo", table=True)}
    customers |= {"receiver": Customer(feed_at="tokyo", feed="coarse", table=True)}
    topology = context.topology.model_copy(update={"customers": customers})
    found = BoardService(dataclasses.replace(context, topology=topology, folder=folder), "tokyo")
    for name in CUSTOMERS:
        rows_of(name).write(found.paths, name)
    hourly_rows().write(found.paths, "receiver")
    rows_of(CUSTOMERS[0]).write(found.paths, "poor")  # of the time when the topology gave it a table
    return found


class Browser:
    """A browser in which a customer or user has signed in; None: nobody. It has no network to the application.

    Args:
        token: Of the customer's share.
    """

    def __init__(
        self, service: BoardService, runner: asyncio.Runner, app: Starlette, name: str | None, token: str = ""
    ) -> None:
        cookies = {} if name is None else {COOKIE: service.sessions.open(name)[0]}
        hooks = {"response": [_check]}
        transport = httpx.ASGITransport(app)
        self._client = httpx.AsyncClient(
            transport=transport, base_url="http://localhost", cookies=cookies, event_hooks=hooks, trust_env=False
        )
        self._run = runner.run
        self.token = token

    def get(self, address: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.ask("GET", address, headers)

    def ask(self, method: str, address: str, headers: Mapping[str, str] | None = None, **body: Any) -> httpx.Response:
        """Ask for anything; the answer must come within ``PATIENCE``, so that no event stream is waited for."""
        sent = {**(headers or {})}
        if self.token and address.startswith(PREFIX):
            sent.setdefault("Authorization", f"Bearer {self.token}")
        asked = self._client.request(method, address, headers=sent, **body)
        return self._run(asyncio.wait_for(asked, PATIENCE))


async def _check(answer: httpx.Response) -> None:
    await answer.aread()
    check_answer(answer)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as found:
        yield found


@pytest.fixture(scope="module")
def browsers(service: BoardService, runner: asyncio.Runner) -> dict[str, Browser]:
    app = create_app(service)
    return {name: Browser(service, runner, app, name) for name in (*CUSTOMERS, "poor", "early")}


def plain(answer: httpx.Response) -> str:
    """The text of an answer without the time when it was written and its form's token, which is another one each time;
    of a Parquet file, that of all its values."""
    if answer.content[:4] == b"PAR1":
        return str(pq.read_table(io.BytesIO(answer.content)).to_pylist())
    return re.sub(r'<p>Written .*?</p>|name="csrf" value="[^"]*"', "", answer.text)


def headers(answer: httpx.Response) -> dict[str, str]:
    """The headers of an answer, but for the length of its compressed text, in which the token is."""
    return {name: value for name, value in answer.headers.items() if name != "content-length"}
