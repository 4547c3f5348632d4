"""Which topic settings are copied, and how little a slow link is used for reading them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.kafka.admin import LOG_DEFAULTS
from replication.plan.topics import (
    BYTES_PER_TOPIC,
    FOLLOWED,
    THIN_SHARE,
    comparing_pace,
    followed_settings,
    setting_changes,
)

SOURCE = {
    "cleanup.policy": "compact",
    "max.message.bytes": "2000000",
    "retention.ms": "1000",
    "min.insync.replicas": "2",
}


def test_what_the_log_is_follows_and_what_a_site_does_with_it_does_not() -> None:
    """Settings that define the log are copied; those of a site's own operation are not."""
    assert followed_settings(SOURCE) == {"cleanup.policy": "compact", "max.message.bytes": "2000000"}
    assert not {"compression.type", "message.timestamp.type", "retention.ms", "retention.bytes"} & set(FOLLOWED)
    assert LOG_DEFAULTS["compression.type"] == "producer"


def test_only_differences_are_set_and_limits_never_lowered() -> None:
    """Only differences are set, and size limits are never lowered."""
    assert setting_changes(SOURCE, {"cleanup.policy": "compact", "max.message.bytes": "1048588"}) == {
        "max.message.bytes": "2000000"
    }
    assert setting_changes(SOURCE, {"cleanup.policy": "delete", "max.message.bytes": "3000000"}) == {
        "cleanup.policy": "compact"
    }
    assert setting_changes(SOURCE, SOURCE) == {}


@given(st.integers(0, 20_000), st.integers(1, 10**8))
def test_a_thin_link_gives_no_more_than_its_share(topics: int, rate: int) -> None:
    """On a slow link, reading settings takes no more than its share of the rate."""
    step, wait = comparing_pace(topics, rate)
    assert step >= 1
    assert step * BYTES_PER_TOPIC <= max(rate, 5 * BYTES_PER_TOPIC)
    assert step * BYTES_PER_TOPIC / wait <= rate * THIN_SHARE * 1.001
