"""The state of local sites between runs (ports, cluster ids, users; no secrets), and the lock of the state folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fairlead.errors import ConfigurationError, UnavailableError
from fairlead.home import home, private_folder, purge_command
from fairlead.local.files import explained, write_file


class Profile(StrEnum):
    """How much a site's Mosquitto may lose when it is killed. docs/edge.md has the costs.

    A message that Mosquitto 2.0 acknowledged survives a crash only after the next save of its whole state. ``DURABLE``
    saves every two seconds, and devices keep acknowledged messages for longer than that: nothing is lost. ``FAST``
    saves every 6 s, and devices keep no acknowledged messages: the last seconds are lost.

    Mosquitto's ``autosave_on_changes`` does not help: Mosquitto acknowledges before it saves, a message to a connected
    bridge does not count as a change, and every change writes the whole state.
    """

    DURABLE = "durable"
    FAST = "fast"

    @property
    def autosave(self) -> int:
        """Mosquitto's ``autosave_interval``, in seconds. Mosquitto saves one second later than it says."""
        return 1 if self is Profile.DURABLE else 5

    @property
    def keep_seconds(self) -> float:
        """How many seconds devices keep acknowledged messages: two saves, because a crash may interrupt the second,
        and a margin for slow saves. Saving 100,000 queued messages took about 1 s."""
        return 30.0 if self is Profile.DURABLE else 0.0


class Broker(NamedTuple):
    """One broker of a site: its node id (from 1) and its ports."""

    number: int
    port: int
    controller_port: int


class TlsFiles(BaseModel):
    """The PEM files of a site with TLS. Relative paths are below the state folder.

    If ``issued``, the certificates come from the state folder's authority (``fairlead.local.certificates``). Else
    ``certificate`` and ``key`` are an operator's, used by both Kafka and Mosquitto.
    """

    model_config = ConfigDict(frozen=True)

    ca: str
    issued: bool
    certificate: str = ""
    key: str = ""


class SiteState(BaseModel):
    """One site. The users are the ones that its brokers have already. ``more_brokers`` has the client port and the
    controller port of the second and further brokers."""

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
    """The content of ``state.json``: all sites of one state folder."""

    version: int = 1
    sites: dict[str, SiteState] = Field(default_factory=dict)


def read_state(file: Path) -> LocalState:
    """Read ``state.json``; return an empty state if it does not exist.

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
            hint=f"restore it, or forget the sites' data: {purge_command(file.parent)}",
        ) from error


def all_states() -> Iterator[tuple[Path, LocalState]]:
    """Yield the state folder of each topology on this machine, and its state; not a damaged one or another user's."""
    for file in sorted(home().glob("*/state.json")):
        with contextlib.suppress(ConfigurationError, OSError):
            yield file.parent, read_state(file)


def write_state(file: Path, state: LocalState) -> None:
    """Replace ``state.json`` atomically."""
    write_file(file, state.model_dump_json(indent=1) + "\n")


# --- the lock

PATIENCE: Final = 600.0  # seconds; 'fairlead up' holds the lock while sites start


@contextmanager
def locked(folder: Path, on_waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of a state folder, across processes. Create the folder if it is missing.

    Args:
        on_waiting: Called when another process holds the lock.

    Raises:
        UnavailableError: another process has held it for ``PATIENCE`` seconds.
    """
    from filelock import FileLock, Timeout  # imported late: not needed to read the state

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
                f"another fairlead command has held the lock of {folder} for {PATIENCE:.0f} s",
                hint="wait for it to end; or find it with ps, and end it",
            ) from error
    try:
        yield
    finally:
        lock.release()
