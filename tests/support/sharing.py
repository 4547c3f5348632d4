"""A fleet of two boxes and five customers for tests of Delta Sharing, its feeds filled by the feeds' own code."""

from __future__ import annotations

import atexit
import datetime as dt
import hashlib
import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import uvicorn
from deltalake import DeltaTable
from starlette.applications import Starlette

from board.sharing.profile import profile
from board.sharing.protocol import PREFIX
from board.sharing.routes import routes
from board.sharing.service import SharingService
from board.sharing.tokens import IssuedToken, Tokens
from shore.feeds.readers import readers_here
from shore.paths import TablePaths
from tests.support.oracle.entitlement.look import entitled
from tests.support.shore.fleet import BOX, MARLIN, OTHER, STAR, alert, at, change, docked, event, reading, topology
from tests.support.tables import Rows, fill
from tests.support.waits import until
from topologies.model import Customer, Topology

CUSTOMERS = {
    "ducks": Customer(feed_at="tokyo"),
    "beans": Customer(feed_at="tokyo"),
    "toyshop": Customer(feed_at="tokyo", feed="coarse"),
    "lessor": Customer(feed_at="tokyo", feed="alerts", owners=("BIGU",)),
    "harbour": Customer(feed_at="tokyo", feed="movements", port="SGSIN"),
    "away": Customer(),
}


def shared_topology() -> Topology:
    """Return a topology with a customer of each kind of feed, and one without a feed."""
    return topology().model_copy(update={"customers": CUSTOMERS})


def excursion(box: str, start: float, end: float, recovered: float | None) -> dict[str, Any]:
    return {
        "excursion_id": f"{box}/TEMPERATURE/{start}",
        "equipment_reference": box,
        "quantity": "TEMPERATURE",
        "start_date_time": at(start),
        "last_date_time": at(end - 0.5),
        "end_date_time": at(end),
        "recovered_date_time": None if recovered is None else at(recovered),
        "readings": 3,
    }


Said = dict[tuple[str, str, int], dict[str, Any]]


def _rows() -> Rows:
    return {
        "readings": [
            *(reading(i, i / 2, payload=json.dumps({"n": i}).encode()) for i in range(30)),
            *(reading(i, i / 2, OTHER, supply_temperature=900.0 + i, payload=b"{}") for i in range(10)),
        ],
        "alerts": [
            alert(0, 1, payload=b"{}"),
            alert(1, 11, alert_id="a2", payload=b"{}"),
            alert(2, 2, alert_id="a3", equipment_reference=OTHER, payload=b"{}"),
        ],
        "events": [
            event(0, 2, "LOAD", vessel_imo_number=STAR),
            docked(1, 3, "DEPA"),
            event(2, 12, "DISC", site="singapore", vessel_imo_number=STAR),
            event(3, 2, "GTIN", OTHER),
            event(4, 1, "GTIN", OTHER, "singapore", event_id=f"LOAD-2-{BOX}"),  # told before that LOAD, with its id
            docked(5, 2.5, "DEPA", "singapore", MARLIN, event_id=f"DEPA-3-{STAR}"),  # the same for that DEPA
        ],
        "excursions": [
            excursion(BOX, 1, 2, 2.5),
            excursion(BOX, 3, 4, None),  # six hours of silence would end after the booking does
            excursion(BOX, 9, 10.5, 11),  # of two customers
            excursion(BOX, 12, 13, None),
            excursion(OTHER, 1, 2, 2.5),
        ],
        "booking_changes": [
            change(0, 0, valid_to=at(9.5), consignee="toyshop"),
            change(1, 0, booking_reference="B2", customer="beans", equipment_reference=OTHER),
            change(2, 0, booking_reference="B3", customer="beans", valid_from=at(10)),
        ],
        **{name: [] for name in ("alerts_ashore", "custody_entries", "digests", "feeds", "sites", "owners")},
    }


@cache
def _filled() -> tuple[Path, Said]:
    """Fill the tables once; tests copy them, because filling takes far longer. Return their folder, and what feeds
    have: nothing is taken back yet."""
    folder, said = Path(tempfile.mkdtemp()), Said()
    atexit.register(shutil.rmtree, folder)
    fill(folder, _rows())
    assert fill_feeds(folder, shared_topology(), said, 0) == len(said)
    return folder, said


def fill_feeds(folder: Path, topology: Topology, said: Said, first: int) -> int:
    """Append to table ``feeds`` what the comparison of feeds with tables finds too much and too little. Return how many
    rows that were."""
    paths = TablePaths.of(folder)
    rows = []
    for offset, row in enumerate(entitled(paths, readers_here(topology)).to_pylist(), first):
        origin, payload = (row["customer"], row["log"], row["log_offset"]), row["payload"] or b""
        retracts = row["retracts"] is not None
        if retracts:
            said.pop(origin)
        else:
            said[origin] = json.loads(payload)
        same = ("customer", "log", "log_offset", "equipment_reference", "device_date_time", "revision")
        digest = hashlib.md5(payload, usedforsecurity=False).hexdigest() if "/" in row["log"] else None
        rows.append(
            {name: row[name] for name in same} | {"feed_offset": offset, "retracts": retracts, "digest": digest}
        )
    fill(folder, {"feeds": rows})
    return len(rows)


class Clock:
    """A clock that a test turns forward."""

    def __init__(self) -> None:
        self.now = dt.datetime.now(dt.UTC).replace(microsecond=0)

    def __call__(self) -> dt.datetime:
        return self.now

    def forward(self, **by: float) -> None:
        self.now += dt.timedelta(**by)


class World:
    """Tables, tokens and the service over them.

    ``ducks`` has booked ``BOX`` for its hours 0 to 9.5, with ``toyshop`` as consignee, and ``beans`` from hour 10 on;
    ``beans`` has also booked ``OTHER``. The readings of ``BOX`` come every half hour for 15 hours.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = TablePaths.of(folder)
        self.clock = Clock()
        self.topology = shared_topology()
        stored, said = _filled()
        shutil.copytree(stored / "delta", folder / "delta")
        self.said = dict(said)  # what feeds have, by customer and origin
        self._next = len(said)
        self.tokens = Tokens(folder, self.clock)
        self.service = SharingService(
            self.topology, folder, self.paths, folder / "sharing" / "files", self.clock, fresh=dt.timedelta(0)
        )

    def add(self, **rows: list[dict[str, Any]]) -> None:
        """Append rows to tables, and to the feeds what follows from them."""
        fill(self.folder, rows)
        self.deliver()

    def deliver(self) -> None:
        """Append to the feeds what the tables have more than them, and retract what they have less."""
        self._next += fill_feeds(self.folder, self.topology, self.said, self._next)

    def token(self, customer: str, **how: dt.timedelta) -> str:
        return self.tokens.issue(customer, **how).token

    def table(self, name: str) -> pa.Table:
        return DeltaTable(self.paths.table(name)).to_pyarrow_table()


@contextmanager
def served(service: SharingService) -> Iterator[str]:
    """Serve the routes on this machine. Yields the endpoint."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes(service)), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started, "the server")
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}{PREFIX}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def write_profile(folder: Path, endpoint: str, token: str) -> str:
    """Write a profile file as the command does. Return its path."""
    file = folder / f"{hashlib.sha256(token.encode()).hexdigest()[:12]}.share"
    file.write_text(profile(endpoint, IssuedToken(token, dt.datetime(2100, 1, 1, tzinfo=dt.UTC))))
    return str(file)


def values(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without what is null."""
    return {name: value for name, value in row.items() if value is not None}
