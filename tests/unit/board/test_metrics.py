"""What the board counts of its own work, as Prometheus gets it."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

import board.app
from board.app import create_app
from board.metrics import NOWHERE
from board.prometheus import board_metrics
from board.service import BoardService, Page
from board.viewer import LOCAL, Access
from tests.support.scraping import registry_of


async def _break(_: BoardService, __: Request) -> Response:
    raise ArithmeticError("a mistake of ours")


@pytest.fixture
def service(service: BoardService, monkeypatch: pytest.MonkeyPatch) -> BoardService:
    monkeypatch.setattr(board.app, "PAGES", (*board.app.PAGES, Page("/broken/{what}", _break, Access.ANYONE)))
    return service


@pytest.fixture
def registry(service: BoardService) -> CollectorRegistry:
    return registry_of(lambda: board_metrics([service.snapshot()]))


async def test_requests_are_counted_by_page_and_status(service: BoardService, registry: CollectorRegistry) -> None:
    transport = httpx.ASGITransport(create_app(service), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path in ("/sign-in", "/sign-in", "/ports/tokyo", "/no-such", "/no-more", "/broken/a", "/static/board.css"):
            await client.get(path)
        await client.get("/sign-in", headers={"Host": "attacker.example"})
    counted = {
        (sample.labels["page"], sample.labels["status"]): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "fairlead_board_requests_total" and sample.labels["site"] == "tokyo"
    }
    assert counted == {
        ("/sign-in", "200"): 2,
        ("/ports/{code}", "303"): 1,
        (NOWHERE, "404"): 2,
        ("/broken/{what}", "500"): 1,
        ("/static", "200"): 1,
        (NOWHERE, "421"): 1,
    }


def test_seconds_are_in_buckets(service: BoardService, registry: CollectorRegistry) -> None:
    for seconds in (0.01, 0.2, 0.3, 700.0):
        service.requests.count("/", 200, seconds)
    labels = {"site": "tokyo", "page": "/"}
    found = {
        bound: registry.get_sample_value("fairlead_board_request_seconds_bucket", labels | {"le": bound})
        for bound in ("0.05", "0.2", "1.0", "20.0", "+Inf")
    }
    assert found == {"0.05": 1, "0.2": 2, "1.0": 3, "20.0": 3, "+Inf": 4}
    assert registry.get_sample_value("fairlead_board_request_seconds_sum", labels) == pytest.approx(700.51)


def test_who_is_here_and_what_was_audited(service: BoardService, registry: CollectorRegistry) -> None:
    token, _ = service.sessions.open(LOCAL.name)
    service.sessions.open("ducks")
    service.audit.note("sign-in-refused", "mallory", "10.0.0.1")
    site = {"site": "tokyo"}
    with service.live.subscribe():
        assert registry.get_sample_value("fairlead_board_streams", site) == 1
    assert registry.get_sample_value("fairlead_board_streams", site) == 0
    assert registry.get_sample_value("fairlead_board_sessions", site) == 2
    service.sessions.close(token)
    assert registry.get_sample_value("fairlead_board_sessions", site) == 1
    assert registry.get_sample_value("fairlead_board_audited_total", site | {"event": "sign-in-refused"}) == 1
    assert registry.get_sample_value("fairlead_board_reads_logs", site) == 0  # nobody has started the site
    assert not [
        sample for metric in registry.collect() for sample in metric.samples if "mallory" in repr(sample.labels)
    ]
