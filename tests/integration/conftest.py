"""Two real sites for all integration tests of a run, ``alpha`` and ``beta``, started once; three more on request.

They are processes on this machine; with ``--sites=containers`` the same tests use containers
(``tests.support.container_sites``), and with ``--sites=kafka-3.9`` brokers of that release
(``tests.support.releases``). Tests that depend on processes carry the marker ``processes`` with the reason, and are
skipped with containers.

``FAIRLEAD_TEST_KEEP=1`` keeps them running in a fixed folder, so that the next run starts at once. ``fairlead down``
does not know them: run once without the variable, or with ``FAIRLEAD_TEST_KEEP=stop``, to end them.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from fairlead.home import home
from fairlead.kafka.admin import admin_client, create_logs
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.local.sites import LocalSites, SiteSpec
from tests.support.engine import why_no_sites
from tests.support.releases import ReleaseSites
from tests.support.sites import FURTHER_SITES, SITES, USERS, NewSites
from tests.support.waits import PATIENCE


def pytest_runtest_setup(item: pytest.Item) -> None:
    about = item.get_closest_marker("processes")
    if about is not None and item.config.getoption("--sites") == "containers":
        pytest.skip(f"about processes: {about.args[0]}")


def pytest_runtest_teardown() -> None:
    """Collect garbage when over 400 file descriptors are open, so that they stay below 1024.

    paho's threads wait with ``select``, which cannot handle higher ones. Unreferenced librdkafka clients have several
    each, and this process runs many, as it does the work of all parts of the system.
    """
    if psutil.Process().num_fds() > 400:
        gc.collect()


@pytest.fixture(scope="session")
def new_sites(pytestconfig: pytest.Config) -> Iterator[NewSites]:
    """Create sites with their state in the given folder, not running yet. The caller stops those it starts."""
    kind = pytestconfig.getoption("--sites")
    if kind == "processes":
        yield LocalSites
        return
    if kind.startswith("kafka-"):
        yield functools.partial(ReleaseSites, name=kind.removeprefix("kafka-"))
        return
    if missing := why_no_sites():
        pytest.skip(missing)
    from tests.support.container_sites import ContainerSites  # not everybody has docker

    with contextlib.ExitStack() as made:

        def make(folder: Path) -> LocalSites:
            return made.enter_context(contextlib.closing(ContainerSites(folder)))

        yield make


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory, new_sites: NewSites) -> Iterator[LocalSites]:
    """Run two sites. Every user exists and, except ``admin``, has no access yet."""
    kept = home() / f".integration-tests{os.environ.get('PYTEST_XDIST_WORKER', '')}"
    keep = os.environ.get("FAIRLEAD_TEST_KEEP", "") if new_sites is LocalSites else ""
    if not keep or keep == "stop":
        LocalSites(kept).down(purge=True)
    folder: Path = kept if keep == "1" else tmp_path_factory.mktemp("sites")
    local = new_sites(folder)
    local.up([SiteSpec(name, USERS) for name in SITES])
    yield local
    if keep != "1":
        local.down(purge=True)


@pytest.fixture(scope="session")
def more_sites(sites: LocalSites) -> Callable[..., None]:
    """Start further sites with the same users, unless they run already: ``more_sites("gamma", "delta")``.

    This takes about 3 s for all of them and 170 MB each; ``kafka("gamma")`` and the other fixtures know them from then
    on.
    """
    running = set(SITES)

    def start(*names: str) -> None:
        if unknown := set(names) - {*SITES, *FURTHER_SITES}:
            raise ValueError(f"no such site: {', '.join(sorted(unknown))}; there are {', '.join(FURTHER_SITES)}")
        missing = [name for name in names if name not in running]
        sites.up([SiteSpec(name, USERS) for name in missing])
        running.update(missing)

    return start


@pytest.fixture(scope="session")
def kafka(sites: LocalSites) -> Callable[..., KafkaEndpoint]:
    """Return a site's Kafka endpoint: ``kafka("alpha", user="admin")``."""

    def endpoint(site: str, user: str = "admin") -> KafkaEndpoint:
        return sites.kafka(site, user)

    return endpoint


@pytest.fixture(scope="session")
def mqtt(sites: LocalSites) -> Callable[..., MqttEndpoint]:
    """Return a site's Mosquitto endpoint: ``mqtt("alpha", user="bridge")``; ``device`` may only publish."""

    def endpoint(site: str, user: str = "bridge") -> MqttEndpoint:
        return sites.mqtt(site, user)

    return endpoint


@pytest.fixture(scope="session")
def new_log(sites: LocalSites) -> Iterator[Callable[..., str]]:
    """Create a writable log and return its name: ``new_log("alpha")`` a new one, with ``name=`` always the same.

    ``new_log("alpha", stream="events", **{"cleanup.policy": "compact"})`` chooses its stream and settings.
    """
    run, counter = secrets.token_hex(3), itertools.count()
    clients: dict[str, tuple[KafkaEndpoint, AdminClient, Consumer]] = {}

    def make(site: str, stream: str = "test", name: str | None = None, **settings: str) -> str:
        topic = name or f"{stream}.{run}-{next(counter)}"
        if site not in clients:
            endpoint = sites.kafka(site, "admin")
            clients[site] = (endpoint, admin_client(endpoint), _watcher(endpoint))
        endpoint, admin, watcher = clients[site]
        create_logs(endpoint, {topic: settings}, client=admin)
        clients[site] = (endpoint, admin, _wait_writable(watcher, endpoint, topic))
        return topic

    yield make
    for _, _, watcher in clients.values():
        watcher.close()


def _watcher(endpoint: KafkaEndpoint) -> Consumer:
    return Consumer({**endpoint.librdkafka(), "group.id": "new-log", "log_level": 0})


def _wait_writable(watcher: Consumer, endpoint: KafkaEndpoint, topic: str) -> Consumer:
    """Wait until a created topic's leader answers for it: metadata alone comes too early.

    Return the consumer to use the next time. A consumer that a slow broker once told that there is no such topic has
    been seen to repeat that for two minutes, when others had long found it.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            watcher.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)
            return watcher
        except KafkaException:
            if time.monotonic() > end:
                raise
            watcher.poll(0.05)
            watcher.close()
            watcher = _watcher(endpoint)
