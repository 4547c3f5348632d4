"""A real browser for tests: Debian's Chromium, driven by Playwright. One runs for all tests of a process.

The fixtures live in the session's event loop, so a module that uses them says

    pytestmark = pytest.mark.asyncio(loop_scope="session")

and its ``conftest.py`` imports ``browser`` and ``pages``. A test fails when one of its pages logs an error, throws one,
or does what the content security policy forbids.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.support.waits import PATIENCE

SCREENSHOTS: Final = Path(__file__).parents[2] / "build" / "board"
AXE: Final = Path(__file__).parent / "axe" / "axe.min.js"
PHONE: Final = 375  # pixels wide, as small phones are

_REPORT_VIOLATIONS: Final = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`content security policy: ${event.effectiveDirective} forbids ${event.blockedURI} ${event.sample}`));
"""

expect.set_options(timeout=PATIENCE * 1000)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Run Chromium without a window. ``tools/bootstrap.sh tests`` installs it."""
    program = shutil.which("chromium")
    assert program is not None, "Chromium is missing: run tools/bootstrap.sh tests"
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=program, args=as_root)
        yield chromium
        await chromium.close()


@dataclass
class Pages:
    """Opens pages, each with cookies and storage of its own, and collects what goes wrong in them."""

    browser: Browser
    errors: list[str] = field(default_factory=list)
    _contexts: list[BrowserContext] = field(default_factory=list)
    _closing: bool = False

    async def open(
        self, address: str, *, width: int = 1280, height: int = 900, dark: bool = False, allowed: str | None = None
    ) -> Page:
        """Open an address. Errors that match the regular expression ``allowed`` do not fail the test."""
        context = await self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="America/Lima",  # pages must not depend on where the reader's clock is
        )
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE * 1000)
        await context.add_init_script(_REPORT_VIOLATIONS)
        page = await context.new_page()

        def note(text: str) -> None:
            if not self._closing and (allowed is None or not re.search(allowed, text)):
                self.errors.append(f"{page.url}: {text}")

        page.on("console", lambda message: note(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: note(str(error)))
        await page.goto(address)
        return page

    async def close(self) -> None:
        self._closing = True  # what a page was fetching is not to come
        for context in self._contexts:
            await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def pages(browser: Browser) -> AsyncIterator[Pages]:
    """Open pages for one test, and fail it if one of them had an error."""
    opened = Pages(browser)
    try:
        yield opened
    finally:
        await opened.close()
    assert not opened.errors, "\n".join(opened.errors)


async def load_again(page: Page, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
    """Load a page anew in a window of another size or in the other colours; a context of its own takes ten times as
    long."""
    await page.set_viewport_size({"width": width, "height": height})
    await page.emulate_media(color_scheme="dark" if dark else "light")
    await page.reload()


async def screenshot(page: Page, name: str, *, whole: bool = True) -> Path:
    """Keep a picture of a page, the whole of it or what its window shows, as ``build/board/NAME.png``."""
    file = SCREENSHOTS / f"{name}.png"
    await page.screenshot(path=file, full_page=whole)
    return file


async def check_accessibility(page: Page) -> None:
    """Fail on what axe-core calls a serious or critical hindrance for people with a disability."""
    await page.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
    found: dict[str, Any] = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    serious = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    lines = [
        f"{each['id']} ({each['impact']}): {each['help']}: {node['html'][:160]} {node.get('failureSummary', '')}"
        for each in serious
        for node in each["nodes"]
    ]
    assert not lines, f"{page.url}:\n" + "\n".join(lines)


async def sideways(page: Page) -> list[str]:
    """Return the elements that stick out of the page's right side; empty if the page does not scroll sideways."""
    names: list[str] = await page.evaluate(
        """() => {
          const width = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= width) return [];
          return [...document.body.querySelectorAll("*")]
            .filter((each) => each.getBoundingClientRect().right > width + 1)
            .map((each) => `${each.localName}.${each.className}`);
        }"""
    )
    return names
