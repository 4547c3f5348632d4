"""The bridge's errors. All derive from ``FairleadError``."""

from __future__ import annotations

from fairlead.errors import ExitCode, FairleadError, RefusedError, UnavailableError


class EdgeError(FairleadError):
    """Base of the bridge's own errors."""


class NotHolderError(RefusedError):
    """This site does not hold the log, so it may neither append to it nor grant it."""

    def __init__(self, log: str, site: str, holder: str | None, *, doing: str) -> None:
        where = f"{holder} holds it" if holder else "no site holds it"
        super().__init__(
            f"{site} cannot {doing}: it does not hold {log} ({where})",
            hint="publish the event at the site that holds the box; if it is lost: fairlead custody seize",
            log=log,
            site=site,
            holder=holder,
        )


class ReplicaBehindError(EdgeError):
    """This site's copy of a log is not complete, so a change of the log's custody must wait."""

    retriable = True
    exit_code = ExitCode.UNAVAILABLE


class LogNotCreatedError(EdgeError):
    """The site's Kafka did not create a log, or does not serve it yet. The bridge tries again."""

    retriable = True
    exit_code = ExitCode.UNAVAILABLE


class LostCustodyError(EdgeError):
    """This site cannot go on with a log as its ledgers have it: the log was continued meanwhile, here or elsewhere."""

    exit_code = ExitCode.REFUSED


class SeizureError(RefusedError):
    """This site cannot seize a log."""


class SecondBridgeError(EdgeError):
    """Another bridge runs for this site: the site's ledger has an entry that this bridge did not write."""

    exit_code = ExitCode.REFUSED


class FixedLogError(EdgeError):
    """Appends to one of the site's own logs (events, alerts, custody, strays, dead letters) fail for good."""


class MqttUnavailableError(UnavailableError):
    """The site's MQTT broker does not answer."""


class MqttRefusedError(RefusedError):
    """The site's MQTT broker refused the bridge: wrong user, password or client id."""


class MqttLoginRefusedError(MqttRefusedError):
    """The site's MQTT broker refused the login; the password may have been changed."""


class MqttUntrustedError(MqttLoginRefusedError):
    """The bridge does not trust the MQTT broker's certificate. Retried like a login if it was trusted before."""
