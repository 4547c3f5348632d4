"""What the benchmark says of two sides' figures."""

from __future__ import annotations

import pytest

from benchmarks.replication.ratios import compare, growth, growth_targets, percentile, secure, verdicts


def side(start: float, first: float, cpu: float, rss: float) -> dict[str, float]:
    return {"seconds_from_start": start, "seconds_from_first_record": first, "cpu_seconds": cpu, "rss_mb": rss}


def test_speed_is_the_less_favourable_of_the_two_clocks() -> None:
    by_start = compare(side(10, 1, 2, 100), side(100, 80, 80, 2000))
    assert (by_start["speed_ratio"], by_start["speed_ratio_from_first_record"]) == (10.0, 80.0)
    by_first = compare(side(2, 1, 2, 100), side(100, 20, 80, 2000))
    assert (by_first["speed_ratio"], by_first["speed_ratio_from_start"]) == (20.0, 50.0)


def test_cpu_and_memory_are_parts_of_the_peers() -> None:
    found = compare(side(10, 1, 2, 100), side(100, 80, 80, 2000))
    assert (found["cpu_ratio"], found["rss_mb"], found["rss_ratio"]) == (0.025, 100, 0.05)


def test_a_verdict_knows_which_way_is_better() -> None:
    part = {"speed_ratio": 26.0, "cpu_ratio": 0.03, "target": {"speed_ratio": 25, "cpu_ratio": 1 / 40}}
    assert [(each.what, each.relation, each.met) for each in verdicts(part)] == [
        ("speed_ratio", ">=", True),
        ("cpu_ratio", "<=", False),
    ]


def test_a_figure_on_its_target_meets_it() -> None:
    part = {"speed_ratio": 25.0, "cpu_ratio": 0.025, "target": {"speed_ratio": 25, "cpu_ratio": 1 / 40}}
    assert all(each.met for each in verdicts(part))


def test_parts_without_targets_have_no_verdicts() -> None:
    assert verdicts({"logs": 3}) == []


@pytest.mark.parametrize(("seconds", "met"), [(16.0, True), (16.5, False)])
def test_growth_is_held_against_the_number_of_logs(seconds: float, met: bool) -> None:
    rows = [
        {"logs": 1000, **side(1.0, 0.5, 0.5, 60)},
        {"logs": 4000, **side(3.0, 2.0, 1.5, 80)},
        {"logs": 16000, **side(seconds, 4.0, 5.0, 160)},
    ]
    found = growth(rows)
    assert (found["logs_ratio"], found["cpu_ratio"]) == (16.0, 10.0)
    judged = {each.what: each.met for each in verdicts({**found, "target": growth_targets(rows)})}
    assert judged == {"seconds_ratio": met, "seconds_from_first_record_ratio": True, "rss_ratio": True}


@pytest.mark.parametrize(("percent", "value"), [(1, 1), (50, 50), (99, 99), (100, 100)])
def test_percentiles_are_by_nearest_rank(percent: float, value: float) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == value


def test_the_99th_percentile_of_few_values_is_the_largest() -> None:
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0


def test_tls_is_measured_by_the_clock_that_is_less_favourable_to_it() -> None:
    brokers = {"source_broker_cpu_seconds": 1.0, "target_broker_cpu_seconds": 3.0}
    plain, tls = {**side(5.0, 4.0, 1.0, 100), **brokers}, {**side(10.0, 5.0, 1.5, 100), **brokers}
    found = secure(plain, {**tls, "target_broker_cpu_seconds": 5.0})
    assert found == {"throughput_ratio": 0.5, "cpu_ratio": 1.5, "broker_cpu_ratio": 1.5}
    assert secure(plain, {**tls, **side(5.0, 10.0, 1.0, 100)})["throughput_ratio"] == 0.4
    (verdict,) = verdicts({**found, "target": {"throughput_ratio": 0.6}})
    assert (verdict.relation, verdict.met) == (">=", False)
