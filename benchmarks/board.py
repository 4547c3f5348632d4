"""The board with a large fleet: how long pages take, what open pages cost, and what a page weighs.

    python -m benchmarks.board [--rows 20000000] [--boxes 20000] [--people 50] [--streams 1000] [--seconds 30]
        [--tables FOLDER]

One port with a real broker; tables of ``--rows`` readings of ``--boxes`` containers, put together as
``fairlead shore compact`` leaves them; 2,000 of the boxes stand on the dock, the others are on 40 ships. The board is a
process of its own, ``fairlead board``. ``--people`` have the port's page open and load it again every ten seconds; one
more opens pages of containers, each another one. Meanwhile each ship has a new position every ten seconds. Then
``--streams`` event streams are open, and an alert is raised each second. Writes ``build/bench/board.json``.

Most of the time goes into the tables. ``--tables`` keeps them in a folder, and finds them there the next time.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import gzip
import os
import random
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import pyarrow as pa
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake

from acl.apply import apply_topology
from benchmarks.harness import FOLDER, Figures, Say, main
from benchmarks.readings import FIRST, INTERVAL, generate, numbers
from fairlead.cli.commands.board import start_in_background
from fairlead.errors import UnavailableError
from fairlead.kafka.admin import create_logs
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.local.workers import Workers
from fairlead.records import encode
from fairlead.records.alert import Alert, Evidence
from shore.delta.commit import create_table
from shore.maintenance import compact, maintenance_session, plan_compaction
from shore.paths import TablePaths
from shore.session import close, spark
from shore.tables import TABLES
from topologies.context import Context, open_topology
from topologies.users import service_users

PORT: Final = "tokyo"
SHIPS: Final = 40
DOCK: Final = 2_000
_PAUSE: Final = 10.0  # seconds between two loads of one person
_COMMIT: Final = 10.0  # seconds between two commits of positions, as shore makes them
_TARGETS: Final = {
    "port_seconds_95": 1.0,
    "container_seconds_95": 1.0,
    "resident_megabytes": 500.0,
    "streams_cores": 0.5,
    "page_megabytes": 1.0,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=20_000_000, help="readings in the tables")
    parser.add_argument("--boxes", type=int, default=20_000, help="containers among them")
    parser.add_argument("--people", type=int, default=50, help="people with the port's page open")
    parser.add_argument("--streams", type=int, default=1_000, help="open event streams")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each is measured")
    parser.add_argument("--tables", type=Path, help="a folder that keeps the tables, for the next time")


def measure(options: argparse.Namespace, say: Say) -> Figures:
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="fairlead-board-", dir=FOLDER))
    os.environ["FAIRLEAD_HOME"] = os.environ["TMPDIR"] = str(folder.absolute())
    file = folder / "board.yaml"
    file.write_text(_topology(), encoding="utf-8")
    context = open_topology(str(file))
    sites = LocalSites(context.folder)
    try:
        if options.tables is None:
            _fill(context.folder, options, say)
        else:
            context.folder.mkdir(parents=True, exist_ok=True)
            (context.folder / "delta").symlink_to(_kept(options, say) / "delta")
        sites.up([SiteSpec(PORT, tuple(service_users(context.topology, PORT)))])
        apply_topology(context.topology, context.resolver, sites=[PORT])
        return _measure(context, options, say)
    finally:
        sites.down(purge=True)
        shutil.rmtree(folder)


def _topology() -> str:
    ships = "\n".join(f'  ship{i}: {{kind: ship, title: Ship {i}, imo: "{_imo(i)}"}}' for i in range(SHIPS))
    return f"""
name: board
title: A large fleet
sites:
  {PORT}: {{kind: port, title: Port of Tokyo, unlocode: JPTYO}}
{ships}
streams: {{containers: {{insert_point: moves, owners: [MSKU]}}}}
shore: {{at: {PORT}}}
board: {{at: [{PORT}], read: "", operate: ""}}
"""


def _imo(ship: int) -> str:
    """An IMO number with its check digit."""
    six = f"9{ship:05d}"
    return six + str(sum(int(digit) * weight for digit, weight in zip(six, range(7, 1, -1), strict=True)) % 10)


def _kept(options: argparse.Namespace, say: Say) -> Path:
    """The tables in the folder that keeps them; they are made where it has none of this size."""
    folder: Path = options.tables.absolute() / f"{options.rows}-rows-{options.boxes}-boxes"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        _fill(unfinished, options, say)
        unfinished.rename(folder)
    return folder


def _fill(folder: Path, options: argparse.Namespace, say: Say) -> None:
    rows, boxes = options.rows // options.boxes * options.boxes, options.boxes
    paths = TablePaths.of(folder)
    folder.mkdir(parents=True, exist_ok=True)
    session = spark(folder)
    say(f"generating {rows:,} readings of {boxes:,} containers")
    generate(session, paths.table("readings"), rows, boxes=boxes, file_rows=1_000_000)
    say("putting them together")
    (step,) = plan_compaction(paths, ["readings"])
    compact(maintenance_session(session), paths, step)
    newest = FIRST + rows // boxes * INTERVAL
    for name, found in _other_tables(boxes, newest).items():
        create_table(session, TABLES[name], paths.table(name))
        if found:
            content = pa.Table.from_pylist(found, schema=TABLES[name].plain_schema)
            session.createDataFrame(content).write.format("delta").mode("append").save(paths.table(name))
    close(session)
    say("the tables are there")


def _other_tables(boxes: int, newest: dt.datetime) -> dict[str, list[dict[str, Any]]]:
    now, bookings, excursions = [], [], []
    for index, number in enumerate(numbers(boxes)):
        ship = None if index % (boxes // DOCK) == 0 else index % SHIPS
        reference = f"BKG{index:07d}"
        setpoint = (-18.0, 2.0, 5.0, 13.0)[index % 4]
        now.append(
            {
                "equipment_reference": number,
                "holder": PORT if ship is None else f"ship{ship}",
                "holder_kind": "port" if ship is None else "ship",
                "un_location_code": "JPTYO" if ship is None else None,
                "vessel_imo_number": None if ship is None else _imo(ship),
                "held_since": newest - dt.timedelta(days=2),
                "seen_date_time": newest,
                "device_date_time": newest,
                "reading_date_time": newest,
                "setpoint_temperature": setpoint,
                "supply_temperature": setpoint + 0.2,
                "return_temperature": setpoint + 0.6,
                "is_connected_to_power_source": index % 50 != 0,
                "is_powered": index % 50 != 0,
                "booking_reference": reference,
            }
        )
        bookings.append(
            {
                "booking_reference": reference,
                "equipment_reference": number,
                "customer": f"customer{index % 200}",
                "commodity": "bananas",
                "status": "CONFIRMED",
                "setpoint_temperature": setpoint,
                "port_of_discharge": "JPTYO" if index % 3 == 0 else "SGSIN",
                "valid_from": FIRST - dt.timedelta(days=9),
                "is_current": True,
            }
        )
        if index % 20 == 0:
            excursions.append(
                {
                    "equipment_reference": number,
                    "quantity": "TEMPERATURE",
                    "start_date_time": newest - dt.timedelta(hours=9),
                    "end_date_time": newest - dt.timedelta(hours=7),
                    "minutes_out_of_band": 110.0,
                }
            )
    positions = [_position(ship, newest, -step) for ship in range(SHIPS) for step in range(1_000)]
    site_rows = [{"site": PORT, "kind": "port", "title": "Port of Tokyo", "un_location_code": "JPTYO"}]
    site_rows += [
        {"site": f"ship{i}", "kind": "ship", "title": f"Ship {i}", "vessel_imo_number": _imo(i)} for i in range(SHIPS)
    ]
    some: dict[str, list[dict[str, Any]]] = {
        "sites": site_rows,
        "containers_now": now,
        "bookings": bookings,
        "excursions": excursions,
        "positions": positions,
    }
    return {name: [] for name in TABLES if name != "readings"} | some


def _position(ship: int, newest: dt.datetime, step: int) -> dict[str, Any]:
    """The position of a ship ten minutes times ``step`` after the newest reading."""
    return {
        "vessel_imo_number": _imo(ship),
        "device_date_time": newest + dt.timedelta(minutes=10 * step),
        "latitude": 30.0 - ship / 3 + step / 20,
        "longitude": 140.0 + ship,
        "speed_over_ground": 18.0,
        "course_over_ground": 330.0,
        "log": f"ships.{_imo(ship)}.location",
        "log_offset": 10_000 + step,
    }


def _measure(context: Context, options: argparse.Namespace, say: Say) -> Figures:
    link = start_in_background(context)
    workers = Workers(context.folder)
    try:
        (worker,) = workers.all()
        figures = asyncio.run(_ask(context, psutil.Process(worker.pid), link, options, say))
    finally:
        workers.stop()
    figures["target"] = _TARGETS
    figures["met"] = {name: figures[name] <= most for name, most in _TARGETS.items()}
    return figures


async def _ask(context: Context, board: psutil.Process, link: str, options: argparse.Namespace, say: Say) -> Figures:
    address, _, _ = link.partition("/local/")
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=60, limits=limits) as client:
        await client.get(link)
        weight, port_bytes = await _weight(client, "/ports/JPTYO")
        say(f"{options.people} people look at the port for {options.seconds:.0f} s")
        began = time.monotonic()
        until = began + options.seconds
        moving = asyncio.create_task(_move_ships(context, options, until))
        found = await asyncio.gather(
            _open_containers(client, numbers(options.boxes), until),
            *(_look_at_port(client, until) for _ in range(options.people)),
        )
        await moving
        containers, ports = found[0], [seconds for each in found[1:] for seconds in each]
        resident = board.memory_info().rss
        say(f"{options.streams:,} event streams for {options.seconds:.0f} s")
        cores, events, late = await _streams(context, client, board, options)
    return {
        "port_seconds_95": _of_hundred(ports, 95),
        "port_seconds_median": round(statistics.median(ports), 3),
        "ports_loaded": len(ports),
        "container_seconds_95": _of_hundred(containers, 95),
        "container_seconds_median": round(statistics.median(containers), 3),
        "containers_loaded": len(containers),
        "resident_megabytes": round(max(resident, board.memory_info().rss) / 1e6, 1),
        "streams": options.streams,
        "streams_cores": round(cores, 3),
        "events_received": events,
        "slowest_event_seconds": round(late, 3),
        "page_megabytes": round(weight / 1e6, 3),
        "port_html_kilobytes": round(port_bytes / 1e3, 1),
        "rows": options.rows,
        "containers": options.boxes,
        "people": options.people,
    }


async def _weight(client: httpx.AsyncClient, path: str) -> tuple[int, int]:
    """Compressed bytes of a page with everything that it loads, and of its HTML alone."""
    page = await client.get(path)
    page.raise_for_status()
    html = len(gzip.compress(page.content, 6))
    files = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)) | {"/static/vendor/land/land.json"}
    answers = [await client.get(each) for each in sorted(files)]
    return html + sum(len(gzip.compress(each.content, 6)) for each in answers), html


async def _look_at_port(client: httpx.AsyncClient, until: float) -> list[float]:
    taken = []
    await asyncio.sleep(random.random() * _PAUSE)  # noqa: S311 - people do not come all at once
    while time.monotonic() < until:
        began = time.monotonic()
        (await client.get("/ports/JPTYO")).raise_for_status()
        taken.append(time.monotonic() - began)
        await asyncio.sleep(_PAUSE)
    return taken


async def _open_containers(client: httpx.AsyncClient, names: Sequence[str], until: float) -> list[float]:
    taken = []
    for number in names[3 :: max(1, len(names) // 200)]:
        if time.monotonic() > until:
            break
        began = time.monotonic()
        (await client.get(f"/containers/{number}")).raise_for_status()
        taken.append(time.monotonic() - began)
        await asyncio.sleep(0.5)
    return taken


async def _move_ships(context: Context, options: argparse.Namespace, until: float) -> None:
    """Commit a position of each ship again and again."""
    table, newest = TablePaths.of(context.folder).table("positions"), FIRST + options.rows // options.boxes * INTERVAL
    schema = TABLES["positions"].plain_schema
    before = int(DeltaTable(table).version())
    while time.monotonic() < until:
        before += 1
        rows = pa.Table.from_pylist([_position(ship, newest, before) for ship in range(SHIPS)], schema=schema)
        await asyncio.to_thread(write_deltalake, table, rows, mode="append")
        await asyncio.sleep(_COMMIT)


async def _streams(
    context: Context, client: httpx.AsyncClient, board: psutil.Process, options: argparse.Namespace
) -> tuple[float, int, float]:
    """Cores that the board uses, events that the streams received, and the slowest one's seconds."""
    raised: dict[str, float] = {}
    seen: list[float] = []
    ready = asyncio.Semaphore(0)

    async def listen() -> None:
        async with client.stream("GET", "/live") as answer:
            async for line in answer.aiter_lines():
                if line.startswith(": welcome"):
                    ready.release()
                elif line.startswith("data: ") and (known := re.search(r"bench-\d+", line)) and known[0] in raised:
                    seen.append(time.monotonic() - raised[known[0]])

    tasks = [asyncio.create_task(listen()) for _ in range(options.streams)]
    for _ in tasks:
        await asyncio.wait_for(ready.acquire(), 60)
    before, began = sum(board.cpu_times()[:2]), time.monotonic()
    for number in range(int(options.seconds)):
        await asyncio.to_thread(_raise, context, f"bench-{number}", raised)
        await asyncio.sleep(max(0.0, began + number + 1 - time.monotonic()))
    cores = (sum(board.cpu_times()[:2]) - before) / (time.monotonic() - began)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if len(seen) < options.streams:
        raise UnavailableError(f"{options.streams:,} streams received {len(seen):,} events")
    return cores, len(seen), max(seen)


def _raise(context: Context, alert_id: str, raised: dict[str, float]) -> None:
    endpoint = context.resolver.kafka(PORT, "admin")
    now = dt.datetime.now(dt.UTC)
    alert = Alert(
        alert_id=alert_id,
        kind="POWER_LOST",
        severity="ALARM",
        state="OPENED",
        equipment_reference=numbers(1)[0],
        raised_at=PORT,
        event_date_time=now,
        raised_date_time=now,
        evidence=(Evidence(name="power", weight=1.0, detail="without power for 10 min"),),
    )
    create_logs(endpoint, {f"alerts.{PORT}": {}})
    producer = Producer({**endpoint.librdkafka(), "log_level": 0})
    raised[alert_id] = time.monotonic()
    producer.produce(f"alerts.{PORT}", encode(alert))
    producer.flush(30)


def _of_hundred(values: Sequence[float], percentile: int) -> float:
    return round(statistics.quantiles(values, n=100)[percentile - 1], 3)


if __name__ == "__main__":
    main("board", {"board": measure}, __doc__, add_options)
