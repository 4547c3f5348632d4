"""Which alerts belong on a port's page, how an open page hears of them, and its map."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

import board.pages.live
import board.pages.port
from board.pages.live import _events as events_of
from board.pages.live import _wanted as wanted_by
from board.pages.port import PortView, port_view
from board.pages.port import _concerns as concerns
from board.security import COOKIE
from board.service import _KEPT as KEPT
from board.service import BoardService
from board.viewer import LOCAL
from fairlead.errors import UnavailableError
from fairlead.records.alert import LEFT_PORT, Alert, Evidence
from fairlead.records.reading import Device, GeoLocation
from fairlead.records.ship import Position
from shore.report.port import READ as read_by_port
from shore.report.port import Approach, PortReport, Ship
from tests.support.board import NOW, STAR, alert
from tests.support.tables import fill
from topologies.context import open_topology
from topologies.loader.load import load

BIG_BLUE = load("big-blue")


def report(*ships: str, **approach: Any) -> PortReport:
    coming = tuple(
        Ship(
            vessel_imo_number=imo,
            vessel=imo,
            approach=Approach(bound="CARGO", **approach),
            last_call=None,
            for_port=1,
            concerning=0,
            boxes=(),
        )
        for imo in ships
    )
    empty: dict[str, Any] = dict.fromkeys(("in_port", "not_heard", "dock", "movements", "calls", "missing"), ())
    return PortReport(
        un_location_code="SGSIN",
        port="Singapore",
        audience="operator",
        as_of=NOW,
        arriving=coming,
        elsewhere=0,
        versions={},
        **empty,
    )


@pytest.mark.parametrize(
    ("raised", "known", "expected"),
    [
        (alert("singapore"), report(), True),
        (alert("tokyo"), report(), False),
        (alert("duck-star"), report(STAR), True),
        (alert("duck-star", vessel_imo_number=STAR), report(STAR), True),
        (alert("duck-star"), report("9321483"), False),
        (alert("duck-star", evidence=(Evidence(name=LEFT_PORT, weight=1, detail="SGSIN"),)), report(), True),
        (alert("duck-star"), None, True),
        (alert("tokyo"), None, False),
    ],
)
def test_an_alert_belongs_on_the_page_of_its_port_and_of_ships_that_come(
    raised: Alert, known: PortReport | None, expected: bool
) -> None:
    assert concerns(BIG_BLUE, known, raised, "SGSIN") is expected


# --- open pages


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BoardService:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return BoardService(open_topology("big-blue"), "singapore")


def asked(service: BoardService, path: str) -> Request:
    """A request of Singapore's page, by somebody who has signed in."""
    token, _ = service.sessions.open(LOCAL.name)
    headers = [(b"host", b"localhost"), (b"cookie", f"{COOKIE}={token}".encode())]
    scope = {"type": "http", "scheme": "http", "method": "GET", "path": path, "query_string": b"port=SGSIN"}
    return Request({**scope, "headers": headers})


async def test_the_end_of_an_alert_reaches_the_page_of_a_port_whose_tables_no_longer_name_its_ship(
    service: BoardService,
) -> None:
    request = asked(service, "/live")
    events = events_of(service, request, service.live.subscribe(), lambda _alert: False)
    assert await anext(events) == ": welcome\n\n"
    service.live.tell(alert("duck-star"))
    service.live.tell(alert("duck-star", state="CLEARED", revision=1))
    removed = {"target": "alerts", "id": "alert-duck-star-x", "html": None}
    assert await anext(events) == f"event: fragment\ndata: {json.dumps(removed)}\n\n"


async def test_the_rows_of_alerts_follow_from_the_tables_as_they_are_now(
    service: BoardService, monkeypatch: pytest.MonkeyPatch
) -> None:
    coming, readable = [STAR], True

    def read(_board: BoardService, _code: str) -> PortView:
        if not readable:
            raise UnavailableError("the table is away")
        return PortView({}, report(*coming), (), "")

    async def rows() -> bytes:
        return bytes((await board.pages.live.alerts(service, asked(service, "/live/alerts"))).body)

    monkeypatch.setattr(board.pages.port, "_read", read)
    monkeypatch.setattr(service.live, "open_alerts", lambda: [alert("duck-star")])
    monkeypatch.setattr(service.live, "opened", lambda _id: NOW)
    assert b"BIGU1000010" in await rows()
    coming.clear()
    service.tables_changed()
    assert b"BIGU1000010" not in await rows()
    readable = False
    service.tables_changed()
    assert b"BIGU1000010" in await rows()  # better one alert too many than no answer


async def test_an_open_page_knows_its_ships_when_the_board_has_forgotten_them(
    service: BoardService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy board forgets an answer within a minute; each alert of any ship would come to the page."""
    monkeypatch.setattr(board.pages.port, "_read", lambda _board, _code: PortView({}, report(STAR), (), ""))
    await port_view(service, "SGSIN")
    wanted = wanted_by(service, asked(service, "/live"))
    for other in range(KEPT):
        await service.read_once(other, lambda: None)
    assert service.last_answer(("port", "SGSIN")) is None
    assert (wanted(alert("duck-star")), wanted(alert("blue-marlin"))) == (True, False)


def test_a_port_is_made_again_only_when_a_table_of_it_changes(
    service: BoardService, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, views = service.context.folder, list[PortView]()
    monkeypatch.setattr(service, "last_answer", lambda _key: views[-1] if views else None)

    def read_again() -> bool:
        """Read the port, and return whether it was made anew."""
        views.append(board.pages.port._read(service, "SGSIN"))  # noqa: SLF001
        return len(views) == 1 or views[-1].report is not views[-2].report

    fill(folder, {name: [{}] for name in read_by_port})
    assert read_again()
    assert views[0].report.versions.keys() == {*read_by_port}
    fill(folder, {"readings": [{}]})  # a port's page does not show readings
    assert not read_again()
    for name in (*read_by_port, "outlook"):
        fill(folder, {name: [{}]})
        assert read_again(), name
    shutil.rmtree(service.paths.table("outlook"))
    fill(folder, {"outlook": [{}]})  # another table, with as many commits
    assert read_again()
    assert not read_again()


async def test_the_part_that_is_read_again_has_the_map_with_the_newest_place_of_each_ship(
    service: BoardService, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_tables = {"latitude": 2.0, "longitude": 104.0, "position_date_time": NOW}
    monkeypatch.setattr(
        board.pages.port, "_read", lambda _board, _code: PortView({}, report(STAR, **in_tables), (), "<p>boxes</p>")
    )
    positions: dict[str, Position] = {}
    monkeypatch.setattr(service.live, "positions", lambda: positions)

    async def ships() -> list[tuple[str, float]]:
        request = asked(service, "/ports/SGSIN/boxes")
        request.scope["path_params"] = {"code": "SGSIN"}
        text = bytes((await board.pages.port.boxes(service, request)).body).decode()
        assert text.startswith("<p>boxes</p>")
        data = re.search(r'<script type="application/json" id="port-map">(.*?)</script>', text)
        assert data is not None
        return [(ship["id"], ship["latitude"]) for ship in json.loads(data[1])["ships"]]

    assert await ships() == [(STAR, 2.0)]
    positions[STAR] = fix(STAR, NOW - dt.timedelta(minutes=1), 3.0)
    assert await ships() == [(STAR, 2.0)]
    positions[STAR] = fix(STAR, NOW + dt.timedelta(minutes=1), 1.5)
    positions["9321483"] = fix("9321483", NOW, 1.0)  # it does not come here
    assert await ships() == [(STAR, 1.5)]


def fix(imo: str, when: dt.datetime, latitude: float) -> Position:
    device = Device(device_id="gps", boot_id=1, sequence=1, device_date_time=when)
    here = GeoLocation(latitude=latitude, longitude=104.0)
    return Position(vessel_imo_number=imo, device=device, geo_location=here)
