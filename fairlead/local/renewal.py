"""Replace the certificates of a running local site without disconnecting clients, and check that servers use them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient

from fairlead.certs.facts import CertificateFacts, all_facts, check_accepted, facts
from fairlead.certs.trust import served
from fairlead.errors import ConfigurationError, UnavailableError
from fairlead.home import restart_command
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local import kafka, mosquitto, ports, processes, tls
from fairlead.local.certificates import SERVICES, Certificates
from fairlead.local.registry import LocalSite
from fairlead.local.sites import LocalSites
from fairlead.local.state import Broker, SiteState, TlsFiles, locked, read_state

PATIENCE = 20.0  # seconds for a server to present its new certificate
_PAUSE = 0.05
_AGAIN = 3.0  # seconds after which a server is told again to read its files
# A broker's network threads take connections in turn, and each loads the new certificate by itself (seen on 4.3.1):
# so many new connections in a row must see it.
_THREADS = 8
Connect = Callable[[KafkaEndpoint], AdminClient]


class Renewed(NamedTuple):
    """A site's current certificates by service, and whether all its servers run and present them."""

    certificates: dict[str, CertificateFacts]
    shown: bool


def renew(sites: LocalSites, site: str, connect: Connect, names: Sequence[str] = ()) -> Renewed:
    """Replace a site's certificates, and make its running servers load them. Connected clients stay connected.

    The state folder's authority issues new certificates for the names of the old ones and ``names``. Certificates of an
    operator are read again from their files.

    Args:
        connect: Makes an admin client that has logged in (``fairlead.kafka.admin.require_answer``).

    Raises:
        ConfigurationError: the site has no TLS, clients would not accept an operator's certificate, or running brokers
            do not trust its authority yet.
        UnavailableError: a server does not answer, or still presents the old certificate. Call again to continue.
    """
    local = LocalSite(sites.folder, site)
    state = read_state(sites.folder / "state.json").sites.get(site)
    if state is None or state.tls is None:
        raise ConfigurationError(
            f"{site} does not use TLS", hint=f"{restart_command(sites.folder, site)} --tls", site=site
        )
    _check_trusted(local, state, sites.folder / state.tls.ca)
    with locked(sites.folder):
        return _show_others(sites, local, state, state.tls, connect, names)


def _check_trusted(local: LocalSite, state: SiteState, ca: Path) -> None:
    """Check that the running brokers, as each other's clients, trust every authority in ``ca``.

    A running broker reads a new file of authorities at an unknown time. Once it has rejected a certificate, it never
    accepts that certificate or its authority (seen on 4.3.1).
    """
    trusted = {each.serial for each in all_facts(ca.read_bytes())}
    for broker in _running(local, state):
        store = local.kafka_folder(broker.number) / kafka.TRUSTSTORE
        if trusted - {each.serial for each in all_facts(store.read_bytes())}:
            raise ConfigurationError(
                f"{ca} has an authority that the running brokers of {local.name} do not trust yet",
                hint=restart_command(local.folder, local.name),
                site=local.name,
            )


def _show_others(
    sites: LocalSites, local: LocalSite, state: SiteState, files: TlsFiles, connect: Connect, names: Sequence[str]
) -> Renewed:
    folder, site = sites.folder, local.name
    if files.issued:
        Certificates(folder).issue_site(site, names)
    for service in SERVICES:
        check_accepted(*tls.paths(folder, site, files, service), folder / files.ca, site=site, address=ports.HOST)
    found = {service: facts(tls.read(folder, site, files, service)[0].certificate) for service in SERVICES}
    brokers = _running(local, state)
    pair, trusted = tls.read(folder, site, files, "kafka")
    if brokers:
        admin = connect(sites.kafka(site, kafka.ADMIN))
        for broker in brokers:
            kafka.write_stores(local.kafka_folder(broker.number), pair, trusted)
            take = partial(kafka.take_keystore, admin, broker.number)
            for port in broker[1:]:
                _wait_shown(local, port, found["kafka"], take)
    runs = processes.find(local.pid_file("mqtt")) is not None
    if runs:
        pair, _ = tls.read(folder, site, files, "mqtt")
        mosquitto.write_configuration(local.mosquitto_folder, state.mqtt_port, state.mqtt_profile, pair)
        reload = partial(processes.send, local.pid_file("mqtt"), signal.SIGHUP)
        _wait_shown(local, state.mqtt_port, found["mqtt"], reload)
    return Renewed(found, runs and len(brokers) == len(state.brokers))


def _running(local: LocalSite, state: SiteState) -> list[Broker]:
    return [broker for broker in state.brokers if processes.find(local.pid_file("kafka", broker.number)) is not None]


def _wait_shown(local: LocalSite, port: int, wanted: CertificateFacts, take: Callable[[], object]) -> None:
    """Make a server read its files again, repeatedly, until it presents the certificate ``wanted``."""
    end = time.monotonic() + PATIENCE
    told = -_AGAIN
    while any(facts(served(ports.HOST, port)).serial != wanted.serial for _ in range(_THREADS)):
        if time.monotonic() > end:
            raise UnavailableError(
                f"{local.name} still presents its old certificate at {ports.HOST}:{port} after {PATIENCE:.0f} s",
                hint=f"see its log; or restart it: {restart_command(local.folder, local.name)}",
                site=local.name,
            )
        if time.monotonic() - told > _AGAIN:
            take()
            told = time.monotonic()
        time.sleep(_PAUSE)  # servers do not say when they have read their files
