"""What browsers get from others is what tools/vendor.sh copied, and licences and versions are told."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final

from tools.coastlines import area, land, simplified
from tools.notices import notices

ROOT: Final = Path(__file__).parents[3]
STATIC: Final = ROOT / "board" / "static"
FOLDERS: Final = (STATIC / "vendor", *(ROOT / "tests" / "support" / name for name in ("axe", "asyncapi")))


def packages() -> dict[str, dict[str, Any]]:
    lock = json.loads((STATIC / "package-lock.json").read_text(encoding="utf-8"))
    return {name.removeprefix("node_modules/"): each for name, each in lock["packages"].items() if name}


def test_the_committed_files_are_those_that_were_copied() -> None:
    lines = (ROOT / "tools" / "vendor.lock").read_text(encoding="utf-8").splitlines()
    wanted = {name: sum_ for sum_, name in (line.split("  ") for line in lines)}
    files = [each for folder in FOLDERS for each in folder.rglob("*") if each.is_file()]
    found = {each.relative_to(ROOT).as_posix(): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}
    assert found == wanted, "renew them with make vendor"


def test_the_lock_pins_what_is_asked_for_and_names_no_registry() -> None:
    asked = json.loads((STATIC / "package.json").read_text(encoding="utf-8"))
    versions = {**asked["dependencies"], **asked["devDependencies"]}
    assert {name: each["version"] for name, each in packages().items() if name in versions} == versions
    assert all(
        each.get("dev") for name, each in packages().items() if name not in versions
    )  # and nothing of it is copied
    assert all(re.match(r"sha512-", each["integrity"]) for each in packages().values())
    assert not any("resolved" in each for each in packages().values())


def test_the_copied_libraries_have_the_pinned_versions() -> None:
    heads = {"leaflet": "vendor/leaflet/leaflet.js", "uplot": "vendor/uplot/uPlot.iife.min.js"}
    for name, file in heads.items():
        version = packages()[name]["version"]
        assert re.search(rf"(Leaflet|uPlot).*{re.escape(version)}", (STATIC / file).read_text(encoding="utf-8")[:300])


def test_each_vendored_folder_has_its_licence_and_each_shipped_package_its_row() -> None:
    folders = {file.parent for folder in FOLDERS for file in folder.rglob("*") if file.is_file()}
    assert all((folder / "LICENSE").is_file() for folder in folders)
    text = (ROOT / "THIRD-PARTY-NOTICES.md").read_text(encoding="utf-8")
    reasons = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    asked = json.loads((STATIC / "package.json").read_text(encoding="utf-8"))
    for name, each in packages().items():
        assert f"| {name} | " in reasons or name not in {**asked["dependencies"], **asked["devDependencies"]}
        assert (f"| {name} | {each['version']} | {each['license']} |" in text) != bool(each.get("dev"))
    assert text.partition("## JavaScript")[2] == notices().partition("## JavaScript")[2], "run python -m tools.notices"


def test_the_land_is_small_and_whole() -> None:
    text = (STATIC / "vendor" / "land" / "land.json").read_text(encoding="utf-8")
    shape = json.loads(text)
    assert shape["type"] == "MultiPolygon"
    assert len(text) < 400_000
    for polygon in shape["coordinates"]:
        for ring in polygon:
            assert ring[0] == ring[-1] and len(ring) > 3
            assert all(-180 <= x <= 180 and -90 <= y <= 90 for x, y in ring)
    land_area = sum(area(polygon[0]) - sum(area(lake) for lake in polygon[1:]) for polygon in shape["coordinates"])
    assert 18_000 < land_area < 23_000  # square degrees; Natural Earth's land has 21,400, of which Antarctica 6,000


def test_lines_lose_what_nobody_sees_and_small_islands_go() -> None:
    assert simplified([(0, 0), (1, 0.001), (2, 0), (2, 2)]) == [(0, 0), (2, 0), (2, 2)]
    square = [[0, 0], [100, 0], [0, 100], [-100, 0], [0, -100]]  # in steps, as TopoJSON has them
    geometry: dict[str, Any] = {"type": "MultiPolygon", "arcs": [[[0]], [[1]]]}
    topology = {
        "transform": {"scale": [0.01, 0.01], "translate": [10, 20]},
        "arcs": [square, [[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]]],
        "objects": {"land": {"geometries": [geometry]}},
    }
    ring = [(10, 20), (11, 20), (11, 21), (10, 21), (10, 20)]
    assert land(topology) == {"type": "MultiPolygon", "coordinates": [[ring]]}
    geometry["arcs"] = [[[~0]]]
    assert land(topology)["coordinates"] == [[ring[::-1]]]
