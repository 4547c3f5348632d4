"""Every page of the board in a real browser: pictures of it, what keeps people out, and news without reloading."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from board.pages.voyage import voyage_file
from board.service import BoardService
from tests.integration.board.world import IMO, PORT, START, World, alert, port_call
from tests.support.browser import PHONE, Pages, check_accessibility, load_again, screenshot, sideways
from tests.support.simulators.reports import report

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

STAFF = {
    "fleet": "/",
    "voyages": "/voyages",
    "voyage": f"/voyages/{IMO}",
    "ports": "/ports",
    "port": "/ports/JPTYO",
    "containers": "/containers",
    "container": "/containers/BIGU1000010",
    "access": "/access?topic=BIGU1000010",
}
QUICK = ("fleet", "port", "container")
"""The pages with most on them; the others are tried by the long tests."""
RAISED = alert("BIGU1000010", raised_at=PORT, kind="POWER_LOST", alert_id="POWER_LOST-BIGU1000010-1-0")


async def signed_in(world: World, pages: Pages, path: str) -> Page:
    """Open a page as who has started the board, without a look at the page to which its link leads."""
    page = await pages.open("about:blank")
    welcome = await page.context.request.get(world.local_link(), max_redirects=0)
    assert welcome.status == 303
    await page.goto(f"{world.address}{path}")
    return page


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in STAFF]
)
async def test_a_page_is_usable_by_everybody_on_a_desk_and_on_a_phone(world: World, pages: Pages, name: str) -> None:
    world.raise_alert(RAISED)
    page = await signed_in(world, pages, STAFF[name])
    await check_accessibility(page)
    await screenshot(page, name)
    await load_again(page, dark=True)
    await check_accessibility(page)
    await screenshot(page, f"{name}-dark")
    await load_again(page, width=PHONE)
    assert await sideways(page) == []
    await screenshot(page, f"{name}-phone")


async def test_people_sign_in_and_out(world: World, pages: Pages) -> None:
    # 401: a part of the page that was asked for when its reader signed out.
    page = await pages.open(f"{world.address}/ports/JPTYO", allowed="401|403")
    await check_accessibility(page)
    await screenshot(page, "sign-in")
    await page.get_by_label("Name").fill("operator")
    await page.get_by_label("Password").fill("wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert").filter(has_text="Name or password is wrong")).to_be_visible()
    await page.get_by_label("Password").fill(world.password("operator"))
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Port of Tokyo")).to_be_visible()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await page.goto(f"{world.address}/ports/JPTYO")
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


async def test_an_overboard_alert_appears_on_an_open_port_page_and_goes_when_it_is_cleared(
    world: World, pages: Pages
) -> None:
    page = await signed_in(world, pages, "/ports/JPTYO")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    raised = alert("BIGU5000001", raised_at=PORT, alert_id="OVERBOARD-BIGU5000001-1-0")
    await asyncio.to_thread(world.raise_alert, raised)
    row = page.get_by_role("row").filter(has_text="BIGU5000001")
    await expect(row).to_contain_text("overboard")
    await expect(row).to_contain_text("Critical")
    await screenshot(page, "port-overboard")
    cleared = alert("BIGU5000001", raised_at=PORT, alert_id=raised.alert_id, state="CLEARED", revision=1)
    await asyncio.to_thread(world.raise_alert, cleared)
    await expect(row).to_have_count(0)


async def test_a_departure_and_loaded_boxes_appear_on_an_open_voyage(world: World, pages: Pages) -> None:
    page = await signed_in(world, pages, f"/voyages/{IMO}")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    calls = page.get_by_role("region", name="Port calls")
    row = calls.get_by_role("row").filter(has=page.get_by_role("rowheader", name="Singapore"))
    await expect(row).to_contain_text("planned")
    when = START + dt.timedelta(days=4.5)
    for code, hours, more in (("ARRI", 0, {}), ("LOAD", 2, {"equipment_reference": "BIGU5000001"}), ("DEPA", 9, {})):
        event = port_call(code, when + dt.timedelta(hours=hours), "SGSIN", "002", **more)
        await asyncio.to_thread(world.publish, event)
    await expect(row).to_contain_text("left")
    await expect(row.get_by_role("cell").last).to_have_text("1")


@pytest.mark.long
async def test_a_voyage_in_one_file_draws_without_a_server(world: World, pages: Pages, tmp_path: Path) -> None:
    """With the policy that the file brings, in a browser that would report what it forbids."""
    world.raise_alert(RAISED)
    board = BoardService(world.context, PORT)
    made = report(topology="board", scenario="harbour")
    file = tmp_path / "report.html"
    file.write_text(await voyage_file(board, made), encoding="utf-8")
    for dark, width in ((False, 1280), (True, PHONE)):
        page = await pages.open(file.as_uri(), width=width, dark=dark)
        await expect(page.locator("[data-map]")).to_have_attribute("data-land", "drawn")
        await expect(page.locator(".map .ship")).to_have_count(1)
        await expect(page.locator("time").first).to_be_visible()
        await check_accessibility(page)
        assert await sideways(page) == []
        await screenshot(page, "file-voyage-phone" if dark else "file-voyage")
    assert await page.get_by_role("link").filter(has_text="MV Duck Star").count() == 0  # there is no other page
    row = page.get_by_role("row").filter(has_text="BIGU1000010").filter(has_text="power lost")
    await expect(row).to_be_visible()
    assert await row.get_by_role("button").count() == 0
