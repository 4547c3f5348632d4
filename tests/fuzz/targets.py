"""What is fuzzed: per target some seeds, made from the project's own samples, and a function of bytes that must hold.

A target fails by any exception that the code under test does not promise. Add one by adding it to ``TARGETS``.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from edge.ais.decoder import AisDecoder
from edge.alerts.thresholds import DEFAULTS, parse_thresholds
from fairlead.errors import ConfigurationError
from fairlead.kafka import columnar
from fairlead.kafka.columnar import Stretch
from fairlead.kafka.protocol.batch import split, verify_crc
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.record import NewRecord, decode_batch, encode_batch
from fairlead.records import UNREADABLE, decoder, encode
from fairlead.records.alert import Alert, AlertOrder
from fairlead.records.booking import Booking
from fairlead.records.custody import CustodyOrder, Marker, ledger_entries
from fairlead.records.digest import Digest, DigestBox, DigestError, decode_digest, encode_digest
from fairlead.records.edge import DeadLetter, Stray
from fairlead.records.event import Event
from fairlead.records.reading import Reading
from fairlead.records.ship import Environment, Position
from simulators.fleet.scenario_file import parse as parse_scenario
from tests.support.batches import seal
from tests.support.edge.router_harness import RouterHarness, sample_messages
from tests.support.edge.samples import IMO, NOW, NOW_MS

_SCENARIOS = Path(__file__).parents[2] / "simulators" / "scenarios"
_KINDS: tuple[Any, ...] = (
    Reading,
    Position,
    Environment,
    Event,
    Booking,
    Alert,
    AlertOrder,
    Stray,
    DeadLetter,
    CustodyOrder,
    Marker,
)


class Target(NamedTuple):
    """``run`` takes anything; ``seeds`` are inputs to begin from; ``tokens`` what is worth putting in."""

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]
    tokens: tuple[str, ...] = ()


@functools.cache
def _harness(site: str) -> RouterHarness:
    harness = RouterHarness(site)
    for topic, payload in sample_messages():
        if topic.endswith("/position") and site == "star":
            harness.take(topic, payload)
    return harness


def _mqtt(data: bytes) -> None:
    """The topic, a line feed, the payload: at a ship and at a port, and in the end the same once more."""
    topic, _, payload = data.partition(b"\n")
    for site in ("star", "tokyo"):
        harness = _harness(site)
        if harness.engine is not None and len(harness.engine.ship.aboard) > 50:
            _harness.cache_clear()
        harness.take(topic.decode(errors="replace"), payload)


def _mqtt_seeds() -> Iterator[bytes]:
    for topic, payload in sample_messages():
        yield topic.encode() + b"\n" + payload


def _ais(data: bytes) -> None:
    """Lines of a receiver, two seconds apart."""
    ais = AisDecoder(IMO, 1, every_ms=1_000)
    for number, line in enumerate(data.split(b"\n")):
        position = ais.decode_line(line, NOW_MS + 2_000 * number)
        if position is None:
            continue
        assert decoder(Position).decode(encode(position)) == position
        place = position.geo_location
        assert place is None or (abs(place.latitude) <= 90 and abs(place.longitude) <= 180)
        assert position.speed_over_ground is None or 0 <= position.speed_over_ground < 102.3
        assert position.course_over_ground is None or 0 <= position.course_over_ground < 360
        assert position.heading is None or 0 <= position.heading < 360


def _ais_seeds() -> Iterator[bytes]:
    from tests.support.ais import DAMAGED, REAL, sentences, static

    yield REAL + b"\n" + DAMAGED
    yield b"\n".join(sentences())
    yield b"\n".join([*static(), *sentences("VDM")])
    yield b"\n".join(sentences(lat=91, lon=181, speed=102.3, course=360, heading=511))
    yield b"\\s:station,c:1609841515*6F\\" + REAL + b"\r"
    for kind in (18, 19, 4, 21, 24):
        yield b"\n".join(sentences("VDM", type=kind))


def _thresholds(data: bytes) -> None:
    try:
        made = parse_thresholds(data, "fuzz.yaml")
    except ConfigurationError as error:
        assert error.what and error.hint
        return
    assert made.longest_ms >= 0
    assert made.table(None)


def _thresholds_seeds() -> Iterator[bytes]:
    yield DEFAULTS.read_bytes()
    yield b"default:\n  power: {dwell: 20m}\ncommodities:\n  tulips: {humidity: {minimum: 80, source: s}}\n"
    yield b"default: {overboard: {weights: {tilt: 0.1}}}"
    yield b"customers: {ducks: {power: {dwell: 7m}}}\nashore: {streams: {yellow: {silence: {at_least: 4h}}}}"


def _scenario(data: bytes) -> None:
    try:
        parse_scenario(data.decode(errors="replace"), "fuzz.yaml")
    except ConfigurationError as error:
        assert error.what and error.hint


def _scenario_seeds() -> Iterator[bytes]:
    for path in sorted(_SCENARIOS.glob("*.yaml")):
        yield path.read_bytes()


def _records(data: bytes) -> None:
    """The first byte says which kind; what can be read is written as it was read."""
    which = data[0] % (len(_KINDS) + 1) if data else 0
    decode: Any = ledger_entries if which == len(_KINDS) else decoder(_KINDS[which])
    try:
        value = decode.decode(data[1:])
    except UNREADABLE:
        return
    assert decode.decode(encode(value)) == value


def _records_seeds() -> Iterator[bytes]:
    for which, kind in enumerate(_KINDS):
        yield bytes([which]) + msgspec.json.encode(msgspec.json.schema(kind))
    for topic, payload in sample_messages():
        kinds = {"readings": 0, "position": 1, "environment": 2, "events": 3, "bookings": 4}
        yield bytes([kinds.get(topic.rpartition("/")[2], 0)]) + payload
    cause = b'{"log":"containers.X","offset":-1,"deviceId":"d","bootId":1,"sequence":2}'
    yield b"\x05" + (
        b'{"alertID":"A","kind":"OVERBOARD","severity":"CRITICAL","state":"OPENED","equipmentReference":"X",'
        b'"raisedAt":"star","eventDateTime":"2026-03-01T12:00:00Z","raisedDateTime":"2026-03-01T12:00:00Z",'
        b'"evidence":[{"name":"tilt","weight":0.4}],"causes":[' + cause + b"]}"
    )
    yield b"\x07" + b'{"log":"containers.X","payload":"e30=","receivedDateTime":"2026-03-01T12:00:00Z"}'
    yield bytes([len(_KINDS)]) + (
        b'{"entryType":"grant","log":"containers.X","term":2,"markerOffset":7,"fromSite":"tokyo","toSite":"star",'
        b'"event":"LOAD","eventId":"e","eventDateTime":"2026-03-01T12:00:00Z","grantedDateTime":"2026-03-01T12:00:00Z",'
        b'"grantedBy":"tokyo","markerBatch":"AAAA","drained":{"strays.star":3}}'
    )


def _digest(data: bytes) -> None:
    """A digest as it is, and once with the right check sum, to get behind it. What can be read is written as it was."""
    for value in (data, data + zlib.crc32(data).to_bytes(4, "little")):
        try:
            digest = decode_digest(value)
        except DigestError as error:
            assert error.what and error.hint
            continue
        assert decode_digest(encode_digest(digest)) == digest


def _digest_seeds() -> Iterator[bytes]:
    chill = DigestBox(equipment_reference="BIGU1000010", reading_date_time=NOW, supply_temperature=4.1, in_band=True)
    dry = DigestBox(equipment_reference="YELU0000013", reading_date_time=NOW, open_alerts=2, worst_severity="ALARM")
    for boxes in ((), (chill,), (chill, dry)):
        value = encode_digest(Digest(vessel_imo_number=IMO, as_of_date_time=NOW, boxes=boxes))
        yield value
        yield value[:-4]


def _wire(data: bytes) -> None:
    """Batches as a broker answers them, once with their own CRC and once with the right one, to get behind it."""
    try:
        for view in split(data):
            for check in (True, False):
                _decode(data, view.start, view.stop, check=check)
            batch = bytearray(data[view.start : view.stop])
            seal(batch)
            assert verify_crc(batch)
    except CorruptBatch:
        return


def _decode(data: bytes, start: int, stop: int, *, check: bool) -> None:
    try:
        records = decode_batch(data, start, stop, check_crc=check)
    except CorruptBatch:
        return
    for record in records:
        assert record.value is None or len(record.value) <= 1 << 30


def _columns(data: bytes) -> None:
    """The same by columns: what the plain decoder reads is read alike, what it refuses is refused."""
    whole = Stretch(data, [], 0, -(2**63), 2**63 - 1, 0, 0)
    with contextlib.suppress(CorruptBatch):
        starts = [view.start for view in split(data)]
        whole = columnar.stretch(data, -(2**63), 2**63 - 1)
        assert list(whole.starts) == starts
    for start, stop in itertools.pairwise((*whole.starts, whole.end)):
        one = whole._replace(starts=[start], end=stop)
        try:
            expected = decode_batch(data, start, stop, check_crc=False)
        except CorruptBatch:
            expected = None
        try:
            found = columnar.decode([one], check_crc=False)
        except CorruptBatch:
            # Only what no writer can make is refused by this one alone: fewer records than none.
            assert not expected
            continue
        if expected is None:  # what cannot be decompressed is passed over here, and none of its records is read
            assert not len(found), "read what the plain decoder refuses"
            continue
        sizes = [len(record.value) if record.value is not None else columnar.NULL for record in expected]
        if len(found) == len(expected):  # offsets beyond all bounds are left out
            assert found.value.size.tolist() == sizes


def _wire_seeds() -> Iterator[bytes]:
    records = [
        NewRecord(b"value %d" % n, b"key", (("h", b"x"), ("none", None)), timestamp_ms=1_700_000_000_000 + n)
        for n in range(5)
    ]
    batches = [
        encode_batch(records, producer_id=1 << 62, epoch=1, sequence=0, codec=codec)
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
    ]
    yield from batches
    yield b"".join(batches)
    yield encode_batch([NewRecord(None, None, (), timestamp_ms=1)], producer_id=-1, epoch=-1, sequence=-1)


_JSON = (
    *("null", "true", "false", "NaN", "1e999", "-1", "9223372036854775808", "\\ud800", "\\u0000", "[[[[", "{}"),
    *("deviceId", "bootId", "sequence", "deviceDateTime", "equipmentReference", "measurements", "setpoints", "motion"),
    *("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-03-01T12:00:00Z", "BIGU1000005", "BIGU1000010"),
)
_YAML = (
    "&a",
    "*a",
    "<<:",
    "!!binary",
    "!!python/none",
    "---",
    "? ",
    "forever",
    ".nan",
    ".inf",
    "0x7fffffff",
    "1e9999h",
)

TARGETS = {
    target.name: target
    for target in (
        Target("mqtt", _mqtt, _mqtt_seeds, ("fairlead/v1/containers/", "/readings\n", *_JSON)),
        Target("ais", _ais, _ais_seeds, ("!AIVDM,", "!AIVDO,", "2,1,3,A,", "$GPGGA,", "\\s:", "*23")),
        Target("thresholds", _thresholds, _thresholds_seeds, _YAML),
        Target("scenario", _scenario, _scenario_seeds, _YAML),
        Target("records", _records, _records_seeds, _JSON),
        Target("digest", _digest, _digest_seeds),
        Target("wire", _wire, _wire_seeds),
        Target("columns", _columns, _wire_seeds),
    )
}
