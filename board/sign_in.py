"""Check a name and password at the brokers, and slow down who guesses.

The board stores no password. It logs in to a broker with what somebody typed, as the customer's own program would; so
``fairlead acl rotate`` and ``acl apply`` change who can sign in here as well.
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pydantic import SecretStr

from board.viewer import Viewer, viewer_of
from fairlead.errors import FairleadError, RefusedError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.credentials import PasswordVersion, password_version
from fairlead.kafka.endpoint import KafkaEndpoint, KafkaLogin
from fairlead.kafka.protocol.errors import AuthenticationFailed
from topologies.model import Topology
from topologies.users import Role, service_users

_CLIENT: Final = "fairlead-board"
_PATIENCE: Final = 10.0  # seconds for a broker to answer
LONGEST_TEXT: Final = 256
"""Characters of a name or password; longer ones are refused without asking a broker."""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Whose password a broker has accepted, and its version; None where users do not log in by SCRAM."""

    viewer: Viewer
    password: PasswordVersion | None


class SignInCheck:
    """Checks names and passwords.

    Args:
        site: The board's own site, asked first.
        endpoint: Returns a site's Kafka; user and password are put in.
    """

    def __init__(self, topology: Callable[[], Topology], site: str, endpoint: Callable[[str], KafkaEndpoint]) -> None:
        self._topology, self._site, self._endpoint = topology, site, endpoint

    async def check(self, name: str, password: str) -> SignedIn | None:
        """Return who signs in; None if the password is wrong, or the name is nobody's who may see anything.

        A broker is asked in every case, so that the answer takes as long for a name that does not exist.

        Raises:
            FairleadError: no broker that knows the name answers.
        """
        if not name or not password or max(len(name), len(password)) > LONGEST_TEXT:
            return None
        topology = self._topology()
        failure: FairleadError | None = None
        for site in _sites_of(topology, name, self._site) or [self._site]:
            try:
                endpoint = _of_somebody(self._endpoint(site), name, SecretStr(password))
                await _log_in(endpoint)
                version = await _version_of(endpoint)
                if version is not None:
                    await _log_in(endpoint)  # so that the version is that of this password, not of one set meanwhile
            except AuthenticationFailed:
                return None
            except FairleadError as error:
                failure = error
                continue
            viewer = viewer_of(topology, name)
            return None if viewer is None else SignedIn(viewer, version)
        assert failure is not None  # noqa: S101 - there is at least one site
        raise failure

    async def password_version(self, name: str, site: str | None = None) -> PasswordVersion | None:
        """Return the version of a name's password; None if no broker answers, or users do not log in by SCRAM.

        Args:
            site: The site to ask; by default the first that answers, of those where the name exists.
        """
        for each in [site] if site is not None else _sites_of(self._topology(), name, self._site):
            with contextlib.suppress(FairleadError):
                endpoint = _of_somebody(self._endpoint(each), name, SecretStr(""))
                return await _version_of(endpoint)
        return None


async def _log_in(endpoint: KafkaEndpoint) -> None:
    await (await Cluster.open(endpoint, client_id=_CLIENT, request_timeout=_PATIENCE)).close()


async def _version_of(endpoint: KafkaEndpoint) -> PasswordVersion | None:
    mechanism = endpoint.login.mechanism
    if mechanism is None or not mechanism.is_scram:
        return None
    return await password_version(endpoint, client_id=_CLIENT, request_timeout=_PATIENCE)


def _of_somebody(endpoint: KafkaEndpoint, name: str, password: SecretStr) -> KafkaEndpoint:
    """Return a site's Kafka for somebody who typed name and password.

    Raises:
        RefusedError: there a password proves nothing: the broker looks at the board's own certificate or token.
    """
    mechanism = endpoint.login.mechanism
    if mechanism is None or not mechanism.by_password:
        raise RefusedError(
            f"nobody can sign in by a password of {endpoint.site}, whose users log in by {endpoint.login.shown}",
            hint="run the board at a site with SCRAM or PLAIN",
            site=endpoint.site,
        )
    login = KafkaLogin(mechanism)
    return replace(endpoint, user=name, password=password, other_passwords=(), login=login)


def _sites_of(topology: Topology, name: str, own: str) -> list[str]:
    """Return the sites where a customer or user exists, the board's own first."""
    people = (Role.CUSTOMER, Role.USER)
    found = [
        site
        for site in topology.sites
        if (user := service_users(topology, site).get(name)) is not None and user.role in people
    ]
    return sorted(found, key=lambda site: site != own)


_FREE: Final = 5  # failures before a wait
_FIRST: Final = 2.0  # seconds; each further failure doubles it
_LONGEST: Final = 900.0
_FORGET: Final = 3600.0
_REMEMBERED: Final = 50_000


@dataclass(slots=True)
class _Failures:
    count: int
    last: float
    before: float  # ``last`` without the newest failure


class Throttle:
    """Counts failed sign-ins by name and by address. After five, each one more doubles the wait, up to 15 minutes.

    A name is slowed down from every address, and an address for every name. An hour without a failure forgets them.

    Args:
        clock: Seconds that only rise.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def wait(self, name: str, address: str) -> float:
        """Return for how many more seconds a sign-in is refused; 0 if it is tried."""
        now = self._clock()
        waits = [
            failures.last + min(_LONGEST, _FIRST * 2.0 ** min(failures.count - _FREE, 20)) - now
            for key in (("name", name), ("address", address))
            if (failures := self._failures.get(key)) is not None and failures.count >= _FREE
        ]
        return max([0.0, *waits])

    def failed(self, name: str, address: str) -> None:
        """Count a failed sign-in."""
        now = self._clock()
        for key in (("name", name), ("address", address)):
            known = self._failures.pop(key, None)
            if known is None or now - known.last > _FORGET:
                known = _Failures(0, now, now)
            self._failures[key] = _Failures(known.count + 1, now, known.last)
        while len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)

    def unchecked(self, name: str, address: str) -> None:
        """Take back the last failure: no broker could say whether the password was wrong."""
        for key in (("name", name), ("address", address)):
            known = self._failures.get(key)
            if known is not None:
                known.count, known.last = known.count - 1, known.before

    def succeeded(self, name: str, address: str) -> None:
        """Forget the failures of a name, and the last one of the address. Its others stay: it may guess other names."""
        self.unchecked(name, address)
        self._failures.pop(("name", name), None)
