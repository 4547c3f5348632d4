"""Pages without data, pages about records that could not be read, and pages for screen readers."""

from __future__ import annotations

import datetime as dt
from html.parser import HTMLParser
from pathlib import Path

import pytest

from board.pages.container import container_file
from board.pages.port import port_file
from fairlead.cli.app import run
from shore.paths import TablePaths
from shore.report.container import container_report, open_container
from shore.report.port import port_report
from tests.support.one_file import plain
from tests.support.port_story import WARM, at, derive, number
from tests.support.tables import fill


def page_of(paths: TablePaths, box: str, since: dt.datetime | None = None, until: dt.datetime | None = None) -> str:
    with open_container(paths, box, since, until) as found:
        return container_file(found, container_report(found, box, since, until))


def row(box: str, offset: int, when: dt.datetime, **more: object) -> dict[str, object]:
    """Return a row of ``readings`` with only the values that it must have."""
    device = {"device_id": "d", "boot_id": 1, "sequence": offset, "device_date_time": when, "received_date_time": when}
    return {"log": f"containers.{box}", "log_offset": offset, "equipment_reference": box, **device, **more}


def test_a_time_without_readings_is_not_called_a_good_one(story: TablePaths) -> None:
    told = plain(page_of(story, WARM, at(20)))
    assert "none in this time" in told
    assert "Out of band not known: nothing was observed" in told
    assert "Nothing was observed." in told
    assert "never while it was observed" not in told
    assert "Powered and closed" not in told


def test_a_box_without_a_booking_or_any_other_row(tmp_path: Path) -> None:
    box = number(900001)
    fill(tmp_path, {"readings": [row(box, 1, at(1))], "alerts": (), "sites": (), "owners": ()})
    derive(tmp_path)
    told = plain(page_of(TablePaths.of(tmp_path), box))
    assert "Booking none is known" in told
    assert "No ledger of custody knows it." in told
    assert "Alerts none" in told


def test_a_record_that_could_not_be_read_is_named_with_its_reason(tmp_path: Path) -> None:
    box = number(900002)
    bad = {"log": f"containers.{box}", "log_offset": 7, "equipment_reference": box, "reason": "no <device>",
           "record_date_time": at(2, 3), "payload": b"{"}  # fmt: skip
    fill(tmp_path, {"readings": [row(box, 8, at(2, 4))], "readings_rejected": [bad]})
    page = page_of(TablePaths.of(tmp_path), box)
    assert f"2026-03-02 03:00 no <device> containers.{box}@7" in plain(page)
    assert "readings_rejected.csv" in page


def test_an_excursion_of_which_little_was_seen_is_told_with_all_of_its_time(tmp_path: Path) -> None:
    box = number(900004)
    air = {"supply_temperature": 9.0, "return_temperature": 9.0, "setpoint_temperature": 2.0, "is_powered": True}
    warm = [row(box, n, at(2, 3 * n), **air) for n in range(5)]
    fill(tmp_path, {"readings": warm})
    derive(tmp_path, "conditions", "excursion_parts", "excursions")
    told = plain(page_of(TablePaths.of(tmp_path), box))
    assert "temperature: 1 excursion, 2 h 30 min seen, within 12 h 30 min" in told


class Seen(HTMLParser):
    """Collects the tables, headers and pictures of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.wrong: list[str] = []
        self.pictures = self.headers = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given, around = dict(attrs), [name for name, _ in self.open]
        if tag == "th":
            self.headers += 1
            if given.get("scope") != ("col" if "thead" in around else "row"):
                self.wrong.append("a header that is none")
        if "data-map" in given or "data-chart" in given:
            self.pictures += 1
            if given.get("role") != "img" or not given.get("aria-label"):
                self.wrong.append("a picture without words")
        if tag == "svg" and given.get("aria-hidden") != "true":
            self.wrong.append("a drawing that nobody describes")
        if tag not in ("meta", "br", "input"):
            self.open.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag


def test_pages_can_be_read_by_who_cannot_see_them(story: TablePaths) -> None:
    with open_container(story, WARM) as found:
        report = container_report(found, WARM)
        pages = [container_file(found, report), port_file(port_report(story, "JPTYO"))]
    for page, pictures in zip(pages, (2, 1), strict=True):
        seen = Seen()
        seen.feed(page)
        assert seen.wrong == []
        assert (seen.pictures, seen.headers > 10) == (pictures, True)
    assert "supply air 1.7 to 7.9 degrees Celsius" in pages[0]
    assert "Port of Singapore" in pages[0]


def test_a_box_that_measures_no_temperature(tmp_path: Path) -> None:
    box = number(900003)
    fill(tmp_path, {"readings": [row(box, 8, at(2, 4))]})
    assert "No temperature was measured in this time." in plain(page_of(TablePaths.of(tmp_path), box))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("arguments", [["port", "JPTYO"], ["container", WARM]])
def test_a_place_that_cannot_be_written(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    out = tmp_path if arguments[0] == "port" else tmp_path / "file" / "below"
    assert run(["report", *arguments, "--out", str(out)]) == 4
    told = " ".join(capsys.readouterr().err.split())
    assert "cannot be written" in told
    assert "--out" in told
