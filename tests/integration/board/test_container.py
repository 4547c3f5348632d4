"""The containers' pages over real tables: what they say, who is noted, and what they never do."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import html
import io
import json
import re
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from deltalake import DeltaTable, write_deltalake

from board.app import create_app
from board.audit import FILE
from board.pages.container import LISTED, PAGES
from board.security import COOKIE
from board.service import BoardService
from board.viewer import LOCAL, Access
from fairlead.home import run_folder
from fairlead.records.alert import Evidence
from shore.paths import TablePaths
from shore.tables import TABLES
from tests.integration.board.world import alert
from tests.support.port_story import NEVER_HEARD, ON_DOCK, WARM, WRONG, at, number
from tests.support.port_story import write as write_story
from tests.support.tables import fill
from topologies.context import open_topology

SITE = "tokyo"
SCRIPT = "<script>alert(1)</script>"
EVIL = '"><img src=x onerror=alert(1)>'


def board_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> BoardService:
    monkeypatch.setenv("FAIRLEAD_HOME", str(home))
    return BoardService(open_topology("big-blue"), SITE)


class Client:
    """A browser that has signed in; errors of the pages are raised."""

    def __init__(self, board: BoardService, name: str) -> None:
        self._app = create_app(board)
        self._cookies = {COOKIE: board.sessions.open(name)[0]}

    def get(self, path: str, params: dict[str, str] | None = None) -> httpx.Response:
        return asyncio.run(self._get(path, params))

    async def _get(self, path: str, params: dict[str, str] | None) -> httpx.Response:
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", cookies=self._cookies) as client:
            return await client.get(path, params=params)


def client_of(board: BoardService, name: str = LOCAL.name) -> Client:
    return Client(board, name)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The story's tables for topology ``big-blue``, with text in them that means something to browsers."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "big-blue"
    folder.mkdir()
    write_story(folder)
    _replace(folder, "bookings", customer=EVIL, booking_reference=SCRIPT, commodity=EVIL)
    _replace(folder, "booking_changes", customer=EVIL, booking_reference=SCRIPT)
    _replace(folder, "containers_now", customer=EVIL, booking_reference=SCRIPT)
    _replace(folder, "alerts_now", detail=SCRIPT, acknowledged_by=EVIL)
    _replace(folder, "milestones", booking_reference=SCRIPT, vessel=EVIL)
    _replace(folder, "custody", reason=EVIL, ordered_by=SCRIPT)
    outlook = {"equipment_reference": WRONG, "as_of_date_time": at(4, 12), "since_date_time": at(4), "readings": 40}
    fill(folder, {"outlook": [outlook | {"state": "WRONG_SETPOINT", "minutes_left": 200.0, "minutes_left_low": 150.0,
                                         "minutes_left_high": 260.0}]})  # fmt: skip
    return home


def _replace(folder: Path, name: str, **texts: str) -> None:
    """Write text into the rows about ``WARM`` of a table."""
    location = TablePaths.of(folder).table(name)
    rows = DeltaTable(location).to_pyarrow_dataset().to_table().to_pylist()
    assert any(row["equipment_reference"] == WARM for row in rows)
    changed = [row | texts if row["equipment_reference"] == WARM else row for row in rows]
    schema = TABLES[name].plain_schema
    write_deltalake(DeltaTable(location), schema.empty_table().from_pylist(changed, schema=schema), mode="overwrite")


@pytest.fixture
def board(home: Path, monkeypatch: pytest.MonkeyPatch) -> BoardService:
    return board_of(home, monkeypatch)


@pytest.fixture
def client(board: BoardService) -> Client:
    return client_of(board)


def noted(board: BoardService) -> list[dict[str, str]]:
    file = run_folder(board.context.folder, SITE) / FILE
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def plain(page: str) -> str:
    """Return a page's text, with single blanks."""
    text = re.sub(r"<script\b.*?</script>|<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(text).split())


def data(page: str, name: str) -> dict[str, Any]:
    """Return the data of a map or chart."""
    (text,) = re.findall(rf'<script type="application/json" id="{name}">(.*?)</script>', page, flags=re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


# --- one container


def test_everything_about_a_box_is_on_its_page(client: Client) -> None:
    answer = client.get(f"/containers/{WARM}")
    assert answer.status_code == 200
    assert f'data-live="/live?container={WARM}"' in answer.text
    told = plain(answer.text)
    for text in (
        "open alerts: DOOR_OPEN (WARNING), acknowledged by ",
        "aboard MV Duck Star",
        "SGSIN to JPTYO",
        "2026-03-04 02:45",  # a gap
        "2 h 15 min",
        "not plugged in",
        "came to the dock",
        "loaded",
        "temperature high",
        "1 record of its log",
    ):
        assert text in told, text
    chart, way = data(answer.text, "measured"), data(answer.text, "way")
    assert [panel["title"] for panel in chart["panels"]] == ["Temperature", "Outside", "Humidity"]
    assert all(len(s["values"]) == len(chart["times"]) for panel in chart["panels"] for s in panel["series"])
    assert max(v for v in chart["panels"][0]["series"][0]["values"] if v is not None) == 7.9
    assert {span["kind"] for span in chart["spans"]} == {"defrost", "unplugged", "gap", "excursion"}
    assert len(chart["times"]) < 300
    assert {port["code"] for port in way["ports"]} == {"SGSIN", "JPTYO"}
    assert [ship["id"] for ship in way["ships"]] == ["9074729"]
    assert 'id="alerts"' in answer.text


def test_the_outlook_has_its_spread(client: Client) -> None:
    told = plain(client.get(f"/containers/{WRONG}").text)
    assert "about 3 h 20 min" in told
    assert "2 h 30 min to 4 h 20 min in nine of ten boxes; wrong set point since 2026-03-04 00:00" in told
    assert "set to 5.0, agreed 2.0" in told


def test_text_from_logs_is_text(client: Client) -> None:
    for path in (f"/containers/{WARM}", f"/containers/{WARM}/latest", f"/containers/{WARM}/history", "/containers",
                 "/containers?q=%3Cscript", f"/containers/rows?q={EVIL}"):  # fmt: skip
        page = client.get(path).text
        assert SCRIPT not in page and "<img" not in page, path
    told = plain(client.get(f"/containers/{WARM}").text)
    assert told.count(SCRIPT) > 2 and told.count(EVIL) > 2


@pytest.mark.parametrize("spelt", [WARM.lower(), f" {WARM[:4]} {WARM[4:]}", f"{WARM[:10]}-{WARM[10:]}"])
def test_a_number_in_another_form_leads_to_the_page(client: Client, spelt: str) -> None:
    answer = client.get(f"/containers/{spelt}")
    assert (answer.status_code, answer.headers["location"]) == (307, f"/containers/{WARM}")


def test_an_unknown_number_is_answered_with_the_nearest(client: Client, board: BoardService) -> None:
    before = noted(board)
    typo = WARM[:10] + str((int(WARM[10]) + 1) % 10)
    for path in (f"/containers/{typo}", f"/containers/{typo}/latest", f"/containers/{typo}/pack"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert WARM in answer.text
    assert client.get(f"/containers/{number(999999)}").status_code == 404
    assert client.get("/containers/%27;drop table").status_code == 404
    assert noted(board) == before


def test_a_box_that_was_never_heard_has_a_page(client: Client) -> None:
    told = plain(client.get(f"/containers/{NEVER_HEARD}").text)
    assert "No reading of it is ashore." in told
    assert "open alerts: NOT_HEARD" in told
    assert "Nothing wrong" not in told


def test_a_page_says_which_tables_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = {"log": f"containers.{WARM}", "log_offset": 1, "equipment_reference": WARM, "device_id": "d",
               "boot_id": 1, "sequence": 1, "device_date_time": at(1), "received_date_time": at(1)}  # fmt: skip
    (tmp_path / "big-blue").mkdir()
    fill(tmp_path / "big-blue", {"readings": [reading]})
    told = plain(client_of(board_of(tmp_path, monkeypatch)).get(f"/containers/{WARM}").text)
    assert "These tables are not there yet" in told
    assert "Not known: table milestones is not there yet." in told
    assert "None under any booking." not in told
    assert "table booking_changes is not there yet, so nobody here knows the bookings" in told


def test_a_page_reads_only_the_files_of_its_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of other boxes may even be gone."""
    folder = tmp_path / "big-blue"
    folder.mkdir()
    boxes = (number(1), number(2), number(3))
    for box in boxes:
        values = {"log": f"containers.{box}", "equipment_reference": box, "device_id": "d", "boot_id": 1}
        times = [{"log_offset": i, "sequence": i, "device_date_time": at(1, i), "received_date_time": at(1, i)}
                 for i in range(9)]  # fmt: skip
        fill(folder, {"readings": [values | each for each in times]})
    table = DeltaTable(TablePaths.of(folder).table("readings"))
    kept = table.file_uris()[-1]  # the newest file is first or last, whichever version of delta-rs
    (box,) = {row["equipment_reference"] for row in _rows_of(kept)}
    for file in table.file_uris():
        if file != kept:
            Path(file).unlink()
    client = client_of(board_of(tmp_path, monkeypatch))
    assert client.get(f"/containers/{box}").status_code == 200
    other = next(each for each in boxes if each != box)
    assert client.get(f"/containers/{other}").status_code == 503


def _rows_of(file: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    found: list[dict[str, Any]] = pq.read_table(file, columns=["equipment_reference"]).to_pylist()
    return found


def test_its_open_alerts_are_there_before_the_tables_have_them(
    client: Client, board: BoardService, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (Evidence(name="door", weight=1.0, detail=SCRIPT),)
    found = [alert(WARM, evidence=said), alert(ON_DOCK)]
    monkeypatch.setattr(board.live, "open_alerts", lambda: found)
    monkeypatch.setattr(board.live, "opened", lambda _: at(4, 13))
    page = client.get(f"/containers/{WARM}").text
    assert re.findall(r'<tr id="alert-([^"]+)"', page) == [f"{found[0].raised_at}-{found[0].alert_id}"]
    assert SCRIPT not in page
    assert SCRIPT in plain(page)


# --- the audit log


def test_who_looked_at_which_container_is_noted(client: Client, board: BoardService) -> None:
    before = len(noted(board))
    client.get(f"/containers/{WARM}")
    client.get(f"/containers/{WARM}")
    for _ in range(3):  # an open page that reads itself again is not noted each time
        client.get(f"/containers/{WARM}/latest")
    client.get(f"/containers/{ON_DOCK}/history")
    client.get(f"/containers/{ON_DOCK}/latest")
    found = noted(board)[before:]
    assert [(each["event"], each["container"], each["who"]) for each in found] == [
        ("looked-at-container", WARM, LOCAL.name),
        ("looked-at-container", WARM, LOCAL.name),
        ("looked-at-container", ON_DOCK, LOCAL.name),
    ]
    client.get(f"/containers/{WARM}/pack?since=2026-03-02&until=2026-03-02")
    last = noted(board)[-1]
    assert (last["event"], last["container"], last["since"], last["until"]) == (
        "took-claims-pack", WARM, "2026-03-02", "2026-03-03",
    )  # fmt: skip


def test_nothing_is_shown_that_cannot_be_noted(board: BoardService, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(board.audit, "note", refuse)
    for path in ("", "/latest", "/history", "/pack"):
        with pytest.raises(OSError, match="full"):
            client_of(board).get(f"/containers/{WARM}{path}")


# --- the pack


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, which is empty at the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("scratch")
def test_the_claims_pack_is_whole_and_leaves_nothing_behind(client: Client) -> None:
    answer = client.get(f"/containers/{WARM.lower()}/pack")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    assert answer.headers["content-disposition"] == f'attachment; filename="{WARM}.zip"'
    assert int(answer.headers["content-length"]) == len(answer.content)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {WARM}
        for line in archive.read(f"{WARM}/SHA256SUMS").decode().splitlines():
            digest, name = line.split("  ")
            assert hashlib.sha256(archive.read(f"{WARM}/{name}")).hexdigest() == digest, name
        rows = list(csv.DictReader(io.StringIO(archive.read(f"{WARM}/readings.csv").decode())))
        assert {row["equipment_reference"] for row in rows} == {WARM}
        assert len(rows) == 210


@pytest.mark.usefixtures("scratch")
def test_a_pack_of_some_days_ends_with_the_last_of_them(client: Client) -> None:
    answer = client.get(f"/containers/{WARM}/pack?since=2026-03-03&until=2026-03-03")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        rows = csv.DictReader(io.StringIO(archive.read(f"{WARM}/readings.csv").decode()))
        days = {row["device_date_time"][:10] for row in rows}
    assert days == {"2026-03-03"}
    for times in ("since=yesterday", "since=2026-03-03&until=2026-03-02", "until=2026-02-30"):
        assert client.get(f"/containers/{WARM}/pack?{times}").status_code == 400


# --- the list


def rows_of(page: str) -> list[str]:
    return re.findall(r'<tr id="box-([A-Z]{4}\d{7})"', page)


def test_the_list_has_what_is_wrong_first(client: Client) -> None:
    page = client.get("/containers").text
    tones = re.findall(r'<tr id="box-\w+" data-tone="(\w+)"', page)
    assert tones == sorted(tones, key=["bad", "warn", "good", "quiet"].index)
    assert set(rows_of(page)) >= {WARM, WRONG, ON_DOCK, NEVER_HEARD}
    assert rows_of(page).index(WRONG) < rows_of(page).index(ON_DOCK)
    told = plain(page)
    assert "As of 2026-03-04 12:00" in told
    assert "about 3 h 20 min" in told
    assert "set to 5.0, agreed 2.0" in told


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (WARM[4:9].lower(), {WARM, number(100002), ON_DOCK, NEVER_HEARD}),
        ("bk3", {WRONG}),
        ("YELLOW", {WRONG}),
        ("<script>", {WARM}),
        ("yelu 2000", {WRONG}),
        ("%", set()),
        ("nothing of the kind", set()),
    ],
)
def test_a_search_by_number_booking_or_customer(client: Client, asked: str, found: set[str]) -> None:
    for path in ("/containers", "/containers/rows"):
        page = client.get(path, params={"q": asked}).text
        assert set(rows_of(page)) == found
        assert ("No container matches." in page) is not bool(found)
        assert ('<tr class="empty">' in page) is not bool(found)


def test_a_search_by_an_earlier_booking_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"equipment_reference": WARM, "seen_date_time": at(4), "reading_date_time": at(4), "booking_reference": "NEW",
           "open_alerts": 0}  # fmt: skip
    old = {"booking_reference": "OLD7", "equipment_reference": WARM, "customer": "ducks", "status": "COMPLETED",
           "valid_from": at(1), "valid_to": at(2), "log": "bookings.x", "log_offset": 1}  # fmt: skip
    (tmp_path / "big-blue").mkdir()
    fill(tmp_path / "big-blue", {"containers_now": [now], "bookings": [old]})
    client = client_of(board_of(tmp_path, monkeypatch))
    assert "matches OLD7" in plain(client.get("/containers?q=old7").text)
    assert rows_of(client.get("/containers?q=old8").text) == []


def test_a_whole_number_leads_to_its_page(client: Client) -> None:
    answer = client.get("/containers", params={"q": f" {WARM.lower()} "})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/containers/{WARM}")


def test_the_list_is_cut_and_says_of_how_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = [
        {"equipment_reference": number(i), "seen_date_time": at(4), "reading_date_time": at(4), "open_alerts": 0,
         "worst_severity": None, "door_open": i == 777}
        for i in range(800)
    ]  # fmt: skip
    boxes.append(boxes[0] | {"equipment_reference": number(801), "custody_event": "GTOT", "open_alerts": 0})
    (tmp_path / "big-blue").mkdir()
    fill(tmp_path / "big-blue", {"containers_now": boxes})
    client = client_of(board_of(tmp_path, monkeypatch))
    page = client.get("/containers").text
    assert len(rows_of(page)) == LISTED
    assert rows_of(page)[0] == number(777)
    assert f"The first {LISTED} of 801" in plain(page)
    assert rows_of(client.get("/containers?show=quiet").text) == [number(801)]
    assert rows_of(client.get("/containers?show=warn").text) == [number(777)]
    assert len(rows_of(client.get("/containers?show=strange").text)) == LISTED


def test_there_is_no_list_before_there_are_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = client_of(board_of(tmp_path, monkeypatch)).get("/containers")
    assert answer.status_code == 503
    assert "There are no tables in" in answer.text


def test_all_pages_are_for_staff() -> None:
    assert {page.access for page in PAGES} == {Access.STAFF}
    assert {page.method for page in PAGES} == {"GET"}


def test_a_customer_sees_no_container_here(board: BoardService) -> None:
    customer = next(iter(board.topology.customers))
    assert client_of(board, customer).get(f"/containers/{WARM}").status_code == 404
