"""Draw the picture at the top of README.md: the duck voyage's ships, ports and containers overboard, from its plan.

python -m tools.voyage_map docs/images/voyage.png

The board draws it (``board/static/map.js``), in Chromium, which ``tools/bootstrap.sh tests`` installs.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.async_api import async_playwright

from board.drawing import Json, port_marks
from board.export import document
from simulators.fleet.plan import VoyagePlan
from simulators.fleet.planner import make_plan
from simulators.fleet.scenario_file import load as load_scenario
from topologies.loader.load import load as load_topology

WIDTH, HEIGHT = 880, 460
_STEP: Final = dt.timedelta(hours=2)
_STYLE: Final = f"""
.bar, footer, .page-head, .panel, .leaflet-control-zoom {{ display: none }}
main {{ padding: 0 }}
.map {{ height: {HEIGHT}px }}
"""


def content(plan: VoyagePlan) -> Json:
    """Return what the map shows: tracks, ships on their way, the containers overboard, and the alert by satellite."""
    tracks, ships = [], []
    for line, (name, table) in enumerate(plan.timetables.items(), start=1):
        first, last = table.calls[0].arrives, table.calls[-1].arrives
        times = [first + at * _STEP for at in range((last - first) // _STEP + 1)]
        points = [table.at(time)[0].point for time in times]
        tracks.append({"name": name, "points": [[each.latitude, each.longitude] for each in points], "line": line})
        call = table.calls[-2]
        here = table.at(call.departs + (last - call.departs) / 2)[0]
        place = {"latitude": here.point.latitude, "longitude": here.point.longitude}
        ships.append({"id": name, "name": name, "line": line, "course": here.course, "speed": 15.0, **place})
    fallen = [box for box in plan.boxes if box.falls is not None]
    when = min(box.falls for box in fallen if box.falls is not None)
    fell = plan.timetables[str(fallen[0].holder(when))].at(when)[0].point
    lost = {"id": "lost", "name": f"{len(fallen)} containers overboard", "tone": "bad", "speed": 0.0}
    ships.append(lost | {"latitude": fell.latitude, "longitude": fell.longitude})
    home = port_marks([plan.topology.sites["los-angeles"].unlocode])[0]
    alert = {"from": [fell.latitude, fell.longitude], "to": [home["latitude"], home["longitude"]], "tone": "bad"}
    ports = port_marks(site.unlocode for site in plan.topology.sites.values())
    return {"ports": ports, "ships": ships, "tracks": tracks, "links": [alert | {"title": "the alert by satellite"}]}


async def draw(plan: VoyagePlan, file: Path) -> None:
    """Write the map as PNG."""
    title = "The duck voyage"
    html = document("ports.html.j2", title, map=content(plan), sites=[])
    chromium = shutil.which("chromium")
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as scratch:
        page_file = Path(scratch) / "map.html"
        page_file.write_text(html, encoding="utf-8")
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=as_root)
            page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT + 60}, device_scale_factor=1.5)
            await page.goto(page_file.as_uri())
            await page.evaluate(
                "(css) => { const sheet = new CSSStyleSheet(); sheet.replaceSync(css);"
                " document.adoptedStyleSheets = [sheet]; }",
                _STYLE,
            )
            await page.locator("[data-land=drawn]").wait_for()
            await page.locator(".map").screenshot(path=file)
            await browser.close()


if __name__ == "__main__":
    scenario = load_scenario("duck-voyage")
    asyncio.run(draw(make_plan(scenario, load_topology("big-blue"), seed=7), Path(sys.argv[1])))
