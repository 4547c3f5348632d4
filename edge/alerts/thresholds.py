"""The thresholds of the alert rules, from ``defaults.yaml`` and a file of the user's.

A file has a default set, and sets by stream, commodity and customer that override parts of it; what differs in a yard
is under ``ashore``. In: YAML. Out: frozen ``CommodityThresholds``, one object for all containers with the same names.
A user's file has the form of the defaults and overrides them value by value. In a group that it changes, ``source`` is
the user's, or the name of the file.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import pydantic
import yaml
from pydantic import AfterValidator, BeforeValidator, Field

from fairlead.errors import ConfigurationError, UnknownNameError
from topologies.values import parse_duration

DEFAULTS = Path(__file__).parent / "defaults.yaml"
_NAMED = ("streams", "commodities", "customers")  # the later ones override the earlier ones
_PARTS = ("default", *_NAMED)
WEIGHTS = ("free-fall", "impact", "tilt", "immersion", "away", "neighbours", "silence")


def _milliseconds(value: Any) -> int:
    duration: dt.timedelta = parse_duration(value)
    if duration == dt.timedelta.max:
        raise ValueError("'forever' is no threshold; leave the rule's condition out of reach instead")
    return duration // dt.timedelta(milliseconds=1)


def _all_weights(value: Mapping[str, float]) -> Mapping[str, float]:
    if value.keys() != set(WEIGHTS):
        raise ValueError(f"exactly these weights are needed: {', '.join(WEIGHTS)}")
    return value


Milliseconds = Annotated[int, BeforeValidator(_milliseconds)]
Positive = Annotated[float, Field(gt=0)]
_strict = pydantic.dataclasses.dataclass(
    frozen=True, slots=True, kw_only=True, config=pydantic.ConfigDict(extra="forbid", allow_inf_nan=False)
)


@_strict
class PowerThresholds:
    """Reefer without power."""

    dwell: Milliseconds
    source: str


@_strict
class SetpointThresholds:
    """Set point against the booking's, in degrees Celsius: a difference of ``critical`` or more is CRITICAL."""

    tolerance: Positive
    critical: Positive
    dwell: Milliseconds
    source: str


@_strict
class TemperatureThresholds:
    """Controlled air, in degrees Celsius.

    More than ``tolerance`` from the set point is an ALARM; beyond ``minimum`` or ``maximum``, the limits of the cargo,
    it is CRITICAL. ``recovery``: how long the air must be back in the band before the alert is cleared.
    """

    frozen_setpoint: float
    tolerance: Positive
    minimum: float | None = None
    maximum: float | None = None
    dwell: Milliseconds
    recovery: Milliseconds
    after_defrost: Milliseconds
    source: str


@_strict
class BandThresholds:
    """Humidity or a gas, in per cent: a band around the unit's set point, and the commodity's bounds."""

    tolerance: Positive
    minimum: float | None = None
    maximum: float | None = None
    dwell: Milliseconds
    recovery: Milliseconds
    source: str


@_strict
class DoorThresholds:
    """Door open while the ship is under way."""

    dwell: Milliseconds
    source: str


@_strict
class SilenceThresholds:
    """No reading for ``intervals`` times the device's usual interval, and for ``at_least``.

    ``unknown``: the time allowed while the usual interval is not known.
    ``suspect_gateway``: share of silent containers aboard from which on the gateway is suspected, not the containers.
    """

    intervals: Positive
    at_least: Milliseconds
    unknown: Milliseconds
    suspect_gateway: Annotated[float, Field(gt=0, le=1)]
    source: str


@_strict
class RollCallThresholds:
    """The roll call after a departure: when it is made. Only the values under ``default`` count.

    It is made ``intervals`` times the longest usual interval of the boxes aboard after the departure, but not before
    ``at_least`` and not after ``at_most``; at ``at_most`` if no interval is known.
    """

    intervals: Positive
    at_least: Milliseconds
    at_most: Milliseconds
    source: str


@_strict
class DeviceThresholds:
    """Devices themselves.

    ``ahead``: how far a device's clock may be ahead of the site's. ``window``: how long after its last reading a device
    still counts as reporting.
    """

    ahead: Milliseconds
    window: Milliseconds
    source: str


@_strict
class OverboardThresholds:
    """The overboard score. Units: seconds, g, degrees of tilt, metres. See ``edge.alerts.rules.overboard``."""

    free_fall: Positive
    impact: Positive
    tilt: Positive
    away: Positive
    window: Milliseconds
    neighbours_window: Milliseconds
    neighbours: Annotated[int, Field(ge=1)]
    update_every: Milliseconds
    update_moved: Positive
    score_at_sea: Positive
    score_in_port: Positive
    weights: Annotated[dict[str, Positive], AfterValidator(_all_weights)]
    source: str


@_strict
class CommodityThresholds:
    """All thresholds of a container."""

    power: PowerThresholds
    setpoint: SetpointThresholds
    temperature: TemperatureThresholds
    humidity: BandThresholds
    o2: BandThresholds
    co2: BandThresholds
    door: DoorThresholds
    silence: SilenceThresholds
    roll_call: RollCallThresholds
    device: DeviceThresholds
    overboard: OverboardThresholds

    @property
    def ranges(self) -> tuple[BandThresholds, BandThresholds, BandThresholds]:
        return self.humidity, self.o2, self.co2


@cache
def durations() -> frozenset[str]:
    """Return the names of all values that are durations, in any group."""
    return frozenset(
        name
        for group in get_type_hints(CommodityThresholds).values()
        for name, kind in get_type_hints(group, include_extras=True).items()
        if kind == Milliseconds
    )


_limits: pydantic.TypeAdapter[CommodityThresholds] = pydantic.TypeAdapter(CommodityThresholds)


class Thresholds:
    """Thresholds by stream, commodity and customer, at sea and ashore.

    A set for a customer overrides one for a commodity, this one a set for a stream, and this one the default. Of two
    sets with the same name, the one under ``ashore`` overrides the other in a yard. Names of commodities ignore case,
    and spaces and underscores equal hyphens.

    Args:
        layers: The content of a file with every part, whose values are known to be valid.
        longest_ms: The longest time, in milliseconds, over which a rule compares readings.
    """

    def __init__(self, layers: Mapping[str, Any], longest_ms: int) -> None:
        self._layers = layers
        self._made: dict[tuple[str | None, ...], CommodityThresholds] = {}
        self.longest_ms = longest_ms

    @property
    def default(self) -> CommodityThresholds:
        return self.of(None)

    @property
    def known(self) -> dict[str, list[str]]:
        """The names that have thresholds of their own, by part: streams, commodities, customers."""
        ashore = self._layers["ashore"]
        return {part: sorted({*self._layers[part], *ashore[part]}) for part in _NAMED}

    def require(self, commodity: str | None, *, stream: str | None = None, customer: str | None = None) -> None:
        """Check that these names, those that are not None, have thresholds of their own.

        Raises:
            UnknownNameError, ConfigurationError: one has none; no name of this kind has any.
        """
        names = {"stream": stream, "commodity": commodity and _plain(commodity), "customer": customer}
        for (kind, name), valid in zip(names.items(), self.known.values(), strict=True):
            if name is None or name in valid:
                continue
            if not valid:
                raise ConfigurationError(
                    f"no {kind} has thresholds of its own", hint=f"without --{kind} you see what applies to all of them"
                )
            raise UnknownNameError(f"{kind} with thresholds of its own named", name, valid)

    def table(
        self,
        commodity: str | None,
        *,
        stream: str | None = None,
        customer: str | None = None,
        ashore: bool = False,
    ) -> dict[str, dict[str, Any]]:
        """Return what ``of`` returns, as plain values by group and name; durations in milliseconds."""
        found = self.of(commodity, stream=stream, customer=customer, ashore=ashore)
        plain: dict[str, dict[str, Any]] = _limits.dump_python(found)
        return plain

    def of(
        self,
        commodity: str | None,
        *,
        stream: str | None = None,
        customer: str | None = None,
        ashore: bool = False,
    ) -> CommodityThresholds:
        """Return the thresholds of a container. A name that is None or not known changes nothing."""
        names = (stream, _plain(commodity) if commodity else None, customer)
        layers = [self._layers, self._layers["ashore"]] if ashore else [self._layers]
        key = tuple(
            name if any(name in layer[part] for layer in layers) else None
            for part, name in zip(_NAMED, names, strict=True)
        )
        found = self._made.get((*key, "ashore" if ashore else None))
        if found is None:
            groups: Any = {}
            for layer in layers:
                groups = _over(groups, layer["default"])
            for part, name in zip(_NAMED, key, strict=True):
                for layer in layers if name is not None else ():
                    groups = _over(groups, layer[part].get(name, {}))
            found = self._made[*key, "ashore" if ashore else None] = _limits.validate_python(groups)
        return found


@cache
def default_thresholds() -> Thresholds:
    """Return the thresholds of ``defaults.yaml``."""
    return _build(_defaults(), DEFAULTS.name)


def load_thresholds(path: Path) -> Thresholds:
    """Return the defaults, overridden by the values of a user's file.

    Raises:
        ConfigurationError: the file cannot be read, or has mistakes; all of them are in ``fields["mistakes"]``.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"there is no file {path}", hint="name a YAML file of thresholds") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}", hint="name a YAML file") from error
    return parse_thresholds(raw, str(path))


def parse_thresholds(raw: bytes, file: str) -> Thresholds:
    """Do what ``load_thresholds`` does, with the file's content; ``file`` is its name for error messages."""
    return _build(_over(_defaults(), _sourced(_read(raw, file), Path(file).name)), file)


def _plain(commodity: str) -> str:
    return commodity.strip().lower().replace(" ", "-").replace("_", "-")


@cache
def _defaults() -> dict[str, Any]:
    return _read(DEFAULTS.read_bytes(), DEFAULTS.name)


def _read(raw: bytes, file: str) -> dict[str, Any]:
    """Return a file's content with every part, those that it lacks empty."""
    try:
        body = yaml.safe_load(raw.decode())
    except (ValueError, yaml.YAMLError) as error:  # ValueError: no UTF-8, or an impossible date
        raise _unreadable(file, error) from error
    body = {} if body is None else body
    if wrong := _misshapen(body, (*_PARTS, "ashore")):
        raise _mistaken(file, wrong)
    ashore = body.get("ashore") or {}
    if wrong := [f"ashore.{each}" for each in _misshapen(ashore, _PARTS)]:
        raise _mistaken(file, wrong)
    return {**_whole(body), "ashore": _whole(ashore)}


def _whole(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {part: body.get(part) or {} for part in _PARTS}
    found["commodities"] = {_plain(str(name)): groups for name, groups in found["commodities"].items()}
    return found


def _misshapen(body: Any, parts: Sequence[str]) -> list[str]:
    """Return the mistakes in a file's outer form. The models check what is in a group."""
    if not isinstance(body, dict):
        return ["the file is no mapping"]
    wrong = [f"{key}: unknown; valid: {', '.join(parts)}" for key in body if key not in parts]
    wrong += [f"{key}: expected a mapping" for key in parts if not isinstance(body.get(key), dict | None)]
    if wrong:
        return wrong
    return [
        f"{part}.{name}: expected a mapping of groups"
        for part in _NAMED
        for name, groups in (body.get(part) or {}).items()
        if not isinstance(groups, dict)
    ]


def _sets(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every set of groups of a layer with its place."""
    yield "default", body["default"]
    for part in _NAMED:
        for name, groups in body[part].items():
            yield f"{part}.{name}", groups


def _sourced(body: dict[str, Any], file: str) -> dict[str, Any]:
    """Name the file as the source of each group for which the user gives none."""
    for layer in (body, body["ashore"]):
        for _, groups in _sets(layer):
            for group in groups.values():
                if isinstance(group, dict):
                    group.setdefault("source", f"set in {file}")
    return body


def _over(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {**below, **{key: _over(below.get(key), value) for key, value in above.items()}}


def _build(body: dict[str, Any], file: str) -> Thresholds:
    mistakes: list[str] = []
    found: list[CommodityThresholds] = []
    base: Any = {}
    for prefix, layer in (("", body), ("ashore.", body["ashore"])):
        base = _over(base, layer["default"])
        for place, groups in _sets(layer):
            try:
                found.append(_limits.validate_python(_over(base, groups)))
            except pydantic.ValidationError as error:
                for each in error.errors(include_url=False):
                    mistakes.append(f"{prefix}{'.'.join(map(str, (place, *each['loc'])))}: {each['msg']}")
                if place == "default":  # all others are laid over it
                    raise _mistaken(file, mistakes) from error
    if mistakes:
        raise _mistaken(file, mistakes)
    return Thresholds(body, _longest_ms(found))


def _longest_ms(sets: Sequence[CommodityThresholds]) -> int:
    """Return a bound of the time over which a rule compares readings, for any mixture of these sets."""
    return max(max(s.power.dwell, s.setpoint.dwell, s.door.dwell, s.overboard.window) for s in sets) + max(
        max(s.temperature.dwell + s.temperature.after_defrost, s.device.window, *(r.dwell for r in s.ranges))
        for s in sets
    )


def _unreadable(file: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"{file} cannot be read as YAML: {error}", hint="docs/alerts.md shows the form of a file of thresholds"
    )


def _mistaken(file: str, mistakes: list[str]) -> ConfigurationError:
    return ConfigurationError(
        f"thresholds in {file}: {'; '.join(mistakes)}",
        hint="edge/alerts/defaults.yaml has every group and value that there is",
        file=file,
        mistakes=mistakes,
    )
