"""The state folder of local sites: ports, cluster ids and users between runs, and the lock on it. Never a secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairlead.errors import ConfigurationError, UnavailableError
from fairlead.home import private_folder
from fairlead.local.files import explained, write_file


class Profile(StrEnum):
    """What a site's Mosquitto may lose when it is killed; docs/edge.md has the costs.

    An acknowledgement of Mosquitto 2.0 survives a crash only after the next save of its whole state. ``DURABLE`` saves
    every other second, and devices keep acknowledged messages for longer than that, so nothing is lost. ``FAST``
    saves every 5 s and devices keep nothing: the last seconds are lost.

    Mosquitto's ``autosave_on_changes`` is no alternative: the acknowledgement comes before the save, a message on its
    way to a connected bridge counts as no change, and every change writes the whole state.
    """

    DURABLE = "durable"
    FAST = "fast"

    @property
    def autosave(self) -> int:
        """Mosquitto's ``autosave_interval``; it saves when more seconds than that have passed, so one later."""
        return 1 if self is Profile.DURABLE else 5

    @property
    def keep_seconds(self) -> float:
        """How long devices keep acknowledged messages: two saves, as the second may be interrupted, with room for slow
        ones: 100,000 queued messages took about 1 s, so a million takes some 10 s."""
        return 30.0 if self is Profile.DURABLE else 0.0


class Broker(NamedTuple):
    """One broker of a site: its node id, from 1, and its ports."""

    number: int
    port: int
    controller_port: int


class TlsFiles(BaseModel):
    """The PEM files of a site with TLS: paths, below the state folder where they are not absolute.

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


class LocalState(BaseModel):
    """All sites of one state folder."""

    version: int = 1
    sites: dict[str, SiteState] = Field(default_factory=dict)


def read_state(file: Path) -> LocalState:
    """Read ``state.json``; an empty state when there is none.

    Raises:
        ConfigurationError: the file is damaged.
    """
    try:
        return LocalState.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return LocalState()
    except ValidationError as error:
        raise ConfigurationError(
            f"{file} is damaged: {error.errors()[0]['msg']}",
            hint="restore it, or forget the sites' data: fairlead down --purge",
        ) from error


def write_state(file: Path, state: LocalState) -> None:
    """Replace ``state.json`` in one step."""
    write_file(file, state.model_dump_json(indent=1) + "\n")


# --- the lock

PATIENCE: Final = 600.0  # seconds; a start of sites holds the lock


@contextmanager
def locked(folder: Path, on_waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of a state folder, across processes; the folder is created where it is missing.

    Args:
        on_waiting: Called when another process holds the lock.

    Raises:
        UnavailableError: another process has held it for ``PATIENCE`` seconds.
    """
    from filelock import FileLock, Timeout  # late: whoever only reads the state does not load it

    with explained(folder):
        private_folder(folder)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_waiting()
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout as error:
            raise UnavailableError(
                f"another fairlead up or down has been at work in {folder} for {PATIENCE:.0f} s",
                hint="look for it with ps, and end it",
            ) from error
    try:
        yield
    finally:
        lock.release()
