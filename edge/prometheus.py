"""Exports ``Bridge.snapshot`` as Prometheus metrics, under Prometheus' naming rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from fairlead.scrape import Snapshot, families

_COUNTED: Final = (
    ("received", "received", "Messages from the MQTT broker."),
    ("acknowledged", "acked", "Messages acknowledged to the MQTT broker: they are stored."),
    ("appended", "appended", "Messages of all kinds appended to their own log."),
    ("readings", "readings", "Containers' readings appended to their own log."),
    ("repeats", "repeats", "Messages that were stored already."),
    ("strays", "strays", "Readings kept as strays because another site holds their log."),
    ("alerts", "alerts", "Alert states raised."),
    ("mqtt_dropped", "mqtt_dropped", "Messages that the MQTT broker reports as dropped."),
    ("flood_dropped", "flood_dropped", "Messages dropped because their device publishes far more than its limit."),
    ("qos0_dropped", "qos0_dropped", "Messages of QoS 0 or AIS dropped because too many waited for Kafka."),
    ("strays_gone", "strays_gone", "Strays that retention deleted here before they were drained."),
    ("entries_refused", "entries_refused", "Ledger entries that are not believed."),
    ("mqtt_sessions_lost", "mqtt_sessions_lost", "Times that the MQTT broker lost the bridge's session."),
)
_GAUGES: Final = (
    ("ready", "ready", "1 while the bridge accepts messages."),
    ("mqtt_connected", "mqtt_connected", "1 while its session at the MQTT broker is connected."),
    ("kafka_connected", "kafka_connected", "1 while it has a connection to the site's Kafka."),
    ("waiting_messages", "unacked", "Messages received and not stored yet."),
    ("waiting_strays", "strays_waiting", "Readings that wait for custody of their log."),
    ("waiting_events", "events_waiting", "Events that wait for custody."),
    ("start_time_seconds", "started", "When the bridge was started, Unix time."),
)


def bridge_metrics(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    """Yield all metrics of the bridges with these snapshots."""
    yield from families(CounterMetricFamily, "fairlead_bridge", _COUNTED, "site", taken)
    yield from families(GaugeMetricFamily, "fairlead_bridge", _GAUGES, "site", taken)
    letters = CounterMetricFamily(
        "fairlead_bridge_dead_letters", "Messages kept as dead letters.", labels=["site", "reason"]
    )
    logs = GaugeMetricFamily("fairlead_bridge_logs", "Containers' logs by custody.", labels=["site", "custody"])
    unread = GaugeMetricFamily(
        "fairlead_bridge_unread_logs", "Logs that the bridge cannot read beyond a damaged batch.", labels=["site"]
    )
    alerts = GaugeMetricFamily(
        "fairlead_bridge_site_alerts", "Open alerts about the site itself.", labels=["site", "kind"]
    )
    append = SummaryMetricFamily(
        "fairlead_bridge_append_seconds", "Seconds from sending appends to the broker's answer.", labels=["site"]
    )
    for each in taken:
        site = str(each["site"])
        for reason, number in each["dead_letters_by_reason"].items():
            letters.add_metric([site, str(reason)], number)
        for state, number in each["custody"].items():
            logs.add_metric([site, str(state)], number)
        unread.add_metric([site], len(each["unread"]))
        for kind, number in each["site_alerts"].items():
            alerts.add_metric([site, str(kind)], number)
        append.add_metric([site], count_value=each["append_requests"], sum_value=each["append_seconds"])
    yield from (letters, logs, unread, alerts, append)
