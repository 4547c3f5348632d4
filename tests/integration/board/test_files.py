"""Pages that are one file, in a real browser that has no server to ask: what they draw, and what they do not do."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from board.pages.container import container_file
from board.pages.port import port_file
from shore.paths import TablePaths
from shore.report.container import container_report, open_container
from shore.report.port import port_report
from tests.support import port_story
from tests.support.browser import PHONE, Pages, check_accessibility, load_again, screenshot, sideways

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("story")
    port_story.write(folder)
    paths = TablePaths.of(folder)
    with open_container(paths, port_story.WARM) as found:
        box = container_file(found, container_report(found, port_story.WARM), ["a job has not run"])
    port = port_file(port_report(paths, "JPTYO"))
    made = {}
    for name, page in (("container", box), ("port", port)):
        made[name] = folder / f"{name}.html"
        made[name].write_text(page, encoding="utf-8")
    return made


async def opened(pages: Pages, file: Path) -> Page:
    page = await pages.open(file.as_uri())
    await drawn(page)
    return page


async def drawn(page: Page) -> None:
    for each in await page.locator("[data-map]").all():
        await expect(each).to_have_attribute("data-land", "drawn")
    for each in await page.locator("[data-chart]").all():
        await expect(each).to_have_attribute("data-drawn", "UTC")


@pytest.mark.long
@pytest.mark.parametrize("name", ["container", "port"])
async def test_a_file_is_usable_by_everybody_on_a_desk_and_on_a_phone(
    files: dict[str, Path], pages: Pages, name: str
) -> None:
    page = await pages.open(files[name].as_uri())
    for dark, width in ((False, 1280), (True, 1280), (False, PHONE)):
        await load_again(page, width=width, dark=dark)
        await drawn(page)
        await check_accessibility(page)
        assert await sideways(page) == []
        await screenshot(page, f"file-{name}" + ("-dark" if dark else "-phone" if width == PHONE else ""))
    assert await page.locator("a[href^='/'], form, .clock, .liveness").count() == 0


async def test_a_claim_draws_what_was_measured_and_where(files: dict[str, Path], pages: Pages) -> None:
    page = await opened(pages, files["container"])
    assert await page.locator(".chart-panel .title").first.inner_text() == "Temperature"
    await expect(page.locator(".map path.track")).not_to_have_count(0)
    await expect(page.get_by_text("Not certain: a job has not run.")).to_be_visible()
    mark = page.locator(".map .port").first
    await mark.click()
    await expect(page.locator(".leaflet-popup")).to_be_visible()
    assert await page.locator(".leaflet-popup a[href^='/']").count() == 0


async def test_a_file_finds_words_in_its_tables(files: dict[str, Path], pages: Pages) -> None:
    page = await opened(pages, files["port"])
    aboard = page.get_by_role("region", name="Aboard MV Duck Star")
    await page.get_by_label("Filter containers: Aboard MV Duck Star").fill(port_story.WARM)
    await expect(aboard.locator("tbody tr:visible")).to_have_count(1)
