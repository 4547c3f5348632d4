"""What is remembered of local sites between runs: ports, cluster ids, users. Never a secret."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairlead.errors import ConfigurationError
from fairlead.local.files import write_file
from fairlead.local.profile import Profile


class Broker(NamedTuple):
    """One broker of a site: its node id, from 1, and its ports."""

    number: int
    port: int
    controller_port: int


class TlsFiles(BaseModel):
    """The PEM files of a site that speaks TLS: paths, below the state folder where they are not absolute.

    ``issued``: by the state folder's own authority, which keeps them (``fairlead.local.certificates``); else
    ``certificate`` and ``key`` are an operator's, for Kafka and Mosquitto.
    """

    model_config = ConfigDict(frozen=True)

    ca: str
    issued: bool
    certificate: str = ""
    key: str = ""


class SiteState(BaseModel):
    """One site. ``users`` are those that its brokers know already; ``more_brokers`` are the ports (for clients, for
    controllers) of its second broker and further ones."""

    model_config = ConfigDict(frozen=True)

    kafka_port: int
    controller_port: int
    mqtt_port: int
    cluster_id: str
    kafka_users: tuple[str, ...] = ()
    mqtt_users: tuple[str, ...] = ()
    properties: dict[str, str] = Field(default_factory=dict)
    more_brokers: tuple[tuple[int, int], ...] = ()
    mqtt_profile: Profile = Profile.DURABLE
    tls: TlsFiles | None = None

    @property
    def brokers(self) -> tuple[Broker, ...]:
        both = ((self.kafka_port, self.controller_port), *self.more_brokers)
        return tuple(Broker(number, *ports) for number, ports in enumerate(both, 1))

    @property
    def ports(self) -> tuple[int, ...]:
        return (*(port for broker in self.brokers for port in broker[1:]), self.mqtt_port)


class State(BaseModel):
    """All sites of one state folder."""

    version: int = 1
    sites: dict[str, SiteState] = Field(default_factory=dict)


def read_state(file: Path) -> State:
    """Read ``state.json``; an empty state when there is none.

    Raises:
        ConfigurationError: the file is damaged.
    """
    try:
        return State.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return State()
    except ValidationError as error:
        raise ConfigurationError(
            f"{file} is damaged: {error.errors()[0]['msg']}",
            hint="restore it, or forget the sites' data: fairlead down --purge",
        ) from error


def write_state(file: Path, state: State) -> None:
    """Replace ``state.json`` in one step."""
    write_file(file, state.model_dump_json(indent=1) + "\n")
