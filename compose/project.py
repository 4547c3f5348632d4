"""Build ``compose.yaml``: the services of a fleet, with one function for each kind of container. Pure.

Every service runs without root and capabilities, on a read-only root, with limits of memory and processes. Services
restart when they end, except one-off tasks.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from compose.fleet import (
    BOARD,
    BOARD_PORT,
    CERTIFICATES,
    METRICS_PORT,
    SECRETS,
    Deployed,
    Fleet,
    all_secrets,
    secrets_from_outside,
    secrets_of_board,
    secrets_of_bridge,
    secrets_of_broker,
    secrets_of_mqtt,
    secrets_of_replicator,
    secrets_of_routes,
    secrets_of_spark,
)
from compose.settings import DATA, HOST, SETTINGS
from topologies.endpoints import LINES
from topologies.users import NOTIFY

Service = dict[str, Any]

WAN: Final = "wan"
SPARK_NETWORK: Final = "spark"  # Spark's master, workers and drivers; no container of another site
STATE: Final = "state"  # tables, checkpoints, files of voyages and of the command line
HOME: Final = "/var/lib/fairlead"
HOMES: Final = "/var/lib/fairlead-sites"  # where board and command line find the sites' state
TOPOLOGY_FOLDER: Final = "/etc/fairlead"
ADDRESS_OVERRIDES: Final = "/etc/fairlead-links/address-overrides.json"
_ADDRESS_OVERRIDES_MOUNT: Final = f"./links/address-overrides.json:{ADDRESS_OVERRIDES}:ro"
_METRICS: Final = ("--metrics-port", str(METRICS_PORT), "--metrics-host", "0.0.0.0")  # noqa: S104 - its own network
_IMAGE: Final = "${FAIRLEAD_IMAGE:-fairlead}"
_SHORE_IMAGE: Final = "${FAIRLEAD_SHORE_IMAGE:-fairlead-shore}"
_PYTHON: Final = "/opt/fairlead/bin/python"
_MEMORY_OF_BROKER: Final = "640m"  # a heap of 256 MB and the JVM's other memory; the rest is page cache


def _container(image: str, memory: str, **further: Any) -> Service:
    common: Service = {
        "image": image,
        "restart": "unless-stopped",
        "read_only": True,
        # Compression (zstd, snappy) and RocksDB unpack their native libraries there: Docker's default is noexec.
        "tmpfs": ["/tmp:mode=1777,exec"],  # noqa: S108 - the container's own
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "mem_limit": memory,
        "pids_limit": 1024,
        "stop_grace_period": "30s",
    }
    return common | further


def state_of(site: str) -> str:
    """Return the name of the volume that a site's services share; the board and the command line read it."""
    return f"{site}-state"


def _check(fleet: Fleet, *what: str) -> Service:
    """Return a health check. A check costs about 0.2 s of CPU, mostly Docker's, so a larger fleet checks less often."""
    test = ["CMD", _PYTHON, "-m", "compose.entry.healthcheck", *what]
    interval = max(5, fleet.size * 4 // 5)
    return {"test": test, "interval": f"{interval}s", "timeout": "10s", "retries": 5, "start_period": "300s"}


def _certificates(*hosts: str) -> list[str]:
    files = ["ca.pem", *(f"{host}.pem" for host in hosts)]
    return [f"./certificates/{file}:{CERTIFICATES}/{file}:ro" for file in files]


def _topology(fleet: Fleet, *hosts: str) -> tuple[dict[str, str], list[str]]:
    """Return environment and volumes of a service that reads the topology, with the certificates of ``hosts``."""
    environment = {"FAIRLEAD_TOPOLOGY": f"{TOPOLOGY_FOLDER}/{fleet.topology.name}.yaml"}
    return environment, [f"./topology:{TOPOLOGY_FOLDER}:ro", *(_certificates(*hosts) if fleet.tls else ())]


def broker(fleet: Fleet, site: Deployed, node: int) -> Service:
    """Return the service of one broker of a site, by its node id."""
    host = site.brokers[node - 1]
    return _container(
        _IMAGE,
        _MEMORY_OF_BROKER,
        hostname=host,
        entrypoint=["tini", "--", _PYTHON, "-m", "compose.entry.broker"],
        command=[],
        environment={"SITE": site.name, "NODE": str(node), "CLUSTER_ID": site.cluster_id},
        secrets=secrets_of_broker(site),
        volumes=[
            f"{host}:{DATA}",
            f"./brokers/{host}.properties:{SETTINGS}:ro",
            *_certificates(host),  # controllers always use TLS
        ],
        networks=[site.name, WAN],
        healthcheck=_check(fleet, "kafka", *(("tls",) if fleet.tls else ())),
    )


def mqtt(fleet: Fleet, site: Deployed) -> Service:
    """Return the service of a site's Mosquitto."""
    environment, volumes = _topology(fleet, site.mqtt)
    return _container(
        _IMAGE,
        "256m",
        hostname=site.mqtt,
        entrypoint=["tini", "--", _PYTHON, "-m", "compose.entry.mqtt"],
        command=[],
        environment=environment | {"SITE": site.name, "TLS": "1" if fleet.tls else ""},
        secrets=secrets_of_mqtt(fleet, site),
        volumes=[f"{site.mqtt}:/var/lib/mosquitto-data", *volumes],
        networks=[site.name],
        healthcheck=_check(fleet, "mqtt", *(("tls",) if fleet.tls else ())),
    )


def _notifies(fleet: Fleet) -> str | None:
    return fleet.topology.notify.at if fleet.topology.notify else None


def has_state(fleet: Fleet, site: Deployed) -> bool:
    """Return whether a site has a service with files of its own."""
    return site.has_devices or fleet.topology.has_replicator(site.name) or site.name == _notifies(fleet)


def bridge(fleet: Fleet, site: Deployed) -> Service:
    """Return the service of a site's bridge."""
    environment, volumes = _topology(fleet)
    return _container(
        _IMAGE,
        "512m",
        command=["bridge", "--site", site.name, *_METRICS],
        environment=environment,
        secrets=secrets_of_bridge(site),
        volumes=[f"{state_of(site.name)}:{HOME}", *volumes],
        networks=[site.name],
        depends_on={"setup": {"condition": "service_completed_successfully"}},
        healthcheck=_check(fleet, "bridge", site.name),
    )


def replicator(fleet: Fleet, site: Deployed) -> Service:
    """Return the service of a site's replicator, which copies over all links to the site."""
    environment, volumes = _topology(fleet)
    command = ["replicate", "--site", site.name, *_METRICS]
    if fleet.links:
        command += ["--address-overrides", ADDRESS_OVERRIDES]
        volumes = [*volumes, _ADDRESS_OVERRIDES_MOUNT]
    return _container(
        _IMAGE,
        "640m",
        command=command,
        environment=environment,
        secrets=secrets_of_replicator(fleet, site),
        volumes=[f"{state_of(site.name)}:{HOME}", *volumes],
        networks=[site.name, WAN],
        depends_on={"setup": {"condition": "service_completed_successfully"}},
        healthcheck=_check(fleet, "replicator", site.name),
    )


def links(fleet: Fleet) -> dict[str, Service]:
    """Return the service of the proxies between replicators and their sources.

    Voyages control the proxies over a socket in the shared state.
    """
    if not fleet.links:
        return {}
    at = f"{HOME}/{fleet.topology.name}/run/{LINES}"
    service = _container(
        _IMAGE,
        "256m",
        hostname=HOST,
        entrypoint=["tini", "--", _PYTHON, "-m", "simulators.network.server"],
        command=[ADDRESS_OVERRIDES, at],
        volumes=[f"{STATE}:{HOME}", _ADDRESS_OVERRIDES_MOUNT],
        networks=[WAN],
        healthcheck=_check(fleet, "links", at),
    )
    return {HOST: service}


def setup(fleet: Fleet) -> Service:
    """Return the service that creates users and rules at all sites, waits for sites that are not up yet, and ends."""
    environment, volumes = _topology(fleet)
    brokers = [host for site in fleet.sites for host in site.brokers]
    return _container(
        _IMAGE,
        "512m",
        restart="on-failure",
        command=["acl", "apply", "--yes", "--create-users", "--wait", "300"],
        environment=environment,
        secrets=all_secrets(fleet),
        volumes=[f"{STATE}:{HOME}", *volumes],
        networks=[WAN],
        depends_on={host: {"condition": "service_healthy"} for host in brokers},
    )


def _homes(fleet: Fleet) -> list[str]:
    """Return the volumes with the state of all sites, where ``FAIRLEAD_SITE_HOMES`` says, read-only."""
    return [f"{state_of(site.name)}:{HOMES}/{site.name}:ro" for site in fleet.sites if has_state(fleet, site)]


def board(fleet: Fleet) -> dict[str, Service]:
    """Return the service of the board, beside the first site of the topology's ``board.at``, with the tables.

    It always has a certificate, because people type passwords into its pages.
    """
    given = fleet.topology.board
    if given is None:
        return {}
    environment, volumes = _topology(fleet)
    certificate = f"{CERTIFICATES}/{BOARD}.pem"
    listen = ["--host", "0.0.0.0", "--port", str(BOARD_PORT), "--certificate", certificate, "--key", certificate]  # noqa: S104
    service = _container(
        _SHORE_IMAGE,
        "3g",
        hostname=BOARD,
        command=["board", "--site", given.at[0], *listen, "--name", "${FAIRLEAD_BOARD_NAME:-localhost}", *_METRICS],
        environment=environment | {"FAIRLEAD_SITE_HOMES": HOMES},
        secrets=secrets_of_board(given),
        volumes=list(dict.fromkeys([f"{STATE}:{HOME}", *_homes(fleet), *volumes, *_certificates(BOARD)])),
        networks=[WAN, given.at[0]],
        ports=[f"${{FAIRLEAD_BOARD_ADDRESS:-127.0.0.1}}:{BOARD_PORT}:{BOARD_PORT}"],
        depends_on={"setup": {"condition": "service_completed_successfully"}},
        healthcheck=_check(fleet, "board"),
    )
    return {BOARD: service}


def notify(fleet: Fleet) -> dict[str, Service]:
    """Return the service that sends notifications. Its container reaches receivers over its site's network."""
    given = fleet.topology.notify
    if given is None:
        return {}
    environment, volumes = _topology(fleet)
    service = _container(
        _IMAGE,
        "512m",
        command=["notify", "run", "--site", given.at, *_METRICS],
        environment=environment,
        secrets=[f"{given.at}.{NOTIFY}", *secrets_of_routes(fleet)],
        volumes=[f"{state_of(given.at)}:{HOME}", *volumes],
        networks=[given.at],
        stop_grace_period="60s",  # it waits for what is being sent
        depends_on={"setup": {"condition": "service_completed_successfully"}},
        healthcheck=_check(fleet, "metrics"),
    )
    return {NOTIFY: service}


def command_line(fleet: Fleet) -> Service:
    """Return the service of the command line, which can reach all sites: ``docker compose run --rm cli status``."""
    environment, volumes = _topology(fleet)
    spark_network = [SPARK_NETWORK] if fleet.topology.shore else []
    return _container(
        _SHORE_IMAGE,
        "3g",
        restart="no",
        profiles=["cli"],
        hostname="cli",
        command=["status"],
        environment=environment | {"FAIRLEAD_SITE_HOMES": HOMES},
        secrets=[*all_secrets(fleet), *secrets_of_routes(fleet), *secrets_of_spark(fleet)],
        volumes=[f"{STATE}:{HOME}", *_homes(fleet), *volumes, "./report:/report"],
        networks=[WAN, *spark_network, *(site.name for site in fleet.sites)],
    )


def spark(fleet: Fleet) -> dict[str, Service]:
    """Return a standalone cluster of Spark: a master and a worker, and the jobs that run on it (profile ``shore``)."""
    if fleet.topology.shore is None:
        return {}
    environment, volumes = _topology(fleet)
    own = {"SITE": fleet.topology.shore.at}
    secret = secrets_of_spark(fleet)
    networks = [SPARK_NETWORK, *fleet.topology.shore.sites]  # shore can move to the others
    master = _container(
        _SHORE_IMAGE,
        "768m",
        hostname="spark-master",
        entrypoint=["tini", "--", _PYTHON, "-m", "compose.entry.spark"],
        command=["master"],
        environment=own,
        secrets=secret,
        networks=[SPARK_NETWORK],
        healthcheck=_check(fleet, "spark-master"),
    )
    worker = _container(
        _SHORE_IMAGE,
        "4g",
        hostname="spark-worker",
        entrypoint=["tini", "--", _PYTHON, "-m", "compose.entry.spark"],
        command=["worker"],
        environment=environment | own,
        secrets=secret,
        volumes=[f"{STATE}:{HOME}", *(_certificates() if fleet.tls else ())],
        networks=networks,
        depends_on={"spark-master": {"condition": "service_healthy"}},
        healthcheck=_check(fleet, "spark-worker"),
    )
    jobs = _container(
        _SHORE_IMAGE,
        "3g",
        hostname="shore",
        profiles=["shore"],
        command=["shore", "run", *_METRICS],
        environment=environment,
        secrets=[*(f"{site}.shore" for site in fleet.topology.shore.sites), *secret],
        volumes=[f"{STATE}:{HOME}", *volumes],
        networks=networks,
        depends_on={
            "setup": {"condition": "service_completed_successfully"},
            "spark-worker": {"condition": "service_healthy"},
        },
    )
    return {"spark-master": master, "spark-worker": worker, "shore": jobs}


def monitoring(fleet: Fleet) -> dict[str, Service]:
    """Return Prometheus with the alert rules, and Grafana with the dashboard (profile ``monitoring``)."""
    prometheus = _container(
        "${PROMETHEUS_IMAGE:-prom/prometheus:v3.7.3}",
        "512m",
        profiles=["monitoring"],
        user="65534:65534",
        command=["--config.file=/etc/prometheus/prometheus.yaml", "--storage.tsdb.path=/prometheus"],
        volumes=["./monitoring/prometheus:/etc/prometheus:ro", "prometheus:/prometheus"],
        networks=[WAN, *(site.name for site in fleet.sites if site.has_devices or site.name == _notifies(fleet))],
        ports=["127.0.0.1:9090:9090"],
    )
    grafana = _container(
        "${GRAFANA_IMAGE:-grafana/grafana:12.2.1}",
        "512m",
        profiles=["monitoring"],
        environment={"GF_SECURITY_ADMIN_PASSWORD__FILE": f"{SECRETS}/grafana.admin"},
        secrets=["grafana.admin"],
        volumes=[
            "./monitoring/grafana/provisioning:/etc/grafana/provisioning:ro",
            "./monitoring/grafana/dashboards:/var/lib/grafana/dashboards:ro",
            "grafana:/var/lib/grafana",
        ],
        networks=[WAN],
        ports=["127.0.0.1:3000:3000"],
        depends_on=["prometheus"],
    )
    return {"prometheus": prometheus, "grafana": grafana}


_HEADER = """# Rendered from the topology {name} by `fairlead compose render`; change the topology and render again.
# docs/compose.md says what is in it and how to use it.
"""


def project(fleet: Fleet) -> dict[str, Any]:
    """Return ``compose.yaml`` as data."""
    found: dict[str, Any] = {}
    volumes = [STATE, "prometheus", "grafana"]
    for site in fleet.sites:
        for node, host in enumerate(site.brokers, 1):
            found[host] = broker(fleet, site, node)
            volumes.append(host)
        if site.has_devices:
            found[site.mqtt] = mqtt(fleet, site)
            volumes.append(site.mqtt)
            found[f"{site.name}-bridge"] = bridge(fleet, site)
        if fleet.topology.has_replicator(site.name):
            found[f"{site.name}-replicator"] = replicator(fleet, site)
        if has_state(fleet, site):
            volumes.append(state_of(site.name))
    spark_networks = [SPARK_NETWORK] if fleet.topology.shore else []
    secrets = [*all_secrets(fleet), *secrets_from_outside(fleet), *secrets_of_spark(fleet)]
    found["setup"] = setup(fleet)
    found["cli"] = command_line(fleet)
    found |= board(fleet) | notify(fleet) | links(fleet) | spark(fleet) | monitoring(fleet)
    return {
        "name": f"fairlead-{fleet.topology.name}",
        "services": found,
        "networks": dict.fromkeys([WAN, *spark_networks, *(site.name for site in fleet.sites)]),
        "volumes": dict.fromkeys(volumes),
        "secrets": {name: {"file": f"./secrets/{name}"} for name in [*secrets, "grafana.admin"]},
    }


def text(fleet: Fleet) -> str:
    """Return ``compose.yaml`` as text."""
    body = yaml.safe_dump(project(fleet), sort_keys=False, width=120, allow_unicode=True)
    return _HEADER.format(name=fleet.topology.name) + body
