"""The size of a fleet against an independent count of the same messages, and what the command shows."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache

import pytest

from fairlead.cli import app as cli
from fairlead.errors import ExitCode
from fairlead.kafka.protocol.codecs import Codec
from simulators.scale.costs import CABLE_SHARE, custody_bytes, message_bytes
from simulators.scale.sizing import Size, hops, size
from simulators.steps import MessageKind
from simulators.voyage.voyage import Voyage
from tests.support.simulators.worlds import big_blue, published, voyage

READINGS = "containers.BIGU1000005"


@cache
def small() -> Voyage:
    return voyage(7, 20, hours=24, with_bad=True)


@cache
def sized(containers: int) -> Size:
    return size(small(), containers)


def names(log: str, origin: str, berth: str | None = None) -> list[tuple[str, bool]]:
    return [(way.link.name, way.late) for way in hops(big_blue(), log, origin, berth)]


def test_a_ports_readings_reach_every_site_ashore_by_cable() -> None:
    assert sorted(names(READINGS, "tokyo")) == [
        ("tokyo->los-angeles", False),
        ("tokyo->singapore", False),
        ("tokyo->sydney", False),
    ]


def test_a_ships_readings_wait_for_the_berth() -> None:
    found = names(READINGS, "duck-star", "singapore")
    assert found[0] == ("duck-star->singapore:berthed", True)
    assert {name for name, _ in found[1:]} == {f"singapore->{other}" for other in ("tokyo", "sydney", "los-angeles")}
    assert all(late for _, late in found)


def test_a_ships_position_goes_by_satellite_and_to_the_other_ship() -> None:
    found = dict(names("ships.9074729.location", "duck-star", "singapore"))
    assert found["duck-star->los-angeles"] is False
    assert "los-angeles->blue-marlin" in found
    assert not any("berthed" in name for name in found)
    assert len(found) == 5


def test_each_site_gets_a_record_once() -> None:
    for log, origin in ((READINGS, "duck-star"), ("events.tokyo", "tokyo"), ("custody.blue-marlin", "blue-marlin")):
        targets = [way.link.to for way in hops(big_blue(), log, origin, "sydney")]
        assert len(targets) == len(set(targets))
        assert origin not in targets


def test_records_are_counted_as_they_are_published() -> None:
    counted = Counter(str(step.kind) for step in published(small().steps()))
    moves = sum(step.moves_log is not None for step in published(small().steps()))
    assert sized(20).factor == 1
    assert sized(20).records == {
        **{kind: counted[kind] for kind in ("booking", "environment", "event", "position", "reading", "schedule")},
        "custody entry": moves,
        "marker": moves,
    }


def test_bytes_of_one_link_are_those_of_the_messages() -> None:
    """duck-star brings to Sydney the readings that were taken aboard after Singapore."""
    table = small().plan.timetables["duck-star"]
    left, berthed = table.calls[1].departs, table.calls[2].arrives
    steps = published(small().steps())
    own = [s for s in steps if s.site == "duck-star" and s.kind is MessageKind.READING and s.sim_time >= left]
    moved = [s for s in steps if s.site == "duck-star" and s.moves_log and s.sim_time >= left]
    marker, _ = custody_bytes(str(moved[0].moves_log), "duck-star", moved[0].key, moved[0].sim_time, Codec.ZSTD)
    stored = sum(message_bytes(s, Codec.ZSTD) for s in own) + marker * len(moved)
    (link,) = [each for each in sized(20).links if each.name == "duck-star->sydney:berthed"]
    days = sized(20).days
    assert link.records_per_day == pytest.approx((len(own) + len(moved)) / days, rel=0.01)
    assert link.bytes_per_day == pytest.approx(stored / CABLE_SHARE.value / days, rel=0.01)
    assert berthed > left
    assert link.bytes_peak_day > link.bytes_per_day


def test_every_site_ashore_stores_everything_and_the_manufacturer_nothing() -> None:
    stored = {site.name: site.stored_records_per_day for site in sized(20).sites}
    total = sum(sized(20).records.values()) - sized(20).records["booking"]
    for port in ("tokyo", "singapore", "sydney", "los-angeles"):
        assert stored[port] == pytest.approx((total + sized(20).records["booking"]) / sized(20).days, rel=0.01)
    assert stored["ducks-hq"] == 0
    assert 0 < stored["duck-star"] < stored["tokyo"]


def test_extrapolation_multiplies_boxes_but_not_ships() -> None:
    one, many = sized(20), sized(2_000)
    assert many.factor == 100
    assert many.records["reading"] == 100 * one.records["reading"]
    assert many.records["position"] == one.records["position"]
    assert (many.containers, many.modelled) == (2_000, 20)
    assert any(note.startswith("extrapolated: 20 of 2,000 boxes") for note in many.notes)
    assert not any("boxes were modelled" in note for note in one.notes)


# -- the command


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = cli.run(["voyage", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_scale_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("size", "12", "minimal", "--interval", "6h", "--json", capsys=capsys)
    assert code == ExitCode.OK
    body = json.loads(out)
    assert body["containers"] == 12
    assert body["scenario"] == "harbour"
    assert {site["name"] for site in body["sites"]} == {"tokyo", "duck-star"}
    assert body["costs"][0]["where"]


def test_the_topology_follows_from_the_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("size", "10", "--scenario", "harbour", "--interval", "12h", "--json", capsys=capsys)
    assert code == ExitCode.OK
    assert json.loads(out)["topology"] == "minimal"


def test_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("list", "--json", capsys=capsys)
    assert code == ExitCode.OK
    assert "port-strike" in [entry["name"] for entry in json.loads(out)]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("run", "minimal", "--speed", "10", "--realtime"), ExitCode.USAGE, "--realtime and --speed"),
        (("size", "20", "minimal", "--scenario", "duck-voyage"), ExitCode.CONFIG, "does not fit topology minimal"),
    ],
)
def test_impossible_options_are_refused(
    arguments: tuple[str, ...], exit_code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(*arguments, capsys=capsys)
    assert code == exit_code
    assert said in " ".join(err.split())
