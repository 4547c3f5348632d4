"""TLS of a site's brokers: their settings, the files that these name, and having a running broker read them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from fairlead.certs.model import Pair
from fairlead.errors import UnavailableError
from fairlead.local.files import write_file

KEYSTORE: Final = "keystore.pem"
TRUSTSTORE: Final = "truststore.pem"
_LISTENERS: Final = ("client", "controller")

# Everywhere: with clients, and brokers and controllers with each other; there is no listener in clear text to fall back
# to. Each listener has its own settings, as a running broker takes a new certificate only by those (KIP-226).
TLS_PROPERTIES: Final[dict[str, str | int]] = {
    "listener.security.protocol.map": "CLIENT:SASL_SSL,CONTROLLER:SASL_SSL",
    **{
        f"listener.name.{listener}.ssl.{name}": value
        for listener in _LISTENERS
        for name, value in {
            "keystore.type": "PEM",
            "keystore.location": KEYSTORE,
            "truststore.type": "PEM",
            "truststore.location": TRUSTSTORE,
            "allow.dn.changes": "true",  # a new certificate is tried before the broker is given it
            "allow.san.changes": "true",
        }.items()
    },
}


def write_stores(folder: Path, pair: Pair, ca: bytes) -> None:
    """Write what the broker shows and whom it trusts, to the files that ``TLS_PROPERTIES`` name.

    Raises:
        UnavailableError: the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_file(folder / TRUSTSTORE, ca)
    write_file(folder / KEYSTORE, pair.key + pair.certificate)


def take_keystore(admin: AdminClient, node_id: int) -> None:
    """Have a running broker read ``KEYSTORE`` again. What is connected stays connected; it takes a moment.

    The settings are what they were: being set, the broker looks whether the file is another one.

    Raises:
        UnavailableError: it may not, or does not answer.
    """
    entries = [
        ConfigEntry(f"listener.name.client.ssl.keystore.{key}", value, incremental_operation=AlterConfigOpType.SET)
        for key, value in (("type", "PEM"), ("location", KEYSTORE))
    ]
    resource = ConfigResource(ResourceType.BROKER, str(node_id), incremental_configs=entries)
    for done in admin.incremental_alter_configs([resource], request_timeout=30).values():
        try:
            done.result()
        except KafkaException as error:
            cause: Any = error.args[0]
            raise UnavailableError(
                f"broker {node_id} did not take its new certificate: {cause.name()}",
                hint="see its server.log; it goes on with the old one",
            ) from error
