"""Options of Spark's readers and writers, as the source and the sink ``fairlead`` check them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fairlead.errors import ConfigurationError, nearest

_SPARKS: Final = frozenset({"path", "checkpointlocation", "queryname"})  # Spark hands its own options on, too


def known_options(
    given: Mapping[str, str], names: Sequence[str], owner: str, error: type[ConfigurationError]
) -> dict[str, str]:
    """The options that were given, by their names as documented; these are compared without case, as all over Spark.

    Args:
        owner: Whose they are, in words.

    Raises:
        error: one of them is none of ``names``, nor one of Spark's own.
    """
    known = {name.lower(): name for name in names}
    options: dict[str, str] = {}
    for key, value in given.items():
        name = known.get(key.lower())
        if name is not None:
            options[name] = value
        elif key.lower() not in _SPARKS:
            near = nearest(key.lower(), known)
            raise error(
                f"{owner} has no option {key!r}",
                hint=(f"did you mean {known[near]!r}? " if near else "") + f"valid: {', '.join(names)}",
            )
    return options


def one_of(options: Mapping[str, str], name: str, valid: Sequence[str], error: type[ConfigurationError]) -> str:
    """An option that has one of some values, the first of them when it was not given."""
    value = options.get(name, valid[0]).lower()
    if value not in valid:
        raise error(f"option {name!r} is {value!r}", hint=f"valid: {', '.join(valid)}")
    return value


def positive(options: Mapping[str, str], name: str, default: int, error: type[ConfigurationError]) -> int:
    """An option that is a whole number above 0."""
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) == 0:
        raise error(f"option {name!r} is {text!r}", hint="expected a whole number above 0")
    return int(text)
