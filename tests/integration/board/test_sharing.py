"""Delta Sharing over HTTP: the real client reads what is its customer's, and nobody reads anything else."""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import delta_sharing
import httpx
import pandas as pd
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from requests.exceptions import HTTPError
from typer.testing import CliRunner

from board.app import create_app
from board.openapi import TOKEN
from board.server import shares
from board.service import BoardService
from board.sharing.content import SHARED
from board.sharing.protocol import PREFIX
from board.sharing.routes import routes
from fairlead.cli.commands import feed
from fairlead.errors import ExitCode
from fairlead.local.registry import LocalSiteRegistry
from shore.feeds.readers import readers_here
from tests.support.openapi import OPERATIONS, check_answer
from tests.support.sharing import World, served, write_profile
from tests.support.shore.fleet import BOX, OTHER, at, change, reading
from topologies.context import Context
from topologies.endpoints import EndpointResolver

TABLES = {
    "ducks": ["readings", "conditions", "excursions", "alerts"],
    "beans": ["readings", "conditions", "excursions", "alerts"],
    "toyshop": ["conditions", "milestones", "alerts"],
    "lessor": ["alerts"],
}


CDF = ["_change_type", "_commit_version", "_commit_timestamp"]
HTTP = httpx.Client(event_hooks={"response": [check_answer]})


@pytest.fixture(autouse=True, scope="module")
def _closed() -> Iterator[None]:
    yield
    HTTP.close()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def endpoint(world: World) -> Iterator[str]:
    with served(world.service) as found:
        yield found


class Asker:
    """A customer's client: the real one, and plain requests with its token."""

    def __init__(self, world: World, endpoint: str, customer: str) -> None:
        self.customer = customer
        self.token = world.token(customer)
        self.endpoint = endpoint
        self.profile = write_profile(world.folder, endpoint, self.token)

    def client(self) -> delta_sharing.SharingClient:
        return delta_sharing.SharingClient(self.profile)

    def pandas(self, table: str, **which: Any) -> pd.DataFrame:
        found: pd.DataFrame = delta_sharing.load_as_pandas(f"{self.profile}#{self.customer}.default.{table}", **which)
        return found

    def changes(self, table: str, **span: Any) -> pd.DataFrame:
        url = f"{self.profile}#{self.customer}.default.{table}"
        found: pd.DataFrame = delta_sharing.load_table_changes_as_pandas(url, **span)
        return found

    def version(self, table: str) -> int:
        return int(delta_sharing.get_table_version(f"{self.profile}#{self.customer}.default.{table}"))

    def ask(self, path: str, method: str = "GET", body: object = None, token: str | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        return HTTP.request(method, self.endpoint + path, headers=headers, json=body)

    def links(self, table: str) -> list[str]:
        answer = self.ask(table_path(self.customer, table, "query"), "POST", {})
        assert answer.status_code == 200
        return [json.loads(line)["file"]["url"] for line in answer.text.splitlines()[2:]]


def table_path(customer: str, table: str, what: str) -> str:
    return f"/shares/{customer}/schemas/default/tables/{table}/{what}"


def test_the_client_lists_its_own_share(world: World, endpoint: str) -> None:
    for customer, names in TABLES.items():
        client = Asker(world, endpoint, customer).client()
        assert [(each.share, each.schema, each.name) for each in client.list_all_tables()] == [
            (customer, "default", name) for name in names
        ]
        (share,) = client.list_shares()
        (schema,) = client.list_schemas(share)
        assert [each.name for each in client.list_tables(schema)] == names


def test_the_client_reads_every_table(world: World, endpoint: str) -> None:
    for reader in readers_here(world.topology):
        for table in SHARED[reader.grain]:
            asker = Asker(world, endpoint, reader.customer)
            found = asker.pandas(table.name)
            assert list(found.columns) == table.schema.names
            (file,) = (world.folder / "sharing" / "files" / reader.customer / table.name).glob("*.parquet")
            pd.testing.assert_frame_equal(found, pq.read_table(file).to_pandas(), check_dtype=False)


def test_readings_are_those_of_the_feed(world: World, endpoint: str) -> None:
    ducks = Asker(world, endpoint, "ducks").pandas("readings")
    assert list(ducks["log_offset"]) == list(range(19)) and set(ducks["equipment_reference"]) == {BOX}
    assert list(ducks["supply_temperature"]) == [float(i) for i in range(19)]
    assert ducks["device_date_time"].iloc[1] == pd.Timestamp(at(0.5))
    beans = Asker(world, endpoint, "beans").pandas("readings")
    assert sorted(beans["equipment_reference"]) == [BOX] * 10 + [OTHER] * 10
    few = Asker(world, endpoint, "ducks").pandas("readings", limit=3)
    assert list(few["log_offset"]) == [0, 1, 2]


def test_an_empty_table_has_its_columns(world: World, endpoint: str) -> None:
    world.add(booking_changes=[change(3, 5, status="CANCELLED", valid_to=at(9.5), consignee="toyshop")])
    found = Asker(world, endpoint, "ducks").pandas("readings")
    assert len(found) == 0 and "supply_temperature" in found.columns


def test_older_versions_are_read_until_something_is_taken_back(world: World, endpoint: str) -> None:
    ducks = Asker(world, endpoint, "ducks")
    first, began = ducks.version("readings"), world.clock.now
    assert len(ducks.pandas("readings")) == 19
    world.clock.forward(minutes=1)
    world.add(readings=[reading(50, 3, payload=b"{}")])
    assert len(ducks.pandas("readings")) == 20 and ducks.version("readings") == first + 1
    assert len(ducks.pandas("readings", version=first)) == 19
    assert len(ducks.pandas("readings", timestamp=began.isoformat())) == 19
    with pytest.raises(HTTPError, match="that version is not kept"):
        ducks.pandas("readings", version=first - 1)
    (link,) = ducks.links("readings")
    assert HTTP.get(link).status_code == 200
    world.add(booking_changes=[change(3, 5, valid_to=at(4), consignee="toyshop")])
    assert HTTP.get(link).status_code == 404  # although nobody has asked for a newer version
    assert sorted(ducks.pandas("readings")["log_offset"]) == [*range(8), 50]
    assert ducks.version("readings") == first + 2
    for gone in (first, first + 1):
        with pytest.raises(HTTPError, match="that version is not kept"):
            ducks.pandas("readings", version=gone)
    assert HTTP.get(link).status_code == 404


def test_changes_from_version_to_version(world: World, endpoint: str) -> None:
    ducks = Asker(world, endpoint, "ducks")
    first = ducks.version("readings")
    hours = ducks.version("conditions")
    began = ducks.pandas("conditions")
    world.clock.forward(minutes=1)
    world.add(readings=[reading(50, 3, payload=b"{}")])
    ducks.version("readings"), ducks.version("conditions")
    world.clock.forward(minutes=1)
    world.add(readings=[reading(51, 3.25, payload=b"{}")])
    found = ducks.changes("readings", starting_version=first + 1)
    assert list(found.columns) == [*SHARED["detailed"][0].schema.names, *CDF]
    assert [tuple(row) for row in found[["log_offset", *CDF[:2]]].itertuples(index=False)] == [
        (50, "insert", first + 1),
        (51, "insert", first + 2),
    ]
    made = dt.datetime.fromtimestamp(int(found["_commit_timestamp"].iloc[1]) / 1000, dt.UTC)
    assert made == world.clock.now
    one = ducks.changes("readings", starting_version=first + 1, ending_version=first + 1)
    assert list(one["log_offset"]) == [50]
    by_time = ducks.changes("readings", starting_timestamp=made.isoformat())
    assert list(by_time["log_offset"]) == [51]
    changed = ducks.changes("conditions", starting_version=hours + 1, ending_version=hours + 1)
    assert list(changed["_change_type"]) == ["update_preimage", "update_postimage"]  # one hour has one reading more
    assert list(changed["readings"]) == [2, 3] and set(changed["window_start"]) == {pd.Timestamp(at(3))}
    changed = ducks.changes("conditions", starting_version=hours + 1)
    assert applied(began, changed, ["equipment_reference", "window_start"]).equals(ducks.pandas("conditions"))


def applied(table: pd.DataFrame, changes: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """Do what a customer's program does with changes: take out what is gone, put in what is new."""
    for _, step in changes.groupby("_commit_version"):
        gone = step[step["_change_type"].isin(["delete", "update_preimage"])].set_index(key).index
        come = step[step["_change_type"].isin(["insert", "update_postimage"])].drop(columns=CDF)
        table = pd.concat([table[~table.set_index(key).index.isin(gone)], come]).astype(table.dtypes)
    return table.sort_values(key, ignore_index=True)


def test_no_change_shows_what_was_taken_back(world: World, endpoint: str) -> None:
    """Who follows the changes is told to read the table anew: rows that are deleted would be rows that are shown."""
    ducks = Asker(world, endpoint, "ducks")
    first = ducks.version("readings")
    world.clock.forward(minutes=1)
    world.add(readings=[reading(50, 3, payload=b"{}")])
    assert list(ducks.changes("readings", starting_version=first + 1)["log_offset"]) == [50]
    files = world.folder / "sharing" / "files" / "ducks" / "readings"
    assert len(list(files.glob("*.parquet"))) == 3  # two versions, and what changed between them
    answer = ducks.ask(table_path("ducks", "readings", "changes") + f"?startingVersion={first + 1}")
    link = json.loads(answer.text.splitlines()[2])["cdf"]["url"]
    assert HTTP.get(link).status_code == 200
    world.add(booking_changes=[change(3, 5, valid_to=at(4), consignee="toyshop")])
    for start in (first, first + 1, first + 2):
        with pytest.raises(HTTPError, match="is not kept"):
            ducks.changes("readings", starting_version=start)
    with pytest.raises(HTTPError, match="is not kept"):
        ducks.changes("readings", starting_timestamp=world.clock.now.isoformat())
    assert HTTP.get(link).status_code == 404
    assert [each.stem for each in files.glob("*.parquet")] == [
        json.loads(ducks.ask(table_path("ducks", "readings", "query"), "POST", {}).text.splitlines()[2])["file"]["id"]
    ]
    world.add(readings=[reading(51, 3.25, payload=b"{}")])
    assert list(ducks.changes("readings", starting_version=first + 3)["log_offset"]) == [51]


def test_changes_that_nobody_can_have(world: World, endpoint: str) -> None:
    ducks = Asker(world, endpoint, "ducks")
    first = ducks.version("readings")
    world.add(readings=[reading(50, 3, payload=b"{}")])
    late = (world.clock.now + dt.timedelta(days=1)).isoformat().replace("+", "%2B")
    for bad in (
        "",
        "?endingVersion=5",
        "?startingVersion=x",
        f"?startingVersion={first}",
        f"?startingVersion={first + 2}",
        f"?startingTimestamp={late}",
        f"?startingVersion={first + 1}&endingVersion={first}",
        f"?startingVersion={first + 1}&endingVersion={first + 9}",
        f"?startingVersion={first + 1}&startingTimestamp={late}",
    ):
        answer = ducks.ask(table_path("ducks", "readings", "changes") + bad)
        assert answer.status_code == 400, bad
        assert answer.json()["errorCode"] == "INVALID_PARAMETER_VALUE"
    assert ducks.ask(table_path("ducks", "readings", "changes") + f"?startingVersion={first + 1}").status_code == 200


def test_a_table_that_becomes_empty_has_changes(world: World, endpoint: str) -> None:
    ducks = Asker(world, endpoint, "ducks")
    first = ducks.version("excursions")
    rows = len(ducks.pandas("excursions"))
    world.clock.forward(minutes=1)
    DeltaTable(world.paths.table("excursions")).delete()
    found = ducks.changes("excursions", starting_version=first + 1)
    assert list(found["_change_type"]) == ["delete"] * rows != []
    assert len(ducks.pandas("excursions")) == 0


def test_a_booking_that_is_given_to_another_customer(world: World, endpoint: str) -> None:
    ducks, beans = (Asker(world, endpoint, name) for name in ("ducks", "beans"))
    assert len(ducks.pandas("alerts")) == 1
    world.add(booking_changes=[change(3, 5, customer="beans", valid_to=at(9.5))])
    assert [len(ducks.pandas(table)) for table in TABLES["ducks"]] == [0, 0, 0, 0]
    assert len(beans.pandas("readings")) == 39 and len(beans.pandas("alerts")) == 3


def test_versions_by_time(world: World, endpoint: str) -> None:
    ducks = Asker(world, endpoint, "ducks")
    first = ducks.version("alerts")
    path = table_path("ducks", "alerts", "version")
    now = world.clock.now
    answer = ducks.ask(f"{path}?startingTimestamp={now.isoformat().replace('+', '%2B')}")
    assert answer.headers["delta-table-version"] == str(first)
    late = (now + dt.timedelta(days=1)).isoformat().replace("+", "%2B")
    for bad in (f"startingTimestamp={late}", "startingTimestamp=noon"):
        assert ducks.ask(f"{path}?{bad}").status_code == 400
    assert ducks.ask(table_path("ducks", "alerts", "changes") + "?startingVersion=0").status_code == 400
    assert ducks.ask("/shares/ducks/schemas/default/tables/alerts", "HEAD").headers["delta-table-version"] == str(first)
    assert ducks.ask(table_path("DUCKS", "Alerts", "version").replace("default", "Default")).status_code == 200
    assert ducks.ask(table_path("ducks", "alerts", "metadata") + f"?version={first}").status_code == 200
    assert ducks.ask(table_path("ducks", "alerts", "metadata") + f"?version={first - 1}").status_code == 400


SAMPLES = {"integer": "0", "date-time": "2020-01-01T00:00:00Z"}


def endpoints(share: str, table: str) -> list[tuple[str, str]]:
    """Return method and path of everything that can be asked about a share, by the OpenAPI document: each without a
    query, and with the first parameter of its query."""
    found = [
        ("HEAD", table_path(share, table, "").rstrip("/")),
        ("POST", table_path(share, table, "temporary-table-credentials")),
    ]
    for each in OPERATIONS:
        if TOKEN not in each.schemes or "share" not in each.guessed:
            continue
        path = each.address({"share": share, "schema": "default", "table": table}).removeprefix(PREFIX)
        found.append((each.method, path))
        for given in each.parameters("query")[:1]:
            found.append((each.method, f"{path}?{given['name']}={SAMPLES[given['schema'].get('format', 'integer')]}"))
    return found


def test_nobody_reads_what_is_anothers(world: World, endpoint: str) -> None:
    askers = {name: Asker(world, endpoint, name) for name in TABLES}
    for customer, names in TABLES.items():
        for name in names:
            askers[customer].links(name)  # all files are there to be found
    like: dict[tuple[str, str, str], Any] = {}
    for me, other in itertools.permutations(TABLES, 2):
        for method, path in sorted({each for table in TABLES[other] for each in endpoints(other, table)}):
            answer = askers[me].ask(path, method, {} if method == "POST" else None)
            assert answer.status_code == 404, (me, method, path)
            assert answer.headers.get("delta-table-version") is None
            if method != "HEAD":
                nobodys = me, method, path.replace(other, "nobody")
                if nobodys not in like:
                    like[nobodys] = askers[me].ask(nobodys[2], method).json()
                assert answer.json() == like[nobodys]
                assert not any(word in answer.text for word in (other, OTHER, BOX))


@pytest.mark.parametrize(
    "path",
    [
        "/shares/ducks/schemas/other/tables",
        table_path("ducks", "milestones", "metadata"),
        table_path("ducks", "feeds", "metadata"),
        table_path("ducks", "..%2F..%2Fbeans%2Freadings", "metadata"),
        table_path("..", "readings", "metadata"),
        "/shares/ducks/../beans",
        "/shares/%2e%2e/schemas",
        "/shares/",
        "/",
        "/files",
        "/tokens.json",
    ],
)
def test_guesses_find_nothing(world: World, endpoint: str, path: str) -> None:
    assert Asker(world, endpoint, "ducks").ask(path).status_code == 404


def test_without_a_good_token_nothing_answers(world: World, endpoint: str) -> None:
    ducks = Asker(world, endpoint, "ducks")
    old = ducks.token
    paths = [("GET", "/shares"), ("GET", "/nowhere"), *endpoints("ducks", "readings")]

    def refused(authorization: str | None) -> None:
        for method, path in paths:
            headers = {} if authorization is None else {"Authorization": authorization}
            answer = HTTP.request(method, endpoint + path, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), (method, path)
            assert method == "HEAD" or answer.json()["errorCode"] == "UNAUTHENTICATED"

    digest = json.loads((world.folder / "sharing" / "tokens.json").read_text())[0]["digest"]
    basic = base64.b64encode(f"ducks:{old}".encode()).decode()
    for bad in (None, "", "Bearer", f"Bearer {digest}", f"Bearer {old}x", f"Basic {basic}", old):
        refused(bad)
    assert ducks.ask("/shares").status_code == 200
    new = world.token("ducks")  # the customer's token is changed
    refused(f"Bearer {old}")
    assert ducks.ask("/shares", token=new).status_code == 200
    world.tokens.revoke("ducks")
    refused(f"Bearer {new}")
    short = world.token("ducks", lifetime=dt.timedelta(hours=1))
    assert ducks.ask("/shares", token=short).status_code == 200
    world.clock.forward(hours=1)
    refused(f"Bearer {short}")
    with pytest.raises(HTTPError):
        ducks.client().list_shares()


def test_a_customer_that_left_or_has_no_share_is_told_so(world: World, endpoint: str) -> None:
    for customer in ("harbour", "away", "gone"):
        for method, path in [("GET", "/shares"), *endpoints(customer, "readings")]:
            answer = Asker(world, endpoint, customer).ask(path, method)
            assert answer.status_code == 403, (customer, path)


def test_a_link_is_good_for_its_file_its_time_and_its_token_only(world: World, endpoint: str) -> None:
    ducks, beans = Asker(world, endpoint, "ducks"), Asker(world, endpoint, "beans")
    (link,) = ducks.links("readings")
    (of_beans,) = beans.links("readings")
    assert HTTP.get(link).content[:4] == b"PAR1"
    assert HTTP.get(link, headers={"Range": "bytes=0-3"}).content == b"PAR1"
    head, tail = link.rsplit("/", 1)
    said, signature = tail.split(".")
    for bad in (
        f"{said}.{of_beans.rsplit('.', 1)[1]}",
        f"{of_beans.rsplit('/', 1)[1].split('.')[0]}.{signature}",
        said,
    ):
        answer = HTTP.get(f"{head}/{bad}", headers={"Authorization": f"Bearer {ducks.token}"})
        assert answer.status_code == 403 and b"PAR1" not in answer.content
    world.clock.forward(minutes=5)
    assert HTTP.get(link).status_code == 403
    (link,) = ducks.links("readings")
    world.token("ducks", overlap=dt.timedelta(hours=1))
    assert HTTP.get(link).status_code == 200
    world.tokens.revoke("ducks")
    assert HTTP.get(link).status_code == 403 and HTTP.get(link).json()["errorCode"] == "PERMISSION_DENIED"
    (link,) = beans.links("readings")
    assert HTTP.get(link).status_code == 200


def test_a_malformed_question_is_answered(world: World, endpoint: str) -> None:
    ducks = Asker(world, endpoint, "ducks")
    headers = {"Authorization": f"Bearer {ducks.token}"}
    path = endpoint + table_path("ducks", "readings", "query")
    for body, status in ((b"{", 400), (b'{"startingVersion": 0}', 400), (b" " * (2 << 20), 413)):
        assert HTTP.post(path, content=body, headers=headers).status_code == status
    assert ducks.ask("/shares?maxResults=x").status_code == 400
    assert ducks.ask("/shares", "DELETE").status_code == 404


def test_a_table_that_cannot_be_read_is_not_empty(
    world: World, endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    ducks = Asker(world, endpoint, "ducks")
    log = Path(world.paths.table("readings")) / "_delta_log"
    for file in log.glob("*.json"):
        file.write_text("damaged")
    with caplog.at_level(logging.WARNING):
        answer = ducks.ask(table_path("ducks", "readings", "query"), "POST", {})
    assert answer.status_code == 503 and answer.json()["errorCode"] == "TEMPORARILY_UNAVAILABLE"
    assert str(world.folder) not in answer.text and "readings" in caplog.text


def test_every_route_is_below_the_prefix_and_private(world: World, endpoint: str) -> None:
    assert all(getattr(each, "path", "").startswith(f"{PREFIX}/") for each in routes(world.service))
    ducks = Asker(world, endpoint, "ducks")
    (link,) = ducks.links("readings")
    for answer in (HTTP.get(link), ducks.ask("/shares"), ducks.ask("/nowhere"), HTTP.get(f"{endpoint}/shares")):
        assert answer.headers["cache-control"] == "no-store"


async def test_the_board_serves_shares(world: World) -> None:
    local = LocalSiteRegistry(world.folder)
    context = Context("fleet", world.topology, world.folder, local, EndpointResolver(world.topology, local))
    service = BoardService(context, "tokyo")
    app = create_app(service, hosts=["board.example.com", "localhost"], further=shares(service))
    path, headers = table_path("ducks", "readings", "query"), {"Authorization": f"Bearer {world.token('ducks')}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), headers=headers) as client:

        async def link(board: str) -> str:
            answer = await client.post(board + PREFIX + path, json={})
            assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
            return str(json.loads(answer.text.splitlines()[2])["file"]["url"])

        # A proxy with TLS passes on the name: a board without TLS is not reached from another machine.
        proxied, here = await link("http://board.example.com"), await link("http://localhost:8470")
        assert proxied.startswith("https://board.example.com/delta-sharing/files/")
        assert here.startswith("http://localhost:8470/delta-sharing/files/")
        assert (await client.get(here)).content[:4] == b"PAR1"
        assert (await client.get(f"http://elsewhere{PREFIX}/shares")).status_code == 421
        client.headers.clear()
        assert (await client.get(f"http://localhost{PREFIX}/shares")).status_code == 401


def test_the_command_gives_a_profile_and_takes_it_back(
    world: World, endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from fairlead.cli.app import app

    context = Context("fleet", world.topology, world.folder, None, None)  # type: ignore[arg-type]
    monkeypatch.setattr(feed, "open_topology", lambda name: context)
    world.clock.now = dt.datetime.now(dt.UTC)  # the command has no other clock

    def run(customer: str, *more: str) -> Any:
        return CliRunner().invoke(app, ["feed", customer, "--client", "delta-sharing", *more])

    board = endpoint.removesuffix(PREFIX)
    out = tmp_path / "out"
    done = run("ducks", "--board", board, "--out", str(out))
    assert done.exit_code == ExitCode.OK, done.output
    file = out / "ducks.share"
    assert file.stat().st_mode & 0o777 == 0o600
    found = delta_sharing.load_as_pandas(f"{file}#ducks.default.readings")
    assert len(found) == 19
    refused = run("ducks", "--board", board, "--overlap", "0", "--out", str(file))  # a file, and no folder
    assert getattr(refused.exception, "exit_code", None) == ExitCode.UNAVAILABLE, refused.exception
    assert len(delta_sharing.load_as_pandas(f"{file}#ducks.default.readings")) == 19, "the token before is still good"
    printed = run("beans", "--board", board, "--json", "--days", "1")
    body = json.loads(printed.stdout)
    assert body["tables"][0] == "beans.default.readings"
    (tmp_path / "beans.share").write_text(body["profile"])
    assert len(delta_sharing.load_as_pandas(f"{tmp_path / 'beans.share'}#beans.default.readings")) == 20
    assert json.loads(run("ducks", "--revoke", "--yes", "--json").stdout) == {"customer": "ducks", "revoked": 1}
    with pytest.raises(HTTPError, match="401"):
        delta_sharing.load_as_pandas(f"{file}#ducks.default.readings")
    for customer in ("harbour", "away", "nobody"):
        assert getattr(run(customer).exception, "exit_code", None) == ExitCode.CONFIG, customer
    in_the_clear = run("ducks", "--board", "http://example.com")
    assert getattr(in_the_clear.exception, "exit_code", None) == ExitCode.USAGE
