"""Customers look at their portals: each sees its own table and not a byte of others', whatever it asks for."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from playwright.async_api import Page, expect

from board.app import create_app
from board.own_feed import WHATS, open_own_feed
from board.security import COOKIE
from board.service import BoardService
from tests.integration.board.customers import (
    CUSTOMERS,
    MINUTE,
    T0,
    Browser,
    box_of,
    browsers,
    plain,
    rows_of,
    runner,
    secret_of,
    service,
)
from tests.support.browser import PHONE, Pages, check_accessibility, screenshot, sideways
from tests.support.customer_tables import FeedRows
from tests.support.serving import served

__all__ = ["browsers", "runner", "service"]

FORMS = ("csv", "parquet")


def addresses(number: str) -> list[str]:
    """Every address of the portal about a box."""
    return [
        *(f"/mine/{number}{part}" for part in ("", "/now", "/lists")),
        *(f"/mine/{number}/{what}.{form}" for what in WHATS for form in FORMS),
    ]


def general() -> list[str]:
    return ["/mine", "/mine/now", *(f"/mine/{what}.{form}" for what in ("alerts", "milestones") for form in FORMS)]


def test_no_trick_opens_another_table(browsers: dict[str, Browser]) -> None:
    customer, other = CUSTOMERS[3], CUSTOMERS[4]
    browser, box, foreign = browsers[customer], box_of(customer), box_of(other)
    texts = [
        "..", "../..", f"../{other}", f"../../{other}/feed", f"..\\{other}", f"customers/{other}", f"{other}/feed",
        f"{box}' or '1'='1", f"{box}'; drop table feed --", f'"{foreign}"', f"{foreign};", f"{box} or 1=1",
        f"{foreign}%", "%", "_" * 11, "*", "\x00", f"{foreign}\x00",
        "$(id)", "{{ 7*7 }}", "<script>", "A" * 5_000, "é" * 50, "0", "-1", "null", "None", other,
    ]  # fmt: skip
    for text in texts:
        for written in {quote(text, safe=""), quote(quote(text, safe=""), safe=""), text.replace("..", "%2e%2e")}:
            if any(ord(each) < 32 or each in "?#" for each in written):
                continue
            for address in (f"/mine/{written}", f"/mine/{written}/readings.csv", f"/mine/{box}/{written}.csv"):
                answer = browser.get(address)
                if answer.url.path == "/":  # this client, like browsers, resolves plain dots itself
                    assert (text, answer.headers["location"]) == ("..", "/mine")
                    continue
                assert answer.status_code == 404, address
                assert secret_of(other) not in answer.text, address
    for form in ("exe", "CSV", "csv.gz", "..", "csv%00"):
        assert browser.get(f"/mine/{box}/readings.{form}").status_code == 404
    query = f"customer={other}&number={foreign}&q={foreign}&table=customers/{other}&version=0"
    for address in [*general(), *addresses(box)]:
        assert secret_of(other) not in plain(browser.get(f"{address}?{query}")), address
    headers = {"X-Forwarded-User": other, "X-Customer": other, "Authorization": f"Basic {other}"}
    assert secret_of(other) not in browser.get("/mine", headers=headers).text


def test_a_number_is_found_as_people_write_it(browsers: dict[str, Browser]) -> None:
    box = box_of(CUSTOMERS[0])
    for written in (box.lower(), f"{box[:4]}%20{box[4:]}", f"{box[:10]}-{box[10:]}"):
        assert box in browsers[CUSTOMERS[0]].get(f"/mine/{written}").text


def test_only_customers_have_a_portal(service: BoardService, runner: asyncio.Runner) -> None:
    app = create_app(service)
    for name, status in (("(this machine)", 404), ("nobody", 303), (None, 303)):
        browser = Browser(service, runner, app, name)
        for address in [*general(), *addresses(box_of(CUSTOMERS[0]))]:
            answer = browser.get(address)
            assert answer.status_code == status
            assert secret_of(CUSTOMERS[0]) not in answer.text


@pytest.mark.parametrize("name", ["poor", "early"])
def test_a_customer_without_a_table_is_told_what_to_ask_for(browsers: dict[str, Browser], name: str) -> None:
    answer = browsers[name].get("/mine")
    assert answer.status_code == 200
    assert "table: true" in answer.text
    for address in [*general()[1:], *addresses(box_of(CUSTOMERS[0]))]:
        assert browsers[name].get(address).status_code == 404


def test_a_compaction_is_no_news(service: BoardService, browsers: dict[str, Browser]) -> None:
    customer = CUSTOMERS[17]
    again = rows_of(customer)
    for row in again.rows:
        row["feed_offset"] += 1_000
    again.write(service.paths, customer)  # the same records, given again
    table = DeltaTable(service.paths.customer(customer))
    added = table.history(1)[0]["timestamp"]
    table.optimize.compact()
    assert table.history(1)[0]["operation"] == "OPTIMIZE"
    feed = open_own_feed(service.paths, service.topology, customer)
    assert feed is not None
    assert feed.written is not None
    assert feed.written.timestamp() == added / 1000
    text = browsers[customer].get(f"/mine/{box_of(customer)}").text
    assert f'As of <time datetime="{feed.written:%Y-%m-%dT%H:%M:%SZ}"' in text
    cells = browsers[customer].get(f"/mine/{box_of(customer)}/readings.csv").text
    assert cells.count("\n") == 1 + 8  # each record once


def test_a_broken_table_names_no_files(service: BoardService, browsers: dict[str, Browser]) -> None:
    customer = CUSTOMERS[19]
    for file in Path(service.paths.customer(customer)).glob("*.parquet"):
        file.unlink()
    for address in [*general(), *addresses(box_of(customer))]:
        answer = browsers[customer].get(address)
        assert answer.status_code == 503, address
        assert "cannot be read now" in answer.text.lower()
        assert str(service.context.folder) not in answer.text
        assert "part-" not in answer.text


def test_the_files_have_the_rows_of_the_table(browsers: dict[str, Browser]) -> None:
    customer = CUSTOMERS[5]
    rows, box = rows_of(customer).rows, box_of(customer)
    kinds = {"readings": "reading", "alerts": "alert", "milestones": "milestone", "custody": "custody"}
    for what, kind in kinds.items():
        expected = [row for row in rows if row["equipment_reference"] == box and row["kind"] == kind]
        table = pq.read_table(io.BytesIO(browsers[customer].get(f"/mine/{box}/{what}.parquet").content))
        text = browsers[customer].get(f"/mine/{box}/{what}.csv")
        cells = list(csv.DictReader(io.StringIO(text.text, newline="")))
        assert text.headers["content-disposition"] == f'attachment; filename="{box}-{what}.csv"'
        for name in ("feed_offset", "log", "log_offset", "equipment_reference"):
            assert table[name].to_pylist() == [row[name] for row in expected]
            assert [each[name] for each in cells] == [str(row[name]) for row in expected]
    table = pq.read_table(io.BytesIO(browsers[customer].get(f"/mine/{box}/readings.parquet").content)).to_pylist()
    values = [
        json.loads(row["value"]) for row in rows if row["equipment_reference"] == box and row["kind"] == "reading"
    ]
    assert [row["supply_temperature"] for row in table] == [
        each["measurements"]["supplyTemperature"] for each in values
    ]
    assert [row["device_id"] for row in table] == [each["device"]["deviceId"] for each in values]
    assert [row["longitude"] for row in table] == [each["geoLocation"]["longitude"] for each in values]
    assert [row["device_date_time"] for row in table] == [T0 + n * 10 * MINUTE for n in range(8)]


SCRIPT = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def test_a_script_in_a_record_comes_out_as_text(service: BoardService, browsers: dict[str, Browser]) -> None:
    customer, rows = CUSTOMERS[18], FeedRows()
    box = "BIGU<b>1"
    hostile: dict[str, Any] = {"voyageReference": SCRIPT, "UNLocationCode": SCRIPT}
    for number in (box, box_of(customer, 5)):
        rows.reading(number, T0, 0, geoLocation={"latitude": 1.0, "longitude": 2.0})
        rows.milestone(number, T0, SCRIPT, **hostile, vessel=SCRIPT, equipmentEventTypeCode=SCRIPT)
        rows.alert(
            number,
            T0,
            9,
            kind=SCRIPT,
            evidence=[{"name": SCRIPT, "weight": 1.0, "detail": SCRIPT}],
            geoLocation={"latitude": 1.0, "longitude": 2.0},
        )
        rows.custody(number, T0, 10, toSite=SCRIPT, reason=SCRIPT)
    for offset, row in enumerate(rows.rows):
        row["feed_offset"] = 1_000 + offset
    rows.write(service.paths, customer)
    for address in ("/mine", f"/mine/{box_of(customer, 5)}"):
        answer = browsers[customer].get(address)
        assert answer.status_code == 200
        assert "alert(1)" in answer.text  # it is shown
        assert "<script>alert" not in answer.text
        assert "<img" not in answer.text
        assert "<b>1" not in answer.text
        assert "Alerts and positions" not in answer.text  # that is about logs, which this page does not read


@dataclass
class Served:
    """The same tables, looked at over HTTP."""

    board: BoardService
    address: str

    async def open(self, pages: Pages, customer: str, path: str, *, width: int = 1280, dark: bool = False) -> Page:
        page = await pages.open(f"{self.address}/sign-in", width=width, dark=dark)
        token = self.board.sessions.open(customer)[0]
        await page.context.add_cookies([{"name": COOKIE, "value": token, "url": self.address}])
        await page.goto(self.address + path)
        return page


@pytest.fixture(scope="module")
def portal(service: BoardService) -> Iterator[Served]:
    made = BoardService(service.context, "tokyo")  # answers that a board keeps belong to its event loop
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("board.pages.live._LOOK", 0.2)
        with served(create_app(made), lifespan=True) as address:
            yield Served(made, address)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("width", "dark"),
    [
        pytest.param(1280, False, id="desktop"),
        pytest.param(PHONE, True, id="phone-dark", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize(
    "shown",
    [
        ("portal", CUSTOMERS[0], "/mine"),
        ("portal-box", CUSTOMERS[0], f"/mine/{box_of(CUSTOMERS[0])}"),
        ("portal-hours", "receiver", f"/mine/{box_of(CUSTOMERS[0])}"),
        ("portal-without-table", "poor", "/mine"),
    ],
)
async def test_a_browser_draws_every_page(
    portal: Served, pages: Pages, shown: tuple[str, str, str], width: int, *, dark: bool
) -> None:
    name, customer, path = shown
    page = await portal.open(pages, customer, path, width=width, dark=dark)
    charts, maps = await page.locator("[data-chart]").all(), await page.locator("[data-map]").all()
    assert (len(charts), len(maps)) == {"portal": (0, 1), "portal-without-table": (0, 0)}.get(name, (1, 1))
    for each in maps:
        await expect(each).to_have_attribute("data-land", "drawn")
    for each in charts:
        await expect(each).to_have_attribute("data-drawn", "UTC")
    await check_accessibility(page)
    assert await sideways(page) == []
    await screenshot(page, f"{name}-{'phone-dark' if dark else 'desktop'}")


@pytest.mark.asyncio(loop_scope="session")
async def test_the_list_is_filtered_in_the_browser(portal: Served, pages: Pages) -> None:
    page = await portal.open(pages, CUSTOMERS[1], "/mine")
    shown = page.locator("#boxes tbody tr[data-tone]:visible")
    await expect(shown).to_have_count(2)
    await page.get_by_label("Filter by text").fill(box_of(CUSTOMERS[1], 1).lower())
    await expect(shown).to_have_count(1)
    await page.get_by_label("Filter by text").fill("")
    await page.get_by_label("Filter by state").select_option("good")
    await expect(shown).to_have_count(0)


@pytest.mark.asyncio(loop_scope="session")
async def test_an_open_list_and_an_open_page_show_new_records_by_themselves(portal: Served, pages: Pages) -> None:
    customer = CUSTOMERS[14]
    box = box_of(customer)
    listed = await portal.open(pages, customer, "/mine")
    page = await portal.open(pages, customer, f"/mine/{box}")
    for each in (listed, page):
        await expect(each.locator("#liveness")).to_have_text("live")
    rows = FeedRows()
    evidence = [{"name": "plug", "weight": 1.0, "detail": "pulled at 12:07"}]
    rows.alert(box, T0, 50, alertID=f"b-{box}", kind="POWER_LOST", evidence=evidence)
    rows.rows[0]["feed_offset"] = 2_000
    rows.write(portal.board.paths, customer)
    await expect(page.get_by_text("pulled at 12:07")).to_be_visible(timeout=15_000)
    row = listed.locator("#boxes tbody tr", has_text=box)
    await expect(row.get_by_text("power lost")).to_be_visible(timeout=15_000)
    await expect(page.locator("[data-chart]")).to_have_attribute("data-drawn", "UTC")


@pytest.mark.asyncio(loop_scope="session")
async def test_a_map_and_a_chart_appear_with_the_first_thing_that_they_can_draw(portal: Served, pages: Pages) -> None:
    """The page of a container of which nothing was measured has neither, until its first reading comes."""
    customer = CUSTOMERS[17]
    box, rows = box_of(customer, 5), FeedRows()
    rows.alert(box, T0, 60)
    rows.rows[0]["feed_offset"] = 4_000
    rows.write(portal.board.paths, customer)
    page = await portal.open(pages, customer, f"/mine/{box}")
    drawn, nothing = page.locator("[data-map], [data-chart]"), page.get_by_text("No measurements were given to you.")
    await expect(page.locator("#liveness")).to_have_text("live")
    await expect(nothing).to_be_visible()
    assert not any([await each.is_visible() for each in await drawn.all()])
    rows.reading(box, T0 + MINUTE, 0, geoLocation={"latitude": 35.0, "longitude": 139.0})
    del rows.rows[0]
    rows.rows[0]["feed_offset"] = 4_001
    rows.write(portal.board.paths, customer)
    await expect(page.locator("[data-chart]")).to_have_attribute("data-drawn", "UTC", timeout=15_000)
    await expect(page.locator("[data-map]")).to_have_attribute("data-land", "drawn")
    assert [await each.is_visible() for each in await drawn.all()] == [True, True]
    await expect(nothing).to_be_hidden()


@contextlib.asynccontextmanager
async def events_of(portal: Served, customer: str) -> AsyncIterator[AsyncIterator[str]]:
    """The lines of the events of a customer's open page, without those that only say that the stream lives."""
    cookies = {COOKIE: portal.board.sessions.open(customer)[0]}
    feed = open_own_feed(portal.board.paths, portal.board.topology, customer)
    assert feed is not None
    async with httpx.AsyncClient(base_url=portal.address, cookies=cookies, trust_env=False) as client:
        async with client.stream("GET", "/mine/live", params={"version": feed.version}) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.aiter_lines()
            assert await anext(lines) == ": welcome"
            yield (line async for line in lines if line and not line.startswith(":"))


@pytest.mark.asyncio(loop_scope="session")
async def test_a_portals_events_tell_of_new_records(portal: Served) -> None:
    customer, other = CUSTOMERS[15], CUSTOMERS[16]
    async with events_of(portal, customer) as own, events_of(portal, other) as others:
        for name, events in ((other, others), (customer, own)):
            rows = FeedRows()
            rows.reading(box_of(name), T0 + 80 * MINUTE, 8)
            rows.rows[0]["feed_offset"] = 3_000
            rows.write(portal.board.paths, name)
            assert [await anext(events), await anext(events)] == ["event: changed", 'data: {"what": "feed"}']
        async with events_of(portal, customer) as late:  # it shows the newest version, and hears of the next one
            rows.rows[0]["feed_offset"] += 1
            rows.write(portal.board.paths, customer)
            assert [await anext(late), await anext(late)] == ["event: changed", 'data: {"what": "feed"}']
