"""Resolve the endpoints of a topology's sites for a user: the address in the topology, else the local cluster's.

The password for a site with an address comes from the first of these sources that has it:

1. the environment variable ``FAIRLEAD_SECRET_<SITE>_<USER>`` (upper case; every character that is not a letter or digit
   becomes ``_``);
2. a file ``<site>.<user>`` in the folder that ``FAIRLEAD_SECRETS`` names, as containers have them
   (``<site>.<user>.next`` while the password is being changed);
3. the local override file (``topologies.loader.load``).

Files are read each time, so that running programs get a new password. The bridge's password at the MQTT broker is
separate from its password at Kafka and has the name ``bridge-mqtt``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import SecretStr, TypeAdapter, ValidationError

from fairlead.errors import ConfigurationError, UnknownNameError
from fairlead.home import override_file, private_folder
from fairlead.kafka.endpoint import Address, KafkaEndpoint, KafkaLogin, MqttEndpoint, SaslMechanism
from fairlead.kafka.tokens import MskRegion, OidcEndpoint, TokenSource
from fairlead.local.passwords import mqtt_secret, next_variable, secret_variable
from fairlead.local.registry import LocalSiteRegistry
from fairlead.local.state import Profile
from topologies.model import KafkaAddress, Site, Topology
from topologies.users import ADMIN, SESSION, SPARK
from topologies.values import msk_region, parse_bootstrap

SECRETS_FOLDER = "FAIRLEAD_SECRETS"


class EndpointResolver:
    """Resolve endpoints by site and user. Opens no connection and starts nothing."""

    def __init__(self, topology: Topology, sites: LocalSiteRegistry, *, env: Mapping[str, str] = os.environ) -> None:
        self._topology = topology
        self._sites = sites
        self._env = env

    @property
    def override_file(self) -> str:
        """The name of the topology's local override file, for hints."""
        return override_file(self._sites.folder, self._topology.name)

    def kafka(self, site: str, user: str) -> KafkaEndpoint:
        """Return the site's Kafka for a user.

        Raises:
            UnknownNameError: the topology has no such site.
            ConfigurationError: the site has an address, and no source has the password.
            FairleadError: the site is local and was never started, or has no such user.
        """
        address = self._site(site).kafka
        if address is None:
            return self._sites.kafka(site, user)
        login = self._login(address, user)
        secret = login.certificate is None and login.mechanism is not SaslMechanism.AWS_MSK_IAM
        return replace(
            _at(site, address),
            user=user,
            password=self._password(site, user) if secret else None,
            other_passwords=self._others(site, user) if secret else (),
            login=login,
        )

    def anybodys_kafka(self, site: str) -> KafkaEndpoint:
        """Return a site's Kafka for a user and password that the caller puts in; no source needs to have any.

        Raises:
            UnknownNameError: the topology has no such site.
            FairleadError: the site is local and was never started.
        """
        address = self._site(site).kafka
        if address is None:
            return self._sites.kafka(site, ADMIN)
        return replace(_at(site, address), login=self._login(address, ""))

    def _login(self, address: KafkaAddress, user: str) -> KafkaLogin:
        if address.security == "SSL":
            folder = Path(address.certificates or ".")
            return KafkaLogin(None, certificate=folder / f"{user}.pem", key=folder / f"{user}.key")
        tokens: TokenSource | None = None
        if address.sasl_mechanism is SaslMechanism.AWS_MSK_IAM:
            tokens = MskRegion(msk_region(address.bootstrap) or self._env.get("AWS_REGION", ""))
        elif address.oauth is not None:
            oauth, ca = address.oauth, address.oauth.ca
            extensions = tuple(sorted(oauth.extensions.items()))
            tokens = OidcEndpoint(oauth.endpoint, oauth.scope, Path(ca) if ca else None, extensions)
        return KafkaLogin(address.sasl_mechanism, address.logins.get(user), tokens)

    def is_local(self, site: str) -> bool:
        """Return whether Fairlead starts the site's cluster on this machine.

        Raises:
            UnknownNameError: the topology has no such site.
        """
        return self._site(site).is_local

    def mqtt(self, site: str, user: str) -> MqttEndpoint:
        """Return the site's MQTT broker for a user. Raises the errors of ``kafka``."""
        address, profile = self._site(site).mqtt, self._site(site).mqtt_profile or Profile.DURABLE
        if address is None:
            return self._sites.mqtt(site, user)
        secret = mqtt_secret(user)
        return MqttEndpoint(
            site=site,
            host=address.host,
            port=address.port,
            user=user,
            password=self._password(site, secret),
            tls=address.security == "TLS",
            tls_ca=Path(address.ca) if address.ca else None,
            keep_seconds=profile.keep_seconds,
            other_passwords=self._others(site, secret),
        )

    def next_password(self, site: str, user: str) -> SecretStr | None:
        """Return the new password of a user at a site outside this machine, while it is being changed; else None."""
        value = self._given(next_variable(site, user), f"{site}.{user}.next")
        return SecretStr(value) if value else None

    def newest_secret(self, site: str, name: str) -> SecretStr | None:
        """Return a secret that no broker has, by the sources of passwords; the next one while it is being changed."""
        value = self._given(secret_variable(site, name), f"{site}.{name}")
        return (
            self.next_password(site, name) or (SecretStr(value) if value else None) or self._topology.secret(site, name)
        )

    def mqtt_session(self, site: str) -> str | None:
        """Return the bridge's client id at a site's MQTT broker outside this machine; None for the usual one.

        It is a secret like a password, in ``FAIRLEAD_SECRET_<SITE>_BRIDGE_SESSION`` or the file
        ``<site>.bridge-session``.
        """
        return self._given(secret_variable(site, SESSION), f"{site}.{SESSION}")

    def spark_settings(self, site: str) -> dict[str, str]:
        """Return the Spark setting with the secret by which the standalone cluster of a site's shore authenticates.

        The secret is stored as the password of ``spark``, because topologies hold no secrets. Empty without one. Never
        log the result.
        """
        value = self._given(secret_variable(site, SPARK), f"{site}.{SPARK}")
        secret = SecretStr(value) if value else self._topology.secret(site, SPARK)
        return {} if secret is None else {"spark.authenticate.secret": secret.get_secret_value()}

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
        value = self._given(variable, f"{site}.{user}")
        written = self._topology.secret(site, user)
        if not value and written is not None:
            return written
        if not value:
            raise ConfigurationError(
                f"{site} is outside this machine, and the password of its user {user!r} is not set",
                hint=f"set the environment variable {variable}, or secrets: {{{site}: {{{user}: ...}}}} in "
                f"{self.override_file}, or write it to the file {site}.{user} in the folder that "
                f"{SECRETS_FOLDER} names",
                site=site,
                user=user,
                variable=variable,
            )
        return SecretStr(value)

    def _given(self, variable: str, file: str) -> str | None:
        """Return a secret from its variable, else from its file."""
        return self._env.get(variable) or self._filed(file)

    def _filed(self, name: str) -> str | None:
        """Read a secret from its file, without the newline at the end; None without the folder or the file."""
        folder = self._env.get(SECRETS_FOLDER)
        if not folder:
            return None
        file = Path(folder) / name
        try:
            return file.read_text(encoding="utf-8").removesuffix("\n")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            what = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigurationError(
                f"{file}, which holds a password, cannot be read: {what}",
                hint="give the user of this program the right to read it",
                file=str(file),
            ) from None


# --- address overrides of links: JSON by target, source and advertised address
#     {"los-angeles": {"duck-star": {"10.0.0.7:9092": "127.0.0.1:40001"}}}

LINES: Final = "links.sock"
"""Unix socket, in the folder ``run`` of a topology's state, of the process that runs all proxies."""

AddressOverrides = Mapping[str, Mapping[str, tuple[tuple[Address, Address], ...]]]
"""By target and source: pairs for ``KafkaEndpoint.address_overrides``."""

_FILE = TypeAdapter(dict[str, dict[str, dict[str, str]]])


def _at(site: str, address: KafkaAddress) -> KafkaEndpoint:
    """Return the Kafka at an address, as nobody."""
    return KafkaEndpoint(
        site=site,
        bootstrap=parse_bootstrap(address.bootstrap),
        tls=address.tls,
        tls_ca=Path(address.ca) if address.ca else None,
    )


def read_address_overrides(file: Path) -> AddressOverrides:
    """Read a file of address overrides, the format of ``fairlead replicate --address-overrides``.

    Raises:
        ConfigurationError: the file cannot be read, or has another format.
    """
    try:
        content = _FILE.validate_json(file.read_bytes())
        return {
            target: {
                source: tuple((_address(there), _address(instead)) for there, instead in ways.items())
                for source, ways in sources.items()
            }
            for target, sources in content.items()
        }
    except (OSError, ValueError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ConfigurationError(
            f"the address overrides in {file} cannot be used: {why}",
            hint='JSON by target, source and address: {"tokyo": {"sydney": {"10.0.0.7:9092": "127.0.0.1:40001"}}}',
            file=str(file),
        ) from error


def write_address_overrides(file: Path, address_overrides: AddressOverrides) -> None:
    """Write a file of address overrides, for ``fairlead replicate --address-overrides``."""
    content = {
        target: {source: {_text(there): _text(instead) for there, instead in ways} for source, ways in sources.items()}
        for target, sources in address_overrides.items()
    }
    private_folder(file.parent)
    file.write_bytes(_FILE.dump_json(content, indent=2) + b"\n")


def _address(text: str) -> Address:
    addresses = parse_bootstrap(text)
    if len(addresses) != 1:
        raise ValueError(f"{text}: expected one address, host:port")
    return addresses[0]


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
