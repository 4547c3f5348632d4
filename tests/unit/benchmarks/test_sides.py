"""What the harness reads and writes around the processes that it measures."""

from __future__ import annotations

import os

import psutil
import pytest
from pydantic import SecretStr

from benchmarks.replication.fairlead_side import topology
from benchmarks.replication.gauge import bytes_between, cpu_seconds, parse_sockets, peak_rss_mb
from benchmarks.replication.mirrormaker_side import DELIVERED, LEAN, TUNED, Setting, described, properties
from fairlead.endpoint import KafkaEndpoint

SS = """\
ESTAB 0 0 127.0.0.1:40000 127.0.0.1:9092 users:(("python",pid=17,fd=8)) bbr rto:204 bytes_sent:100 bytes_acked:101 bytes_received:2000 segs_out:3
ESTAB 0 0 127.0.0.1:40001 127.0.0.1:9093 users:(("python",pid=17,fd=9)) bbr rto:204 bytes_sent:7 bytes_received:8 segs_out:3
ESTAB 0 0 127.0.0.1:40002 127.0.0.1:9092 users:(("java",pid=170,fd=9)) bbr rto:204 bytes_sent:1 bytes_received:1
ESTAB 0 0 127.0.0.1:40003 127.0.0.1:9092 users:(("python",pid=17,fd=10)) bbr rto:204
"""  # noqa: E501


def test_only_the_connections_of_the_process_are_counted() -> None:
    assert parse_sockets(SS, 17) == {
        "127.0.0.1:40000 127.0.0.1:9092": (100, 2000),
        "127.0.0.1:40001 127.0.0.1:9093": (7, 8),
        "127.0.0.1:40003 127.0.0.1:9092": (0, 0),
    }


def test_bytes_between_two_readings_count_new_connections_from_nothing() -> None:
    before = {"a:1 b:9092": (10, 20)}
    after = {"a:1 b:9092": (15, 40), "a:2 b:9093": (3, 4)}
    assert bytes_between(before, after) == 32
    assert bytes_between(before, after, 9092) == 25


def test_a_process_has_used_cpu_and_memory() -> None:
    own = psutil.Process(os.getpid())
    assert cpu_seconds(own) > 0
    assert peak_rss_mb(own) >= own.memory_info().rss / 1e6 * 0.5


@pytest.mark.parametrize("settings", [DELIVERED, LEAN, TUNED])
def test_the_peers_properties_name_both_clusters_and_every_setting(settings: tuple[Setting, ...]) -> None:
    source = KafkaEndpoint("alpha", (("127.0.0.1", 1111),), "admin", SecretStr("one"))
    target = KafkaEndpoint("beta", (("127.0.0.1", 2222),), "admin", SecretStr("two"))
    text = properties("b0", source, target, settings)
    lines = dict(line.split("=", 1) for line in text.splitlines())
    assert (lines["alpha.bootstrap.servers"], lines["beta.bootstrap.servers"]) == ("127.0.0.1:1111", "127.0.0.1:2222")
    assert 'password="one"' in lines["alpha.sasl.jaas.config"]
    assert 'password="two"' in lines["beta.sasl.jaas.config"]
    assert lines["alpha->beta.topics"] == "b0[.].*"
    assert {key: lines[key] for key, _, _ in settings} == {key: value for key, value, _ in settings}


def test_the_report_names_the_peers_version_and_no_secret() -> None:
    found = described()
    assert found["version"] == "4.3.1"
    assert not any("jaas" in setting["key"] for setting in found["settings"] + found["lean"] + found["tuning"])


def test_the_measured_link_carries_the_whole_stream() -> None:
    (link,) = topology("b0").links_to("beta")
    assert (link.from_, dict(link.streams)) == ("alpha", {"b0": "all"})
