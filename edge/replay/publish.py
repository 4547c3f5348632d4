"""Publishing to a site's MQTT broker as a device does, a batch at a time. Blocking.

MQTT 5, because its acknowledgement tells what 3.1.1 keeps silent about: that nobody has subscribed (the message is then
gone), or that this user may not publish there.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Sequence
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from fairlead.certs.mqtt import identify, untrusted
from fairlead.endpoint import MqttEndpoint
from fairlead.errors import LoginRefusedError, RefusedError, UnavailableError

TIMEOUT: Final = 30.0  # seconds for the broker to answer
_UNHEARD: Final = 16  # MQTT 5, 3.4.2.1: no matching subscribers


class Publisher:
    """One connection, from ``open`` to ``close``."""

    def __init__(self, endpoint: MqttEndpoint, *, timeout: float = TIMEOUT) -> None:
        self._endpoint = endpoint
        self._timeout = timeout
        self._changed = threading.Condition()
        self._login: str | None = None
        self._over: str | None = None
        self._acked = 0
        self._refused: ReasonCode | None = None
        client = self._client = paho.Client(
            CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5, reconnect_on_failure=False
        )
        client.connect_timeout = timeout
        identify(client, endpoint)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_publish = self._published

    def open(self) -> None:
        """Connect and log in.

        Raises:
            UnavailableError: the broker does not answer. LoginRefusedError: it does not take the user.
            UntrustedError: its certificate is not trusted.
        """
        try:
            self._client.connect(self._endpoint.host, self._endpoint.port)
        except ssl.SSLCertVerificationError as error:
            raise untrusted(self._endpoint, error) from error
        except (OSError, ValueError) as error:
            raise self._away(str(error)) from error
        self._client.loop_start()
        with self._changed:
            self._changed.wait_for(lambda: self._login is not None or self._over is not None, self._timeout)
        if self._login != "Success":
            self.close()
            if self._login is None:
                raise self._away(self._over or "no answer to CONNECT")
            raise LoginRefusedError(
                f"the MQTT broker of {self._endpoint.site} refused user {self._endpoint.user!r}: {self._login}",
                hint="check the password (FAIRLEAD_SECRET_<SITE>_<USER>, or the one that 'fairlead up' made)",
                site=self._endpoint.site,
            )

    def close(self) -> None:
        """Say goodbye; nothing happens where there is no connection."""
        self._client.disconnect()
        self._client.loop_stop()

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Publish topics and payloads in this order; returns when the broker has acknowledged all of them.

        Raises:
            UnavailableError: it did not; some may have arrived. RefusedError: no bridge has ever subscribed, or this
                user may not publish here.
        """
        with self._changed:
            wanted = self._acked + len(messages)
        for topic, payload in messages:
            self._client.publish(topic, payload, qos=1)
        with self._changed:
            while self._acked < wanted and self._over is None and self._refused is None:
                before = self._acked
                if not self._changed.wait(self._timeout) and self._acked == before:
                    raise self._away(f"no acknowledgement for {self._timeout:.0f} s")
            if self._refused is not None:
                raise self._said_no(self._refused)
            if self._acked < wanted:
                raise self._away(self._over or "the connection ended")

    def _away(self, why: str) -> UnavailableError:
        where = f"{self._endpoint.site} at {self._endpoint.host}:{self._endpoint.port}"
        return UnavailableError(
            f"the MQTT broker of {where} does not answer: {why}",
            hint="is the site up? see 'fairlead status'; the same command goes on from here",
            site=self._endpoint.site,
        )

    def _said_no(self, reason: ReasonCode) -> RefusedError:
        site = self._endpoint.site
        if reason.value == _UNHEARD:
            return RefusedError(
                f"nobody listens at the MQTT broker of {site}: no bridge has ever worked there",
                hint=f"start one: fairlead bridge --at {site}",
                site=site,
            )
        return RefusedError(
            f"the MQTT broker of {site} does not let user {self._endpoint.user!r} publish: {reason}",
            hint="its access control must let devices write fairlead/v1/#",
            site=site,
        )

    # -- paho's thread

    def _connected(self, _c: paho.Client, _d: Any, _f: paho.ConnectFlags, reason: ReasonCode, _p: Any) -> None:
        with self._changed:
            self._login = str(reason)
            self._changed.notify_all()

    def _disconnected(self, _c: paho.Client, _d: Any, _f: paho.DisconnectFlags, reason: ReasonCode, _p: Any) -> None:
        with self._changed:
            self._over = f"connection closed: {reason}"
            self._changed.notify_all()

    def _published(self, _c: paho.Client, _d: Any, _mid: int, reason: ReasonCode, _p: Any) -> None:
        with self._changed:
            self._acked += 1
            if reason.is_failure or reason.value == _UNHEARD:
                self._refused = self._refused or reason
            self._changed.notify_all()
