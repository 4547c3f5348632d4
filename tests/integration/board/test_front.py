"""The front end in a real browser: maps, charts, live rows, the clock, filters, and what happens without a server."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from playwright.async_api import Page, Route, expect

from tests.integration.board.example import ALERTS, LINKS, PORTS, SHIPS, Board
from tests.support.browser import PHONE, Pages, check_accessibility, screenshot, sideways
from tests.support.serving import served
from tests.support.waits import until

pytestmark = [pytest.mark.long, pytest.mark.asyncio(loop_scope="session")]

EVERY_PAGE = pytest.mark.parametrize("path", ["/?doubts=1", "/ports/tokyo", "/mine", "/sign-in"])
ROW = (
    '<tr id="alert-new" data-tone="bad" data-announce="BIGU 100099 7 is unplugged"><th scope="row">BIGU 100099 7</th>'
    '<td>Unplugged</td><td><time datetime="2026-03-01T15:30:00Z">?</time></td></tr>'
)
LOST = r"ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE"


@dataclass
class Example:
    board: Board
    address: str


@pytest.fixture
def example() -> Iterator[Example]:
    board = Board()
    with served(board.application()) as address:
        yield Example(board, address)


async def listening(page: Page) -> None:
    """Wait until a page listens to events."""
    await expect(page.locator("#liveness")).to_have_attribute("data-state", "live")


async def heard(example: Example, page: Page) -> None:
    """Wait until the one page that listens has read all that its stream sent: its bytes come after its headers."""
    await asyncio.to_thread(until, lambda: example.board.listening == 1, "the stream to begin")
    example.board.send("fragment", {"target": "alert-rows", "id": "alert-new", "html": ROW})
    await expect(page.locator("#alert-new")).to_be_visible()
    example.board.send("fragment", {"target": "alert-rows", "id": "alert-new", "html": None})
    await expect(page.locator("#alert-new")).to_have_count(0)


async def drawn(page: Page) -> None:
    """Wait until a page's maps and charts are drawn."""
    for each in await page.locator("[data-map]").all():
        await expect(each).to_have_attribute("data-land", "drawn")
    for each in await page.locator("[data-chart]").all():
        await expect(each).to_have_attribute("data-drawn", "UTC")


# --- the look ---


@EVERY_PAGE
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_nothing_hinders_people_with_a_disability(
    example: Example, pages: Pages, path: str, *, dark: bool
) -> None:
    page = await pages.open(example.address + path, dark=dark)
    await drawn(page)
    await check_accessibility(page)
    name = {"/?doubts=1": "fleet", "/ports/tokyo": "port", "/mine": "container", "/sign-in": "sign-in"}[path]
    await screenshot(page, f"example-{name}-{'dark' if dark else 'light'}")


@EVERY_PAGE
async def test_a_phone_shows_a_page_without_scrolling_sideways(example: Example, pages: Pages, path: str) -> None:
    page = await pages.open(example.address + path, width=PHONE, height=812)
    await drawn(page)
    assert await sideways(page) == []
    name = {"/?doubts=1": "fleet", "/ports/tokyo": "port", "/mine": "container", "/sign-in": "sign-in"}[path]
    await screenshot(page, f"example-{name}-phone")


async def test_the_checks_of_these_tests_find_what_they_look_for(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address + "/sign-in", width=PHONE)
    add = "(html) => document.querySelector('main').insertAdjacentHTML('beforeend', html)"
    await page.evaluate(add, "<p class=wide-one><input></p>")
    with pytest.raises(AssertionError, match="label"):
        await check_accessibility(page)
    await page.evaluate("document.querySelector('.wide-one').style.width = '900px'")
    assert "p.wide-one" in await sideways(page)
    async with page.expect_console_message(lambda message: message.text.startswith("content security policy: ")):
        await page.evaluate(add, "<p style='color:red'>not allowed</p>")
    assert any("style-src-attr" in each for each in pages.errors)
    pages.errors.clear()


# --- maps ---


async def test_a_map_draws_land_and_moves_a_ship(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address)
    await drawn(page)
    await listening(page)
    assert await page.locator(".map path.land").count() >= 1
    assert await page.locator(".map path.link").count() == 4
    ship = page.locator(".map .ship[aria-label='Duck Star']")
    before = await ship.bounding_box()
    position = {"latitude": 4.0, "longitude": 110.0, "course": 90, "speed": 12.5, "seen": "2026-03-01T12:04:00Z"}
    example.board.send("position", {"id": SHIPS[0]["id"], **position})
    await page.wait_for_function("(id) => window.fairleadMap('fleet-map').ship(id).latitude === 4", arg=SHIPS[0]["id"])
    after = await ship.bounding_box()
    assert before is not None and after is not None
    assert after["x"] < before["x"] - 20 and after["y"] > before["y"] + 20  # to the south-west
    assert await ship.locator("path").get_attribute("transform") == "rotate(90 12 12)"
    await ship.click()
    popup = page.locator(".leaflet-popup")
    await expect(popup.locator("a[href='/']")).to_have_text("Duck Star")
    await expect(popup).to_contain_text("12.5 kn, course 90°")
    await expect(popup).to_contain_text("seen 2026-03-01 12:04 UTC")


async def test_both_sides_of_the_date_line_stay_together(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address)
    await drawn(page)
    marks = [page.locator(f".map [aria-label='{name}']") for name in ("Tokyo", "Big Blue", "Honolulu")]
    found = [box["x"] for mark in marks if (box := await mark.bounding_box()) is not None]
    assert len(found) == 3 and found == sorted(found)  # from west to east, across 180°
    for link in await page.locator(".map path.link").all():
        box = await link.bounding_box()
        assert box is not None and box["width"] < 500  # none goes around the world
    # A ship that crosses the line goes on; it does not jump to the other side of the world.
    for longitude, drawn_at in ((179.5, 179.5), (-178.0, 182.0)):
        where = {"latitude": 16, "longitude": longitude}
        await page.evaluate("(where) => window.fairleadMap('fleet-map').moveShip(9395044, where)", where)
        assert await page.evaluate("window.fairleadMap('fleet-map').ship(9395044).longitude") == drawn_at


async def test_names_on_a_map_do_not_cover_each_other(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address, width=PHONE)
    await drawn(page)
    names = page.locator(".map .leaflet-tooltip.name:visible")
    texts = await names.all_inner_texts()
    assert {"Tokyo", "Singapore", "Sydney", "Honolulu"} <= set(texts)
    boxes = [box for each in await names.all() if (box := await each.bounding_box()) is not None]
    for one, other in itertools.combinations(boxes, 2):
        apart = abs(one["x"] + one["width"] / 2 - other["x"] - other["width"] / 2) * 2 >= one["width"] + other["width"]
        above = (
            abs(one["y"] + one["height"] / 2 - other["y"] - other["height"] / 2) * 2 >= one["height"] + other["height"]
        )
        assert apart or above, (texts, one, other)


async def test_names_on_a_map_stay_text(example: Example, pages: Pages) -> None:
    """Names of ports and ships, kinds of alerts and causes of links may have any characters."""
    page = await pages.open(example.address)
    await drawn(page)
    name = "R&amp;D <b>Tom</b> <img src=x>"
    text = json.dumps({"ports": [{**PORTS[0], "name": name}], "ships": [], "links": [{**LINKS[1], "title": name}]})
    await page.evaluate(
        "(text) => { document.getElementById('fleet-map').textContent = text;"
        " document.dispatchEvent(new CustomEvent('fairlead:content', {detail: document.body})); }",
        text,
    )
    told = page.locator(".map .leaflet-tooltip")
    await expect(told).to_have_text([name])
    await page.evaluate("window.fairleadMap('fleet-map').content.eachLayer((each) => each.openTooltip())")
    await expect(told).to_have_text([name, name])


async def test_a_map_whose_content_changes_stays_where_the_reader_moved_it(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address)
    await drawn(page)
    await page.locator(".map").scroll_into_view_if_needed()
    await page.locator(".leaflet-control-zoom-in").click()
    zoomed = "() => window.fairleadMap('fleet-map').map.getZoom()"
    first = await page.evaluate(zoomed)
    await page.evaluate("window.fairleadMap('fleet-map').ships.get('9395044').marker.openPopup()")
    await page.evaluate("window.fairleadMap('fleet-map').ships.get('9395044').marker.getElement().focus()")
    changed = {"ports": [], "ships": [{**SHIPS[1], "name": "Big Bluer"}]}
    await page.evaluate(
        "(text) => { document.getElementById('fleet-map').textContent = text;"
        " document.dispatchEvent(new CustomEvent('fairlead:content', {detail: document.body})); }",
        json.dumps(changed),
    )
    await expect(page.locator(".map .ship")).to_have_count(1)
    await expect(page.locator(".map .ship")).to_have_attribute("aria-label", "Big Bluer")
    assert await page.evaluate(zoomed) >= first
    await expect(page.locator(".leaflet-popup")).to_have_count(1)
    await expect(page.locator(".leaflet-popup .title")).to_have_text("Big Bluer")
    await expect(page.locator(".map .ship")).to_be_focused()


# --- charts ---


async def test_a_chart_draws_its_panels_with_bands_and_spans(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address + "/mine")
    await drawn(page)
    panels = page.locator(".chart-panel")
    assert await panels.locator(".title").all_inner_texts() == ["Temperature", "Power", "Humidity"]
    assert await panels.locator(".key.band").count() == 1
    legend = await page.locator(".chart-legend li").all_inner_texts()
    assert [each.split("\n")[0] for each in legend] == ["Out of its band", "No readings", "Defrost", "Unplugged"]
    assert "no signal at sea, back-filled later" in legend[1]
    assert "supply \u221218.35 to \u221212" in (
        await panels.first.locator(".picture").get_attribute("aria-label") or ""
    )
    shades = await page.evaluate(PIXELS)
    assert shades["band"] != shades["outside"], "the band is shaded"
    assert shades["excursion"] != shades["band"], "the excursion is shaded"
    # Where there are no readings there is no line: in the power panel all is background or hatch.
    assert shades["lines_in_gap"] == 0
    assert shades["lines_before_gap"] > 0


PIXELS = """() => {
  const [temperature, power] = window.fairleadChart("readings").plots;
  const { times } = window.fairleadChart("readings").data;
  const colour = (plot, time, value) => {
    const x = Math.round(plot.valToPos(time, "x", true));
    return String(plot.ctx.getImageData(x, Math.round(plot.valToPos(value, "y", true)), 1, 1).data);
  };
  const lines = (from, to) => {
    const left = Math.round(power.valToPos(times[from], "x", true)) + 2;
    const width = Math.round(power.valToPos(times[to], "x", true)) - left - 2;
    const { data } = power.ctx.getImageData(left, power.bbox.top, width, power.bbox.height);
    let count = 0; // of pixels in the colour of the first line, #0a5aa8
    for (let at = 0; at < data.length; at += 4) {
      const off = Math.abs(data[at] - 10) + Math.abs(data[at + 1] - 90) + Math.abs(data[at + 2] - 168);
      if (off < 30 && data[at + 3] > 200) count += 1;
    }
    return count;
  };
  return {
    band: colour(temperature, times[20], -19.2),
    outside: colour(temperature, times[20], -14.5),
    excursion: colour(temperature, times[98], -19.2),
    lines_in_gap: lines(150, 178),
    lines_before_gap: lines(110, 140),
  };
}"""


async def test_the_panels_of_a_chart_share_their_cursor(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address + "/mine")
    await drawn(page)
    over = page.locator(".chart-panel").nth(1).locator(".u-over")
    box = await over.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] * 0.33, box["y"] + box["height"] / 2)
    outputs = page.locator(".panel-head output")
    for each in await outputs.all():
        await expect(each).not_to_be_empty()
    await expect(page.locator(".chart-now")).to_contain_text("warmer than its band for 3 h 45 min")
    await expect(page.locator(".chart-now")).to_contain_text("2026-02-27")


async def test_a_chart_follows_the_dark(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address + "/mine")
    await drawn(page)
    stroke = "() => window.fairleadChart('readings').plots[0].series.at(-1).stroke()"
    light = await page.evaluate(stroke)
    await page.emulate_media(color_scheme="dark")
    await page.wait_for_function(f"(light) => ({stroke})() !== light", arg=light)


async def test_nothing_to_draw_is_no_error(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address + "/mine")
    await drawn(page)
    await page.evaluate(
        "() => { document.getElementById('track').textContent = '{}';"
        " document.getElementById('readings').textContent = '{\"times\": []}';"
        " document.dispatchEvent(new CustomEvent('fairlead:content', {detail: document.body})); }"
    )
    await expect(page.locator(".chart")).to_have_text("No readings in this time.")
    await expect(page.locator(".map .ship")).to_have_count(0)
    await page.locator(".clock").get_by_role("button", name="Singapore").click()
    await expect(page.locator(".chart")).to_have_text("No readings in this time.")


# --- events ---


async def test_fragments_insert_replace_and_remove_rows(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address)
    await listening(page)
    send = example.board.send
    send("fragment", {"target": "alert-rows", "id": "alert-new", "html": ROW})
    rows = page.locator("#alert-rows > tr:not(.empty)")
    await expect(rows).to_have_count(len(ALERTS) + 1)
    await expect(rows.first).to_contain_text("BIGU 100099 7")
    await expect(rows.first).to_have_class("new")
    await expect(rows.first.locator("time")).to_have_text("2026-03-01 15:30")
    await expect(page.locator("#announcer")).to_have_text("BIGU 100099 7 is unplugged")
    await expect(page.locator("output[data-count=alerts]")).to_have_text(str(len(ALERTS) + 1))

    changed = '<tr id="alert-2"><th scope="row">changed</th></tr>'
    send("fragment", {"target": "alert-rows", "id": "alert-2", "html": changed})
    await expect(page.locator("#alert-2")).to_have_text("changed")
    await expect(rows).to_have_count(len(ALERTS) + 1)

    send("fragment", {"target": "nowhere", "id": "elsewhere", "html": "<p id=elsewhere>of another page</p>"})
    send("fragment", {"target": "alert-rows", "id": "alert-new", "html": None})
    await expect(page.locator("#alert-new")).to_have_count(0)
    await expect(page.locator("#elsewhere")).to_have_count(0)
    await expect(page.locator("#announcer p")).to_have_count(1)  # what was replaced is no news


async def test_a_new_row_obeys_the_filter(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address)
    await listening(page)
    await page.select_option("[data-filter-by=alerts]", "warn")
    visible = page.locator("#alert-rows > tr:visible")
    await expect(visible).to_have_count(2)
    example.board.send("fragment", {"target": "alert-rows", "id": "alert-new", "html": ROW})
    await expect(page.locator("#alert-new")).to_be_hidden()
    await expect(page.locator("output[data-count=alerts]")).to_have_text(f"2 of {len(ALERTS) + 1}")
    await page.fill("[data-filter=alerts]", "nothing like it")
    await expect(visible).to_have_count(1)
    await expect(visible).to_have_text("No alert fits the filter.")
    await page.fill("[data-filter=alerts]", "TOKYO point")
    await expect(visible).to_have_count(1)
    await expect(visible).to_contain_text("MSKU 907032 3")


async def test_an_event_that_nobody_can_read_does_not_end_the_others(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address, allowed="event fragment")
    await listening(page)
    example.board.send("fragment", {"target": "alert-rows", "id": "alert-1", "html": 7})
    example.board.send("unheard-of", {"what": 1})
    example.board.send("fragment", {"target": "alert-rows", "id": "alert-new", "html": ROW})
    await expect(page.locator("#alert-new")).to_be_visible()


async def test_a_refresh_keeps_filter_focus_and_scroll(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address, height=500)
    await listening(page)
    await page.fill("[data-filter=alerts]", "big")
    await page.locator("[name=acknowledge-2]").focus()
    await page.evaluate("window.scrollTo(0, 300)")
    example.board.alerts.pop(0)
    example.board.send("changed", {"what": "tables"})
    await expect(page.locator("#alert-rows > tr:not(.empty)")).to_have_count(len(ALERTS) - 1)
    shown = await page.locator("#alert-rows > tr:visible").all_inner_texts()
    assert len(shown) == 3 and all("BIGU" in each for each in shown)
    assert await page.evaluate("document.activeElement.name") == "acknowledge-2"
    assert await page.evaluate("window.scrollY") == 300


async def test_alerts_between_a_pages_making_and_its_stream_are_on_the_page(example: Example, pages: Pages) -> None:
    page = await pages.open("about:blank")

    async def end_an_alert(route: Route) -> None:
        example.board.alerts.pop()
        await route.continue_()

    await page.route("**/live", end_an_alert)
    await page.goto(example.address)
    await listening(page)
    await expect(page.locator("#open-alerts")).to_have_text(f"{len(ALERTS) - 1}")
    await expect(page.locator("#alert-rows > tr:not(.empty)")).to_have_count(len(ALERTS))  # a part about other things


async def test_an_older_answer_does_not_undo_what_the_stream_has_told_since(example: Example, pages: Pages) -> None:
    """Rows are fetched again while fragments of them arrive: the answer was made before, and the fragments stay."""
    page = await pages.open(example.address)
    await listening(page)
    rows = page.locator("#alert-rows > tr:not(.empty)")
    answered = asyncio.Event()

    async def answer_late(route: Route) -> None:
        made = await route.fetch()
        send = example.board.send
        send("fragment", {"target": "alert-rows", "id": "alert-new", "html": ROW})
        send("fragment", {"target": "alert-rows", "id": "alert-2", "html": '<tr id="alert-2"><td>seen to</td></tr>'})
        send("fragment", {"target": "alert-rows", "id": "alert-1", "html": None})
        await expect(page.locator("#alert-1")).to_have_count(0)
        await page.locator("#alert-3").evaluate("row => row.dataset.old = 'yes'")
        await route.fulfill(response=made)
        answered.set()

    await page.route("**/parts/alerts", answer_late)
    example.board.send("changed", {"what": "tables"})
    await asyncio.wait_for(answered.wait(), 30)
    await expect(page.locator("#alert-3[data-old]")).to_have_count(0)
    await expect(page.locator("#alert-2")).to_have_text("seen to")
    await expect(page.locator("#alert-new")).to_be_visible()
    await expect(page.locator("#alert-1")).to_have_count(0)
    await expect(rows).to_have_count(len(ALERTS))
    await expect(page.locator("#announcer p")).to_have_count(1)  # said once


async def test_many_changes_are_fetched_at_most_every_two_seconds(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address)
    await listening(page)
    await page.evaluate(
        "() => { window.asked = []; const real = window.fetch;"
        "window.fetch = (...all) => {"
        " if (all[0].startsWith('/parts/')) window.asked.push(performance.now());"
        " return real(...all); }; }"
    )
    for _ in range(40):
        example.board.send("changed", {"what": "tables"})
    example.board.send("changed", {"what": "something else"})
    await page.wait_for_function("() => window.asked.length >= 2 || performance.now() - window.asked[0] > 2500")
    before: int = await page.evaluate("window.asked.length")
    example.board.send("changed", {"what": "status"})
    await page.wait_for_function("(before) => window.asked.length > before", arg=before)
    asked: list[float] = await page.evaluate("window.asked")
    assert all(later - earlier >= 1990 for earlier, later in itertools.pairwise(asked)), asked
    assert len(asked) <= 3


# --- the clock ---


async def test_times_switch_to_the_ports_time_and_stay(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address + "/ports/tokyo")
    await listening(page)
    first = page.locator("#alert-1 time")
    await expect(first).to_have_text("2026-03-01 12:00")
    await page.locator(".clock").get_by_role("button", name="Tokyo").click()
    await expect(first).to_have_text("2026-03-01 21:00")
    await expect(page.locator("footer time")).to_have_text("2026-03-01 21:00:05")
    await expect(page.locator("footer .zone")).to_have_text("Tokyo")
    example.board.send("fragment", {"target": "alert-rows", "id": "alert-new", "html": ROW})
    await expect(page.locator("#alert-new time")).to_have_text("2026-03-02 00:30")
    await page.reload()
    await expect(first).to_have_text("2026-03-01 21:00")
    await expect(page.locator(".clock").get_by_role("button", name="Tokyo")).to_have_attribute("aria-pressed", "true")
    await page.goto(example.address)  # names no time zone
    await expect(first).to_have_text("2026-03-01 12:00")


async def test_a_chart_follows_the_clock(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address + "/mine")
    await drawn(page)
    await page.locator(".clock").get_by_role("button", name="Singapore").click()
    await expect(page.locator(".chart")).to_have_attribute("data-drawn", "Asia/Singapore")
    await expect(page.locator(".chart-now")).to_have_text("Times in Singapore")


# --- without a server ---


@pytest.fixture
def server() -> Iterator[tuple[Board, Callable[[int], str], Callable[[], None]]]:
    """A board whose server starts at a port, and stops, as often as the test likes."""
    board, running = Board(), ExitStack()

    def start(port: int) -> str:
        return running.enter_context(served(board.application(), port))

    with running:
        yield board, start, running.close


async def test_a_lost_connection_shows_until_the_server_is_back(
    server: tuple[Board, Callable[[int], str], Callable[[], None]], pages: Pages
) -> None:
    board, start, stop = server
    address = start(0)
    page = await pages.open(address, allowed=LOST)
    await listening(page)
    banner = page.locator("#connection")
    await expect(banner).to_be_hidden()
    stop()
    await expect(banner).to_be_visible()
    text = await banner.inner_text()
    assert text.startswith("No connection to the board since ") and text.endswith(" UTC. What you see may be old.")
    await check_accessibility(page)
    board.alerts.pop()
    start(int(address.rpartition(":")[2]))
    await expect(banner).to_be_hidden()
    await listening(page)
    await expect(page.locator("#alert-rows > tr:not(.empty)")).to_have_count(len(ALERTS) - 1)


async def test_silence_counts_as_a_lost_connection(example: Example, pages: Pages) -> None:
    example.board.silent = True
    page = await pages.open("about:blank", allowed="503")
    await page.clock.install(time=0)
    await page.clock.pause_at(1)
    await page.goto(example.address)
    await listening(page)
    await heard(example, page)
    example.board.refusing = True
    await page.clock.run_for(14_000)
    await expect(page.locator("#connection")).to_be_hidden()
    await page.clock.run_for(2_500)
    await expect(page.locator("#connection")).to_contain_text("No connection to the board since")


async def test_a_page_that_nobody_sees_lets_its_stream_go(example: Example, pages: Pages) -> None:
    """A browser has six connections to a server, and people have more tabs."""
    page = await pages.open("about:blank")
    await page.clock.install(time=0)
    await page.clock.pause_at(1)
    await page.goto(example.address)
    await listening(page)
    hide = "(hidden) => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
    hide += " document.dispatchEvent(new Event('visibilitychange')); }"
    await page.evaluate(hide, True)
    for _ in range(3):
        await heard(example, page)  # the stream is not silent
        assert example.board.listening == 1
        await page.clock.run_for(10_500)
    await asyncio.to_thread(until, lambda: example.board.listening == 0, "the stream to end")
    await expect(page.locator("#connection")).to_be_hidden()
    example.board.alerts.pop()
    await page.evaluate(hide, False)
    await heard(example, page)  # the new stream
    await page.clock.run_for(2_000)
    await expect(page.locator("#alert-rows > tr:not(.empty)")).to_have_count(len(ALERTS) - 1)


async def test_a_part_that_cannot_be_renewed_says_so(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address, allowed="500")
    await listening(page)
    example.board.status = 500
    example.board.send("changed", {"what": "tables"})
    await expect(page.locator("#connection")).to_contain_text("A part of this page could not be renewed since")
    await expect(page.locator("#alert-rows > tr:not(.empty)")).to_have_count(len(ALERTS))
    example.board.status = 200
    example.board.send("changed", {"what": "tables"})
    await expect(page.locator("#connection")).to_be_hidden()


async def test_a_session_that_has_ended_leads_to_the_sign_in(example: Example, pages: Pages) -> None:
    page = await pages.open(example.address, allowed="401")
    await listening(page)
    example.board.status = 401
    example.board.send("changed", {"what": "tables"})
    await expect(page.locator("#connection")).to_contain_text("You are signed out.")
    await expect(page.locator("#connection a")).to_have_text("Sign in again")
