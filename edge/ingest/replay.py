"""Replays dead letters to the bridge once their cause is gone: ``fairlead bridge replay``.

In: the site's dead-letter log, and the topic ``fairlead.replays`` of its Kafka, which lists earlier replays.
Out: a ``ReplayPlan``, and its messages published to the site's MQTT broker in the order of arrival. Each batch is
recorded in ``fairlead.replays`` once the broker has it. The letters stay in their log unchanged. The records of replays
have a topic of their own, because only the bridge appends to the letters' log, and a replay may run on another machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ssl
import threading
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from edge.ingest.dead_letters import KEPT_TOPIC, wrapped
from edge.messages import ROOT
from fairlead.errors import LoginRefusedError, RefusedError, UnavailableError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.convention import is_data
from fairlead.kafka.endpoint import KafkaEndpoint, MqttEndpoint
from fairlead.kafka.order_topic import append_records
from fairlead.kafka.protocol.types import TP
from fairlead.mqtt import identify, untrusted
from fairlead.records import UNREADABLE, decoder, encode
from fairlead.records.edge import REPLAYS, DeadLetter, Replay

_letter: Final = decoder(DeadLetter)
_replay: Final = decoder(Replay)
TIMEOUT: Final = 30.0  # seconds for the broker to answer
_UNHEARD: Final = 16  # MQTT 5, 3.4.2.1: no matching subscribers
BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class ReplayChoice:
    """The operator's filter of letters to replay. An empty or None value does not filter.

    Args:
        reasons: Codes of ``edge.messages.RejectReason``.
        since, until: When the bridge received the message; ``until`` is exclusive.
        devices: Device ids, as in the payload.
        logs: A container's log or number, or a ship's log.
        again: Include letters that were replayed before.
    """

    reasons: Collection[str] = ()
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    devices: Collection[str] = ()
    logs: Collection[str] = ()
    again: bool = False

    def wants(self, letter: DeadLetter) -> bool:
        """Return whether a letter passes the filter, whether or not it was replayed before."""
        if self.reasons and letter.reason not in self.reasons:
            return False
        if self.since is not None and letter.received_date_time < self.since:
            return False
        if self.until is not None and letter.received_date_time >= self.until:
            return False
        if not (self.devices or self.logs):
            return True
        device, about = said_of(letter)
        if self.devices and device not in self.devices:
            return False
        return not self.logs or any(_is_log_of(about, log) for log in self.logs)


@dataclass(slots=True)
class Tally:
    """The letters of one reason: their number and size, and when the oldest and the newest were received."""

    count: int = 0
    size: int = 0  # bytes
    oldest: dt.datetime | None = None
    newest: dt.datetime | None = None

    def add(self, letter: DeadLetter) -> None:
        at = letter.received_date_time
        self.count += 1
        self.size += letter.payload_bytes
        self.oldest = min(self.oldest or at, at)
        self.newest = max(self.newest or at, at)


@dataclass(slots=True)
class ReplayPlan:
    """The letters to replay, in the order of arrival, and counts of those that pass the filter but are left out.

    Args:
        offsets: Offsets of the letters to replay.
        reasons: The letters to replay by reason.
        before: How many were replayed before.
        refused_again: How many repeat a letter: their messages were replayed and rejected again.
        cut: How many were not kept whole, so that they cannot be replayed.
        end: The log's end offset when the plan was made.
    """

    offsets: list[int] = field(default_factory=list)
    reasons: dict[str, Tally] = field(default_factory=dict)
    before: int = 0
    refused_again: int = 0
    cut: int = 0
    end: int = 0


def add(made: ReplayPlan, offset: int, letter: DeadLetter, replayed: Collection[int], choice: ReplayChoice) -> None:
    """Add a letter to a plan; its offset must be above those added before.

    Args:
        replayed: Offsets of letters that were replayed before.
    """
    made.end = offset + 1
    if not choice.wants(letter):
        return
    if letter.replay_of is not None:  # the first letter has the same message; replaying both would multiply them
        made.refused_again += 1
    elif is_cut(letter):
        made.cut += 1
    elif offset in replayed and not choice.again:
        made.before += 1
    else:
        made.offsets.append(offset)
        made.reasons.setdefault(letter.reason, Tally()).add(letter)


def is_cut(letter: DeadLetter) -> bool:
    """Return whether a part of a letter's payload or MQTT topic is missing."""
    whole_topic = letter.mqtt_topic.startswith(f"{ROOT}/") and len(letter.mqtt_topic) < KEPT_TOPIC
    return not whole_topic or len(letter.payload) != letter.payload_bytes


def said_of(letter: DeadLetter) -> tuple[str | None, str | None]:
    """Return the device, and the container number or ship's log, in a letter's message; None where not readable."""
    body: Any = None
    with contextlib.suppress(*UNREADABLE):
        body = msgspec.json.decode(letter.payload)
    device = _text(_inner(body, "device", "deviceId"))
    match letter.mqtt_topic.split("/"):
        case ["fairlead", _, "containers", number, *_]:
            return device, number
        case ["fairlead", _, "ships", imo, what]:
            return device, f"ships.{imo}.{'location' if what == 'position' else what}"
        case _:
            number = _inner(body, "payload", "equipmentReference") or _inner(body, "equipmentReference")
            return device, _text(number)


def _is_log_of(about: str | None, log: str) -> bool:
    """Return whether a message is about ``log``, which may be a container's log or number, or a ship's log."""
    return about is not None and (log == about or (not about.startswith("ships.") and log.rpartition(".")[2] == about))


def _inner(body: Any, *names: str) -> Any:
    for name in names:
        body = body.get(name) if isinstance(body, dict) else None
    return body


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# -- the site's dead letters and replays


def log_of(site: str) -> str:
    """Return the name of the site's dead-letter log."""
    return f"deadletters.{site}"


async def plan_replay(cluster: Cluster, site: str, choice: ReplayChoice) -> ReplayPlan:
    """Return the plan of what can be replayed at a site now.

    Raises:
        BrokerError, ConnectionLost: the site's logs cannot be read.
    """
    made = ReplayPlan()
    log = log_of(site)
    topics = await cluster.topics(refresh=True)
    if log not in topics:  # the site's bridge has never run
        return made
    replayed = {each.offset for each in await _replays(cluster, log)} if REPLAYS in topics else set[int]()
    async for offset, letter in letters(cluster, log):
        add(made, offset, letter, replayed, choice)
    return made


async def letters(
    cluster: Cluster, log: str, start: int | None = None, end: int | None = None
) -> AsyncIterator[tuple[int, DeadLetter]]:
    """Yield the letters of a log with their offsets, without other records. Raises BrokerError, ConnectionLost."""
    async for record in read_log(cluster, TP(log), start, end):
        if record.value is not None and is_data(record):
            with contextlib.suppress(*UNREADABLE):
                yield record.offset, _letter.decode(record.value)


async def _replays(cluster: Cluster, log: str) -> list[Replay]:
    found: list[Replay] = []
    async for record in read_log(cluster, TP(REPLAYS)):
        if record.value is not None:
            with contextlib.suppress(*UNREADABLE):
                found.append(_replay.decode(record.value))
    return [each for each in found if each.log == log]


def remember(endpoint: KafkaEndpoint, log: str, offsets: Iterable[int], by: str) -> None:
    """Record in ``fairlead.replays`` that the MQTT broker has these letters' messages again. Blocks.

    Creates the topic if it is missing.

    Raises:
        RefusedError: the user may not write to the topic.
        UnavailableError: the site does not answer; some records may be stored.
    """
    now = dt.datetime.now(dt.UTC)
    records = [
        (f"{log}@{offset}".encode(), encode(Replay(log=log, offset=offset, replayed_date_time=now, replayed_by=by)))
        for offset in offsets
    ]
    landed = append_records(endpoint, REPLAYS, records, client_id="fairlead-replay")
    if len(landed) < len(records):
        raise UnavailableError(
            f"{endpoint.site}'s Kafka did not confirm the list of replayed messages",
            hint="the bridge has the messages; repeating the command sends up to "
            f"{len(records)} of them again, and the bridge drops the repeats",
            site=endpoint.site,
        )


# -- publishing to the MQTT broker


class Publisher:
    """One connection to the MQTT broker, from ``open`` to ``close``. Its methods block."""

    def __init__(self, endpoint: MqttEndpoint) -> None:
        self._endpoint = endpoint
        self._changed = threading.Condition()
        self._login: str | None = None
        self._over: str | None = None
        self._acked = 0
        self._refused: ReasonCode | None = None
        client = self._client = paho.Client(
            CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5, reconnect_on_failure=False
        )
        client.connect_timeout = TIMEOUT
        identify(client, endpoint)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_publish = self._published

    def open(self) -> None:
        """Connect and log in.

        Raises:
            UnavailableError: the broker does not answer.
            LoginRefusedError: the broker refuses the login.
            UntrustedError: the broker's certificate is not trusted.
        """
        try:
            self._client.connect(self._endpoint.host, self._endpoint.port)
        except ssl.SSLCertVerificationError as error:
            raise untrusted(self._endpoint, error) from error
        except (OSError, ValueError) as error:
            raise self._away(str(error)) from error
        self._client.loop_start()
        with self._changed:
            self._changed.wait_for(lambda: self._login is not None or self._over is not None, TIMEOUT)
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
        """Disconnect, if there is a connection."""
        self._client.disconnect()
        self._client.loop_stop()

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Publish messages (topic, payload) in this order, and wait until the broker has acknowledged all of them.

        Raises:
            UnavailableError: the broker did not acknowledge all; some may have arrived.
            RefusedError: no bridge has ever subscribed, or this user may not publish here.
        """
        with self._changed:
            wanted = self._acked + len(messages)
        for topic, payload in messages:
            self._client.publish(topic, payload, qos=1)
        with self._changed:
            while self._acked < wanted and self._over is None and self._refused is None:
                before = self._acked
                if not self._changed.wait(TIMEOUT) and self._acked == before:
                    raise self._away(f"no acknowledgement for {TIMEOUT:.0f} s")
            if self._refused is not None:
                raise self._said_no(self._refused)
            if self._acked < wanted:
                raise self._away(self._over or "the connection ended")

    def _away(self, why: str) -> UnavailableError:
        where = f"{self._endpoint.site} at {self._endpoint.host}:{self._endpoint.port}"
        return UnavailableError(
            f"the MQTT broker of {where} does not answer: {why}",
            hint="check that the site is up (fairlead status), then repeat the command, which continues here",
            site=self._endpoint.site,
        )

    def _said_no(self, reason: ReasonCode) -> RefusedError:
        site = self._endpoint.site
        if reason.value == _UNHEARD:
            return RefusedError(
                f"the MQTT broker of {site} has no subscriber: no bridge has ever run there",
                hint=f"start one: fairlead bridge --site {site}",
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


# -- carrying a plan out


async def replay(
    cluster: Cluster,
    kafka: KafkaEndpoint,
    mqtt: MqttEndpoint,
    site: str,
    plan: ReplayPlan,
    by: str,
) -> int:
    """Publish the plan's messages to the site's bridge again, and return their number.

    If this is interrupted, at most ``BATCH`` messages were published without a record of it; the bridge recognises them
    as repeats.

    Args:
        cluster, kafka: The site's Kafka, with its administrator's login.
        mqtt: The site's MQTT broker, with a device's login.
        by: The name of the operator.

    Raises:
        UnavailableError, RefusedError: see ``Publisher`` and ``remember``.
        BrokerError: the log cannot be read.
    """
    if not plan.offsets:
        return 0
    log, done = log_of(site), 0
    publisher = Publisher(mqtt)
    await asyncio.to_thread(publisher.open)
    try:
        async for batch in _batches(cluster, log, plan):
            await asyncio.to_thread(publisher.publish, [(wrapped(at, of.mqtt_topic), of.payload) for at, of in batch])
            await asyncio.to_thread(remember, kafka, log, [at for at, _ in batch], by)
            done += len(batch)
    finally:
        await asyncio.to_thread(publisher.close)
    return done


async def _batches(cluster: Cluster, log: str, plan: ReplayPlan) -> AsyncIterator[list[tuple[int, DeadLetter]]]:
    wanted = set(plan.offsets)
    batch: list[tuple[int, DeadLetter]] = []
    async for offset, letter in letters(cluster, log, plan.offsets[0], plan.offsets[-1] + 1):
        if offset in wanted:
            batch.append((offset, letter))
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
