from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from edge.alerts.thresholds import DEFAULTS, default_thresholds, load_thresholds
from fairlead.errors import ConfigurationError
from simulators.fleet.commodities import COMMODITIES
from tests.support.edge.detecting import MINUTE, Voyage, booking


def written(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(body)
    return path


def test_every_default_group_names_its_source() -> None:
    """Every default group of thresholds names its source."""
    body = yaml.safe_load(DEFAULTS.read_text())
    sets = [body["default"], body["ashore"]["default"], *body["commodities"].values()]
    groups = [item for each in sets for item in each.items()]
    assert [name for name, group in groups if not group.get("source")] == []


def test_a_user_s_values_lie_over_the_defaults_value_by_value(tmp_path: Path) -> None:
    """A user's thresholds replace the defaults value by value."""
    mine = load_thresholds(
        written(
            tmp_path,
            "default: {power: {dwell: 10m}}\n"
            "commodities: {Toy Ducks: {temperature: {maximum: 40}}, tulips: {door: {dwell: 5m}}}",
        )
    )
    usual = default_thresholds()
    assert mine.default.power.dwell == 600_000
    assert mine.default.power.source == "set in mine.yaml"
    assert mine.default.temperature == usual.default.temperature
    assert mine.of("toy-ducks").temperature.maximum == 40
    assert mine.of("toy-ducks").humidity == usual.of("toy-ducks").humidity
    assert mine.of("TULIPS").door.dwell == 300_000
    assert mine.of("tulips").power.dwell == 600_000
    assert mine.of("frozen-fish").temperature == usual.of("frozen-fish").temperature


def test_thresholds_differ_by_stream_commodity_customer_and_ashore(tmp_path: Path) -> None:
    """The more specific set overrides the others; what is set for yards counts in yards only."""
    mine = load_thresholds(
        written(
            tmp_path,
            """
            streams: {yellow: {power: {dwell: 5m}, silence: {at_least: 2h}}}
            commodities: {toy-ducks: {power: {dwell: 6m}}}
            customers: {ducks: {power: {dwell: 7m}}}
            ashore:
              default: {silence: {at_least: 3h}}
              streams: {yellow: {silence: {at_least: 4h}}}
              customers: {ducks: {power: {dwell: 8m}}}
            """,
        )
    )

    def dwell(*of: str | None, ashore: bool = False) -> float:
        stream, commodity, customer = of
        return mine.of(commodity, stream=stream, customer=customer, ashore=ashore).power.dwell / 60_000

    assert [dwell(None, None, None), dwell("yellow", None, None)] == [30, 5]
    assert [dwell("yellow", "Toy Ducks", None), dwell("yellow", "toy-ducks", "ducks")] == [6, 7]
    assert [dwell("yellow", None, "others"), dwell(None, None, "ducks", ashore=True)] == [5, 8]
    assert dwell(None, None, None, ashore=True) == default_thresholds().of(None, ashore=True).power.dwell / 60_000
    hours = [
        mine.of(None, stream=stream, ashore=ashore).silence.at_least / 3_600_000
        for stream, ashore in ((None, False), ("yellow", False), (None, True), ("yellow", True))
    ]
    assert hours == [1, 2, 3, 4]
    assert mine.known["streams"] == ["yellow"] and mine.known["customers"] == ["ducks"]


def test_the_engine_goes_by_the_stream_and_the_customer_of_a_box(tmp_path: Path) -> None:
    """A booking changes the thresholds of the box that it is about."""
    body = "streams: {containers: {power: {dwell: 10m}}}\ncustomers: {ducks: {power: {dwell: 20m}}}"
    off: dict[str, Any] = {"setpoints": {"temperature": 4.0}, "isPowered": False}
    voyage = Voyage(thresholds=load_thresholds(written(tmp_path, body)))
    voyage.see(0, **off)
    assert [alert.kind for alert in voyage.see(10 * MINUTE, **off)] == ["POWER_LOST"]
    voyage = Voyage(thresholds=load_thresholds(written(tmp_path, body)))
    voyage.engine.booked(booking())
    assert voyage.every(10 * MINUTE, 10 * MINUTE, **off) == []
    assert [alert.kind for alert in voyage.see(20 * MINUTE, **off)] == ["POWER_LOST"]


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert load_thresholds(written(tmp_path, "")).default == default_thresholds().default


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("default: {powr: {dwell: 10m}}", "default.powr"),
        ("default: {power: {dwel: 10m}}", "default.power.dwel"),
        ("default: {power: {dwell: soon}}", "default.power.dwell"),
        ("default: {power: {dwell: forever}}", "default.power.dwell"),
        ("default: {temperature: {tolerance: -1}}", "default.temperature.tolerance"),
        ("default: {temperature: {tolerance: .nan}}", "default.temperature.tolerance"),
        ("default: {overboard: {weights: {luck: 1}}}", "default.overboard.weights"),
        ("commodities: {fish: {temperature: {maximum: cold}}}", "commodities.fish.temperature.maximum"),
        ("commodities: {fish: 4}", "commodities.fish"),
        ("commodities: [fish]", "commodities"),
        ("streams: {yellow: {power: {dwell: soon}}}", "streams.yellow.power.dwell"),
        ("customers: {ducks: 4}", "customers.ducks"),
        ("ashore: {powr: {}}", "ashore.powr"),
        ("ashore: {default: {power: {dwell: soon}}}", "ashore.default.power.dwell"),
        ("ashore: {customers: {ducks: {door: {dwel: 5m}}}}", "ashore.customers.ducks.door.dwel"),
        ("ashore: 5m", "ashore"),
        ("standard: {}", "standard"),
        ("- 1", "mapping"),
        ("default: {", "YAML"),
        ("default: 2026-02-30", "day is out of range for month"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, body: str, where: str) -> None:
    """A mistake in the file is reported with its place."""
    with pytest.raises(ConfigurationError) as raised:
        load_thresholds(written(tmp_path, body))
    assert where in raised.value.what


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """All mistakes in the file are reported at once."""
    with pytest.raises(ConfigurationError) as raised:
        load_thresholds(written(tmp_path, "commodities: {a: {door: {dwell: x}}, b: {door: {dwell: y}}}"))
    assert len(raised.value.fields["mistakes"]) == 2


def test_a_file_that_is_not_there_is_a_mistake_of_configuration(tmp_path: Path) -> None:
    """A missing file is a configuration error."""
    with pytest.raises(ConfigurationError):
        load_thresholds(tmp_path / "nowhere.yaml")


def test_an_alert_engine_goes_by_the_thresholds_it_is_given(tmp_path: Path) -> None:
    """The alert engine uses the thresholds that it is given."""
    voyage = Voyage(thresholds=load_thresholds(written(tmp_path, "default: {power: {dwell: 10m}}")))
    off: dict[str, Any] = {"setpoints": {"temperature": 4.0}, "isPowered": False}
    assert voyage.see(0, **off) == []
    assert len(voyage.see(10 * MINUTE, **off)) == 1


def test_simulated_cargo_at_its_set_point_is_within_what_the_defaults_allow() -> None:
    """Simulated cargo at its set point stays within the default thresholds."""
    for name, cargo in COMMODITIES.items():
        limits = default_thresholds().of(name)
        low, high = limits.temperature.minimum, limits.temperature.maximum
        assert (low is None or cargo.setpoint > low) and (high is None or cargo.setpoint < high), name
        low, high = limits.humidity.minimum, limits.humidity.maximum
        assert (low is None or cargo.humidity > low) and (high is None or cargo.humidity < high), name
