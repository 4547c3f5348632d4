"""The page and the files of the pack for a claim."""

from __future__ import annotations

import csv
import hashlib
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from board.pages.container import container_file
from fairlead.errors import RefusedError
from shore.paths import TablePaths
from shore.report.container import container_report, open_container
from shore.report.pack import Manifest, read_manifest, write_pack
from tests.support.one_file import plain, reaches
from tests.support.port_story import WARM, WRONG, at, write
from tests.support.tables import fill


def pack(paths: TablePaths, box: str, folder: Path, page: str = "<p>page</p>") -> Manifest:
    with open_container(paths, box) as found:
        return write_pack(found, container_report(found, box), folder, page)


@pytest.fixture(scope="module")
def packed(story: TablePaths, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the whole pack of ``WARM``, with its page; tests only read it."""
    folder = tmp_path_factory.mktemp("packs") / WARM
    with open_container(story, WARM) as found:
        report = container_report(found, WARM)
        write_pack(found, report, folder, container_file(found, report))
    return folder


def test_every_reading_is_in_the_files(packed: Path) -> None:
    with (packed / "readings.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    table = pq.read_table(packed / "readings.parquet")
    assert [int(row["log_offset"]) for row in rows] == table["log_offset"].to_pylist()
    assert len(rows) == 210
    assert rows[0]["device_date_time"] == "2026-03-02T06:00:00.000000Z"
    assert "payload" not in rows[0]
    assert table["payload"][0].as_py().startswith(b'{"equipmentReference"')
    assert table.schema.field("supply_temperature").metadata[b"comment"] == b"Air supplied to the cargo [Cel]"


def test_figures_can_be_traced_to_the_log(packed: Path) -> None:
    manifest = read_manifest(packed)
    (log,) = manifest.logs
    digest = hashlib.sha256()
    for row in pq.read_table(packed / "readings.parquet").sort_by("log_offset").to_pylist():
        digest.update(row["log_offset"].to_bytes(8, "big") + len(row["payload"]).to_bytes(4, "big") + row["payload"])
    assert (log.log, log.records, log.sha256) == (f"containers.{WARM}", 210, digest.hexdigest())
    assert manifest.tables["readings"] == 1
    assert manifest.missing_tables == ()


FORMULAS = ("=1+1", "+1", "-18.5", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("http://evil","x")')


def test_no_text_in_csv_is_a_formula_and_parquet_has_it_exactly(tmp_path: Path) -> None:
    """A spreadsheet program that opens a pack runs nothing that a device or a terminal has written."""
    write(tmp_path / "state")
    bad = [
        {"log": f"containers.{WARM}", "log_offset": 900 + n, "equipment_reference": WARM, "reason": reason}
        | {"record_date_time": at(4), "received_date_time": at(4)}
        for n, reason in enumerate((*FORMULAS, "plain", "a=b"))
    ]
    fill(tmp_path / "state", {"readings_rejected": bad})
    pack(TablePaths.of(tmp_path / "state"), WARM, tmp_path / "pack")
    with (tmp_path / "pack" / "readings_rejected.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["log_offset"]) >= 900]
    assert [row["reason"] for row in rows] == [*(f"'{each}" for each in FORMULAS), "plain", "a=b"]
    assert rows[0]["log_offset"] == "900"
    exact = pq.read_table(tmp_path / "pack" / "readings_rejected.parquet")["reason"].to_pylist()
    assert set(FORMULAS) <= set(exact)
    with (tmp_path / "pack" / "readings.csv").open(encoding="utf-8", newline="") as file:
        cells = {cell for row in csv.DictReader(file) for cell in row.values()}
    assert not any(cell.startswith("'") for cell in cells)  # negative numbers are not escaped


def test_the_sums_are_of_every_file(packed: Path) -> None:
    checked = subprocess.run(  # noqa: S603
        [shutil.which("sha256sum") or "sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=packed, check=True, capture_output=True, text=True,
    )  # fmt: skip
    ok = {line.removesuffix(": OK") for line in checked.stdout.splitlines()}
    assert ok == {file.name for file in packed.iterdir()} - {"SHA256SUMS"}
    rows = {file.name: file.rows for file in read_manifest(packed).files}
    assert (rows["excursions.csv"], (rows["conditions.csv"] or 0) > 50, rows["custody.parquet"]) == (2, True, 2)


def test_the_page_tells_the_story_without_a_server(packed: Path) -> None:
    page = (packed / f"{WARM}.html").read_text(encoding="utf-8")
    told_all = plain(page)
    assert reaches(page) == []
    assert "url(http" not in page
    assert (page.count('<div class="map"'), page.count('data-chart="measured"')) == (1, 1)
    assert "Who reads this box" not in page  # whom else a claim's reader need not know
    for told in (
        "temperature: 1 excursion, 3 h 45 min", "power: 1 excursion, 3 h", "210 from 2026-03-02 06:00",
        "BK1, ducks: toy ducks of wax, SGSIN to JPTYO, 2.0 °C agreed", "MV Duck Star", "Port of Singapore",
        "not plugged in", "2026-03-03 02:00", "POWER_LOST",
        "8 numbers between", "DOOR_OPEN", "not over", f"containers.{WARM}@", "Nothing heard from",
        "not in the table: boot 1, reading 99999", "1 record of its log",
    ):  # fmt: skip
        assert told in told_all, told


def test_a_page_without_any_derived_table_says_so(tmp_path: Path) -> None:
    strange = {"log": f"containers.{WARM}", "log_offset": 1, "equipment_reference": WARM, "device_date_time": at(1),
               "device_id": "<script>alert(1)</script>", "boot_id": 1, "sequence": 1}  # fmt: skip
    cause = '[{"log":null,"offset":-1,"deviceId":"<script>alert(1)</script>","bootId":1,"sequence":9}]'
    alert = {"log": "alerts.x", "log_offset": 1, "alert_id": "<b>", "equipment_reference": WARM, "causes": cause,
             "kind": "TEMPERATURE", "state": "OPENED", "event_date_time": at(1)}  # fmt: skip
    now = {"source": "site", "raised_at": "x", "alert_id": "<b>", "equipment_reference": WARM, "kind": "TEMPERATURE",
           "state": "OPENED", "opened_date_time": at(1), "detail": "<i>warm</i>"}  # fmt: skip
    fill(tmp_path, {"readings": [strange], "alerts": [alert], "alerts_now": [now]})
    with open_container(TablePaths.of(tmp_path), WARM) as found:
        page = container_file(found, container_report(found, WARM))
    assert "Not known: table excursions is not there yet." in plain(page)
    assert "No position of it is known" in page
    assert "<script>alert(1)" not in page
    assert "<b>" not in page.replace("<b></b>", "")
    assert "&lt;i&gt;warm&lt;/i&gt;" in page


def test_a_pack_is_written_over_its_older_self_and_over_nothing_else(story: TablePaths, tmp_path: Path) -> None:
    folder = tmp_path / "claim"
    pack(story, WRONG, folder, "old")
    (folder / "notes.txt").write_text("of the handler", encoding="utf-8")
    pack(story, WRONG, folder, "new")
    assert (folder / f"{WRONG}.html").read_text(encoding="utf-8") == "new"
    assert (folder / "notes.txt").exists()
    with pytest.raises(RefusedError):
        pack(story, WARM, folder)
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter1.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(RefusedError):
        pack(story, WARM, other)
    assert [file.name for file in other.iterdir()] == ["chapter1.txt"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["claim", "thesis"]
