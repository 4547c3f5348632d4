"""What can go wrong at a site's way in, by name. All derive from ``FairleadError``."""

from __future__ import annotations

from fairlead.errors import ExitCode, FairleadError, RefusedError, UnavailableError


class EdgeError(FairleadError):
    """Base of the bridge's own errors."""


class NotHolderError(RefusedError):
    """This site does not hold the log, so it may neither append to it nor give it away."""

    def __init__(self, log: str, site: str, holder: str | None, *, doing: str) -> None:
        where = f"{holder} holds it" if holder else "no site holds it"
        super().__init__(
            f"{site} cannot {doing}: it does not hold {log} ({where})",
            hint="publish the event at the site that holds the box; if that site is lost, its log must be seized",
            log=log,
            site=site,
            holder=holder,
        )


class ReplicaBehindError(EdgeError):
    """Custody needs the log's whole past here, and this site's copy does not have it."""

    retriable = True


class LogNotCreatedError(EdgeError):
    """The site's Kafka does not create a log, or does not serve it; it is tried again."""

    retriable = True


class LostCustodyError(EdgeError):
    """This site's copy is in a later term than its ledgers know: another site may append, this one may not."""

    exit_code = ExitCode.REFUSED


class SeizureError(RefusedError):
    """This site cannot seize a log."""


class SecondBridgeError(EdgeError):
    """Another bridge works for this site: what it wrote into the site's ledger, this one did not."""

    exit_code = ExitCode.REFUSED


class FixedLogError(EdgeError):
    """One of the site's own logs (events, alerts, custody, strays, dead letters) cannot be appended to for good."""


class MqttUnavailableError(UnavailableError):
    """The site's MQTT broker does not answer."""


class MqttRefusedError(RefusedError):
    """The site's MQTT broker refused the bridge: wrong user, password or client id."""


class MqttLoginRefusedError(MqttRefusedError):
    """It refused the login itself; another password may count by now."""


class MqttUntrustedError(MqttLoginRefusedError):
    """Its certificate is none that the bridge trusts. Like a refused login it may pass, where it was trusted before."""
