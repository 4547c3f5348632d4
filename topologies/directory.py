"""Where each site of a topology is, for whom: addresses from the topology, else the local cluster's.

Passwords of sites with an address come from the environment, ``FAIRLEAD_SECRET_<SITE>_<USER>`` (upper case, every
character that is no letter or digit written as ``_``), else from the local override file (``topologies.secrets``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from fairlead.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.errors import ConfigurationError, UnknownNameError
from fairlead.local.directory import KnownSites
from fairlead.local.passwords import next_variable, secret_variable
from fairlead.local.profile import Profile
from topologies.model import Site, Topology
from topologies.values import parse_bootstrap


class Directory:
    """Endpoints by site and user. Opens no connection and starts nothing."""

    def __init__(self, topology: Topology, sites: KnownSites, *, env: Mapping[str, str] = os.environ) -> None:
        self._topology = topology
        self._sites = sites
        self._env = env

    def kafka(self, site: str, user: str) -> KafkaEndpoint:
        """The site's Kafka for a user.

        Raises:
            UnknownNameError: the topology has no such site.
            ConfigurationError: the site has an address, and its password is not in the environment.
            FairleadError: the site is local and was never started, or has no such user.
        """
        address = self._site(site).kafka
        if address is None:
            return self._sites.kafka(site, user)
        return KafkaEndpoint(
            site=site,
            bootstrap=parse_bootstrap(address.bootstrap),
            user=user,
            password=self._password(site, user),
            tls=address.security == "SASL_SSL",
            tls_ca=Path(address.ca) if address.ca else None,
            other_passwords=self._others(site, user),
        )

    def is_local(self, site: str) -> bool:
        """Whether the site's cluster is one that Fairlead starts on this machine.

        Raises:
            UnknownNameError: the topology has no such site.
        """
        return self._site(site).is_local

    def mqtt(self, site: str, user: str) -> MqttEndpoint:
        """The site's MQTT broker for a user; errors as ``kafka``."""
        address, profile = self._site(site).mqtt, self._site(site).mqtt_profile or Profile.DURABLE
        if address is None:
            return self._sites.mqtt(site, user)
        return MqttEndpoint(
            site=site,
            host=address.host,
            port=address.port,
            user=user,
            password=self._password(site, user),
            tls_ca=Path(address.ca) if address.ca else None,
            keep_seconds=profile.keep_seconds,
            other_passwords=self._others(site, user),
        )

    def next_password(self, site: str, user: str) -> SecretStr | None:
        """The password that is to count next at a site outside this machine, if the environment has one."""
        value = self._env.get(next_variable(site, user))
        return SecretStr(value) if value else None

    def _others(self, site: str, user: str) -> tuple[SecretStr, ...]:
        following = self.next_password(site, user)
        return () if following is None else (following,)

    def _site(self, name: str) -> Site:
        try:
            return self._topology.sites[name]
        except KeyError:
            raise UnknownNameError("site", name, self._topology.sites) from None

    def _password(self, site: str, user: str) -> SecretStr:
        variable = secret_variable(site, user)
        value = self._env.get(variable)
        written = self._topology.secret(site, user)
        if not value and written is not None:
            return written
        if not value:
            raise ConfigurationError(
                f"{site} is outside this machine and the password of its user {user!r} is not known",
                hint=f"set the environment variable {variable}, or secrets: {{{site}: {{{user}: ...}}}} in "
                f"{self._topology.name}.local.yaml",
                site=site,
                user=user,
                variable=variable,
            )
        return SecretStr(value)
