"""``sail`` without brokers, and the times at which it may be called."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path
from typing import cast

import pytest

from fairlead.errors import ConfigurationError
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from simulators.steps import VoyageBarrier
from simulators.voyage import run, services
from simulators.voyage.player import BarrierTimeout
from simulators.voyage.run import check_clock, sail
from tests.support.simulators.worlds import big_blue, small_steps, voyage
from tests.unit.simulators.voyage.fakes import FakeClusters
from topologies.context import open_topology
from topologies.endpoints import EndpointResolver

TODAY = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def test_a_voyage_into_the_future_is_refused() -> None:
    check_clock(TODAY - 3 * DAY, TODAY + DAY, TODAY, None)
    check_clock(TODAY, TODAY + 3 * DAY, TODAY, 1.0)  # as slowly as life
    for starts, days, speed in ((TODAY, 1.1, None), (TODAY, 3, 3600.0), (TODAY + 2 * DAY, 3, 0.1)):
        with pytest.raises(ConfigurationError, match="24 h ahead of their clock"):
            check_clock(starts, starts + days * DAY, TODAY, speed)


class NoBrokers:
    """A directory of sites whose MQTT brokers are gone."""

    def kafka(self, site: str, user: str) -> KafkaEndpoint:
        raise AssertionError("the clusters are fakes")

    def mqtt(self, site: str, user: str) -> MqttEndpoint:
        return MqttEndpoint(site=site, host="127.0.0.1", port=1)


async def test_a_missing_mqtt_broker_ends_the_voyage(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = FakeClusters(*big_blue().sites)
    monkeypatch.setattr(run, "Clusters", lambda *_, **__: clusters)
    monkeypatch.setattr(run, "AlertWatch", lambda *_, **__: NoAlerts())
    first = next(step for step in small_steps() if isinstance(step, VoyageBarrier))
    async with asyncio.timeout(20):
        with pytest.raises(BarrierTimeout, match=r"MQTT broker of [a-z-]+: ") as error:
            await sail(voyage(), big_blue(), cast(EndpointResolver, NoBrokers()), barrier_timeout=0.5)
    assert first.description in str(error.value)


@pytest.mark.parametrize(
    ("source", "named"), [(None, "big-blue"), ("minimal", "minimal"), ("/fleets/my.yaml", "/fleets/my.yaml")]
)
async def test_sites_with_logs_of_another_voyage_are_refused_and_the_way_out_names_their_topology(
    source: str | None, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = FakeClusters(*big_blue().sites)
    clusters["tokyo"].append("containers.BIGU1000010")
    monkeypatch.setattr(run, "Clusters", lambda *_, **__: clusters)
    with pytest.raises(ConfigurationError, match=r"tokyo already has 1 logs of containers") as error:
        await sail(voyage(), big_blue(), cast(EndpointResolver, NoBrokers()), source=source)
    assert (error.value.hint or "").endswith(f": fairlead down --topology {named} --purge")


def test_a_second_voyage_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark, bridges and replicators take long to start, and a refused voyage needs none of them."""
    clusters = FakeClusters(*big_blue().sites)
    clusters["tokyo"].append("containers.BIGU1000010")
    monkeypatch.setattr(services, "Clusters", lambda *_, **__: clusters)
    for part in ("link_network", "shore_jobs", "background_workers"):
        monkeypatch.setattr(services, part, lambda *_, part=part, **__: pytest.fail(f"{part} is started"))
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    settings = services.SailSettings(speed=None, patience=60)
    with pytest.raises(ConfigurationError, match=r"tokyo already has 1 logs of containers") as error:
        with services.voyage_services(open_topology("big-blue"), voyage(), settings, {}):
            pass
    assert "fairlead down --topology big-blue --purge" in (error.value.hint or "")


class NoAlerts:
    """A watch over sites that have no alerts."""

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
