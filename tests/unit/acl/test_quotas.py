"""Client quotas: what topologies say, what follows for each site, what would change, and how requests are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acl.compile import KEYS, SetQuota, compile_quotas, diff_quotas, managed_users, quota_lines, together
from topologies.loader.load import load
from topologies.loader.mistakes import TopologyErrors
from topologies.model import KafkaAddress, Topology

TEXT = """
name: quotas
sites:
  port: {kind: port, unlocode: JPTYO}
  ship: {kind: ship, imo: "9074729"}
streams:
  containers: {insert_point: moves, owners: [BIGU]}
customers:
  ducks: {feed_at: port, quota: {consume: 2 MB/s, requests: 20 %}}
  other: {feed_at: port}
users:
  producer: {at: [port, ship], quota: {produce: 800 kbit/s}}
shore: {at: port}
"""
RATE, SHARE, INTO = KEYS["consume"], KEYS["requests"], KEYS["produce"]
quotas = st.dictionaries(
    st.sampled_from(["ducks", "other", "stranger", "bridge"]),
    st.dictionaries(st.sampled_from([*KEYS.values(), "controller_mutation_rate"]), st.sampled_from([1.0, 2.0])),
)


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    file = tmp_path / "quotas.yaml"
    file.write_text(TEXT)
    return load(file)


def test_each_site_gets_the_quotas_of_its_users(topology: Topology) -> None:
    assert compile_quotas(topology, "port") == {
        "ducks": {RATE: 2_000_000.0, SHARE: 20.0},
        "producer": {INTO: 100_000.0},
    }
    assert compile_quotas(topology, "ship") == {"producer": {INTO: 100_000.0}}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("consume: 0 B/s", "a rate above nothing"),
        ("requests: 0 %", "a share of one thread's time"),
        ("requests: lots", "a share of one thread's time"),
        ("requests: true", "a share of one thread's time"),
        ("consumes: 2 MB/s", "consume"),
    ],
)
def test_a_wrong_quota_is_said_with_its_line(tmp_path: Path, written: str, said: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(TEXT.replace("consume: 2 MB/s", written))
    with pytest.raises(TopologyErrors) as caught:
        load(file)
    assert said in str(caught.value) and ":9" in str(caught.value)


@given(quotas, quotas)
def test_changes_make_what_is_managed_equal(
    actual: dict[str, dict[str, float]], desired: dict[str, dict[str, float]]
) -> None:
    def managed(user: str) -> bool:
        return user in ("ducks", "other")

    changes = diff_quotas(actual, desired, managed)
    after = {user: dict(values) for user, values in actual.items()}
    for user, values in together(changes).items():
        assert managed(user)
        for key, value in values.items():
            assert key in KEYS.values()
            held = after.setdefault(user, {})
            assert held.get(key) != value
            if value is None:
                del held[key]
            else:
                held[key] = value
    for user in ("ducks", "other"):
        for key in KEYS.values():
            assert after.get(user, {}).get(key) == desired.get(user, {}).get(key)
    assert diff_quotas(after, desired, managed) == ()


def test_whose_quotas_are_fairleads(topology: Topology) -> None:
    own = managed_users(topology, "port")
    assert own("ducks") and own("gone") and not own("bridge") and not own("admin")
    address = KafkaAddress(bootstrap="broker:9092")
    sites = {**topology.sites, "port": topology.sites["port"].model_copy(update={"kafka": address})}
    outside = managed_users(topology.model_copy(update={"sites": sites}), "port")
    assert outside("ducks") and outside("producer") and not outside("gone") and not outside("bridge")


def test_changes_are_told_in_the_topologys_words() -> None:
    lines = [
        text
        for text, _ in quota_lines(
            [
                SetQuota("ducks", RATE, None, 2_000_000.0),
                SetQuota("ducks", SHARE, 10.0, 20.0),
                SetQuota("gone", INTO, 100_000.0, None),
            ]
        )
    ]
    assert lines == [
        "+ quota of ducks: consume 16 Mbit/s",
        "+ quota of ducks: requests 20 % (was 10 %)",
        "- quota of gone: produce 800 kbit/s",
    ]
