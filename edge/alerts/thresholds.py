"""The thresholds of the alert rules: one set per commodity, from ``defaults.yaml`` and a file of the user's.

In: YAML. Out: frozen ``CommodityThresholds``, one object for all containers of a commodity. A user's file has the form
of the defaults and overrides them value by value. In a group that it changes, ``source`` is the user's, or the name of
the file.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import pydantic
import yaml
from pydantic import AfterValidator, BeforeValidator, Field

from fairlead.errors import ConfigurationError
from topologies.values import parse_duration

DEFAULTS = Path(__file__).parent / "defaults.yaml"
_PARTS = ("default", "commodities")
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
    """All thresholds of one commodity."""

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


_limits: pydantic.TypeAdapter[CommodityThresholds] = pydantic.TypeAdapter(CommodityThresholds)


class Thresholds:
    """Thresholds by commodity. Names ignore case, and spaces and underscores equal hyphens."""

    def __init__(self, default: CommodityThresholds, commodities: Mapping[str, CommodityThresholds]) -> None:
        self.default = default
        self.commodities = dict(commodities)

    def table(self, commodity: str | None) -> dict[str, dict[str, Any]]:
        """Return the thresholds of a commodity as plain values by group and name; durations in milliseconds."""
        plain: dict[str, dict[str, Any]] = _limits.dump_python(self.of(commodity))
        return plain

    @property
    def longest_ms(self) -> int:
        """The longest time, in milliseconds, over which a rule compares readings."""
        all_limits = (self.default, *self.commodities.values())
        return max(
            max(each.power.dwell, each.setpoint.dwell, each.door.dwell, each.overboard.window)
            + max(
                each.temperature.dwell + each.temperature.after_defrost,
                each.device.window,
                *(r.dwell for r in each.ranges),
            )
            for each in all_limits
        )

    def of(self, commodity: str | None) -> CommodityThresholds:
        """Return the thresholds of a commodity; those of ``default`` if it is None or not known."""
        return self.commodities.get(_plain(commodity), self.default) if commodity else self.default


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
    except OSError as error:
        raise _unreadable(str(path), error) from error
    return parse_thresholds(raw, str(path))


def parse_thresholds(raw: bytes, file: str) -> Thresholds:
    """Do what ``load_thresholds`` does, with the file's content; ``file`` is its name for error messages."""
    return _build(_over(_defaults(), _named(_read(raw, file), Path(file).name)), file)


def _plain(commodity: str) -> str:
    return commodity.strip().lower().replace(" ", "-").replace("_", "-")


@cache
def _defaults() -> dict[str, Any]:
    return _read(DEFAULTS.read_bytes(), DEFAULTS.name)


def _read(raw: bytes, file: str) -> dict[str, Any]:
    try:
        body = yaml.safe_load(raw.decode())
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise _unreadable(file, error) from error
    body = {} if body is None else body
    if wrong := _misshapen(body):
        raise _mistaken(file, wrong)
    return {
        "default": body.get("default") or {},
        "commodities": {_plain(str(name)): groups for name, groups in (body.get("commodities") or {}).items()},
    }


def _misshapen(body: Any) -> list[str]:
    """Return the mistakes in a file's outer form. The models check what is in a group."""
    if not isinstance(body, dict):
        return ["the file is no mapping"]
    wrong = [f"{key}: unknown; valid: {', '.join(_PARTS)}" for key in body if key not in _PARTS]
    wrong += [f"{key}: expected a mapping" for key in _PARTS if not isinstance(body.get(key), dict | None)]
    if wrong:
        return wrong
    return [
        f"commodities.{name}: expected a mapping of groups"
        for name, groups in (body.get("commodities") or {}).items()
        if not isinstance(groups, dict)
    ]


def _named(body: dict[str, Any], file: str) -> dict[str, Any]:
    """Name the file as the source of each group for which the user gives none."""
    for groups in (body["default"], *body["commodities"].values()):
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

    def limits(where: str, groups: Any) -> CommodityThresholds | None:
        try:
            return _limits.validate_python(groups)
        except pydantic.ValidationError as error:
            for each in error.errors(include_url=False):
                mistakes.append(f"{'.'.join(map(str, (where, *each['loc'])))}: {each['msg']}")
            return None

    default = limits("default", body["default"])
    if default is None:
        raise _mistaken(file, mistakes)
    made = {
        name: limits(f"commodities.{name}", _over(body["default"], groups))
        for name, groups in body["commodities"].items()
    }
    if mistakes:
        raise _mistaken(file, mistakes)
    return Thresholds(default, {name: each for name, each in made.items() if each is not None})


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
