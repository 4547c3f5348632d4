from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import ConfigurationError, ExitCode, UnknownNameError
from simulators.fleet import scenario_file
from simulators.fleet.planner import check_fit
from simulators.fleet.scenario_file import ScenarioError
from tests.support.simulators.worlds import TRANSHIPMENT, big_blue, ducks, transhipment


@given(st.integers(10, 20_000))
def test_rescaling_gives_the_exact_count_and_keeps_every_lot(containers: int) -> None:
    scaled = ducks().rescaled(containers)
    assert scaled.containers == containers
    assert min(lot.containers for lot in scaled.cargo.values()) >= 1
    assert all(fault.containers <= scaled.cargo[fault.lot].containers for fault in scaled.faults)
    for name, lot in ducks().cargo.items():
        fair = lot.containers * containers / 200
        assert abs(scaled.cargo[name].containers - fair) <= max(1, 200 / containers)


def test_fewer_containers_than_lots_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="10 lots, which 9 containers cannot fill"):
        ducks().rescaled(9)


def mistakes(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as error:
        scenario_file.parse(text, "mine.yaml")
    assert error.value.exit_code == ExitCode.CONFIG
    found = error.value.fields["mistakes"]
    assert all(mistake in str(error.value) for mistake in found)
    return list(found)


def test_every_mistake_is_reported_with_its_line() -> None:
    text = TRANSHIPMENT.replace("toy-ducks", "toy-duck").replace("first_arrival: 2d", "first_arival: 2d")
    lines = text.splitlines()
    found = mistakes(text.replace("stay: 24h }]", "stay: soon }]", 1))
    ship = next(i for i, line in enumerate(lines, 1) if "first_arival" in line)
    box = next(i for i, line in enumerate(lines, 1) if "toy-duck" in line)
    assert len(found) == 3
    assert any(
        f"mine.yaml:{ship}: ships.duck-star.first_arival: unknown key; did you mean 'first_arrival'?" in m
        for m in found
    )
    assert any(
        f"mine.yaml:{box}: cargo.ducks.commodity: expected a commodity" in m and "'toy-ducks'" in m for m in found
    )
    assert any(f"mine.yaml:{ship + 1}: ships.duck-star.calls[1].stay: expected a duration" in m for m in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "mine.yaml:1: the file is empty"),
        ("- a\n- b\n", "mine.yaml:1: expected keys"),
        ("name: [\n", "not YAML"),
        ("name: x\nname\n", "mine.yaml:3: not YAML"),
        (
            TRANSHIPMENT.replace("2026-09-01T00:00:00Z", "2026-02-30T00:00:00Z"),
            "start: Input should be a valid datetime",
        ),
        (TRANSHIPMENT.replace("containers: 3", "containers: 0"), "cargo.ducks.containers: Input should be"),
        (TRANSHIPMENT.replace(", sydney],", "],"), "by turns that begins and ends with a port"),
        (TRANSHIPMENT.replace("owner: BIGU", "owner: BIG"), "ISO 6346 owner code"),
        (
            TRANSHIPMENT.replace("customer: ducks", "cold_treatment: { temperature: 1.11, days: 14 }"),
            "a cold_treatment without a customer",
        ),
        (TRANSHIPMENT.replace("reading_interval: 12h", "reading_interval: 0h"), "from 1m to 7d"),
        (TRANSHIPMENT.replace("2026-09-01T00:00:00Z", "2026-09-01T00:00:00"), "start: Input should have timezone"),
        (TRANSHIPMENT + "faults:\n  - { kind: overbord }\n", "faults[0]: Input tag 'overbord'"),
        (
            TRANSHIPMENT + "faults:\n  - { kind: overboard, ship: duck-star, lot: ducks, containers: 1, "
            "befor: singapore, by: 2h }\n",
            "faults[0].befor: unknown key; did you mean 'before'?",
        ),
        (
            TRANSHIPMENT.replace("cargo:\n", "cargo:\n  ducks: { containers: 1 }\n"),
            "cargo.ducks: written twice; the first is on line",
        ),
        (TRANSHIPMENT.replace("first_arrival: 2d", "first_arrival: forever"), "first_arrival: expected a duration"),
        (
            TRANSHIPMENT + "links:\n  - { site: duck-star, starts: forever, lasts: 2d }\n",
            "links[0].starts: expected a duration of at most 100y",
        ),
        (
            TRANSHIPMENT + "closures:\n  - { port: tokyo, starts: 9000y, lasts: 2d }\n",
            "closures[0].starts: expected a duration of at most 100y",
        ),
        (
            TRANSHIPMENT + "closures:\n  - { port: tokyo, starts: 2d, lasts: 9000y }\n",
            "closures[0].lasts: expected a duration above zero and at most 100y",
        ),
        (
            TRANSHIPMENT + "links:\n  - { site: duck-star, starts: 2d, lasts: 0s }\n",
            "links[0].lasts: expected a duration above zero and at most 100y",
        ),
        (
            TRANSHIPMENT.replace("stay: 24h }]", "stay: 9000y }]", 1),
            "stay: expected a duration above zero and at most 100y",
        ),
        (
            TRANSHIPMENT + "storms:\n  - { near: tokyo, peak: 2d, wind: 20, hours: .inf }\n",
            "storms[0].hours: Input should be less than or equal to 876000",
        ),
        (
            TRANSHIPMENT + "faults:\n  - { kind: silence, ship: duck-star, lot: ducks, containers: 1, "
            "before: singapore, by: 2h, lasts: 9000y }\n",
            "faults[0].lasts: expected a duration above zero and at most 100y",
        ),
    ],
)
def test_bad_input_is_named(text: str, expected: str) -> None:
    assert any(expected in mistake for mistake in mistakes(text))


def test_a_file_is_read_and_an_unreadable_one_named(tmp_path: Path) -> None:
    file = tmp_path / "voyage.yaml"
    file.write_text(TRANSHIPMENT, encoding="utf-8")
    assert scenario_file.load(file).name == "transhipment"
    file.write_bytes(b"\xff\xfe name")
    with pytest.raises(ScenarioError, match="cannot be read"):
        scenario_file.load(file)
    with pytest.raises(ScenarioError, match="cannot be read"):
        scenario_file.load(tmp_path / "missing.yaml")


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    assert "duck-voyage" in scenario_file.shipped()
    with pytest.raises(UnknownNameError, match="duck-voyge") as error:
        scenario_file.load("duck-voyge")
    assert error.value.fields["nearest"] == "duck-voyage"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("customer: ducks", "customer: geese", "cargo.ducks: no customer 'geese'"),
        ("owner: BIGU", "owner: ABCU", "no stream of the topology is for owner 'ABCU'"),
        ("booking_office: los-angeles", "booking_office: paris", "booking_office: no site 'paris'"),
        ("port: singapore", "port: los-angeles", "no port 'los-angeles'"),
        ("blue-marlin", "grey-whale", "no ship 'grey-whale'"),
        ("route: [tokyo, duck-star, singapore", "route: [singapore, duck-star, tokyo", "does not sail from singapore"),
    ],
)
def test_what_does_not_fit_the_topology_is_named(old: str, new: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        check_fit(transhipment(**{old: new}), big_blue())
    assert any(expected in mistake for mistake in error.value.fields["mistakes"])


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("ship: duck-star, lot: geese, containers: 1, before: singapore", "no lot 'geese'"),
        ("ship: duck-star, lot: ducks, containers: 4, before: singapore", "4 containers, but lot ducks has 3"),
        ("ship: duck-star, lot: ducks, containers: 1, before: tokyo", "never arrives at tokyo"),
    ],
)
def test_faults_that_do_not_fit_are_named(fault: str, expected: str) -> None:
    text = TRANSHIPMENT + f"faults:\n  - {{ kind: overboard, {fault}, by: 2h }}\n"
    with pytest.raises(ConfigurationError, match=expected):
        check_fit(scenario_file.parse(text, "mine.yaml"), big_blue())


def test_an_outage_needs_a_link() -> None:
    text = TRANSHIPMENT + "links:\n  - { between: [duck-star, blue-marlin], starts: 1d, lasts: 2d }\n"
    with pytest.raises(ConfigurationError, match="no link between duck-star and blue-marlin"):
        check_fit(scenario_file.parse(text, "mine.yaml"), big_blue())
