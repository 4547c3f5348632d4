"""What a machine adds to a topology: a local file and environment variables, laid over the topology's own data. Pure.

Mappings are merged key by key, lists replaced whole; only links are matched by ``from``, ``to`` and ``when``. Neither
can bring a site, stream, link, customer or user that the topology does not have, so that a slip is no new site.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.errors import nearest
from topologies import schema
from topologies.mistakes import Mistake, Path, quote
from topologies.model import DEFAULT_STREAMS, Topology
from topologies.source import Origins, Place, Source

PREFIX = "FAIRLEAD_"
_SECTIONS = {"sites": "site", "streams": "stream", "customers": "customer", "users": "user"}


def lay_over(base: Source, over: Source) -> None:
    """Merge ``over`` into ``base``: data, places and mistakes; ``over`` is not to be used afterwards."""
    base.mistakes.extend(over.mistakes)
    if over.data is None:
        return
    if not isinstance(over.data, dict):
        base.mistakes.append(over.origins.top.mistake((), "an override has the form of a topology", "a mapping"))
        return
    if not isinstance(base.data, dict):
        return
    base.mistakes.extend(_drop_strangers(base.data, over))
    if isinstance(base.data.get("links"), list) and isinstance(over.data.get("links"), list):
        _links(base, over)
    for section, value in list(over.data.items()):
        if isinstance(value, dict) and not isinstance(base.data.get(section), dict | None):
            del over.data[section]  # the topology's own section is a mistake: that is what must be shown
    _merge(base, over.origins, base.data, over.data, ())


def _drop_strangers(base: dict[str, Any], over: Source) -> list[Mistake]:
    mistakes: list[Mistake] = []
    for section, kind in _SECTIONS.items():
        known = base.get(section)
        written = over.data.get(section)
        if not isinstance(written, dict) or not isinstance(known, dict | None):
            continue
        names = [*(known or {}), *(DEFAULT_STREAMS if section == "streams" else ())]
        for name in [name for name in written if name not in names]:
            del written[name]
            path: Path = (section, name)
            place = over.origins.of_key(path)
            mistakes.append(
                place.mistake(path, f"the topology has no such {kind}", ", ".join(names), nearest(name, names))
            )
    return mistakes


def _merge(base: Source, over: Origins, mine: dict[str, Any], theirs: dict[str, Any], path: Path) -> None:
    for key, value in theirs.items():
        here = (*path, key)
        known = mine.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(base, over, known, value, here)
        elif path == () and value is None:
            continue  # an empty section changes nothing
        elif (isinstance(known, dict) and value is not None) or (here == ("links",) and not isinstance(value, list)):
            # Laid over, it would take away what half the topology refers to, and hide itself among the consequences.
            wanted = schema.describe(schema.type_at(Topology, here))
            base.mistakes.append(over.of_value(here).mistake(here, f"{quote(value)} does not belong here", wanted))
        else:
            mine[key] = value
            over.move(here, here, base.origins)


def _links(base: Source, over: Source) -> None:
    known: dict[tuple[Any, ...], int] = {}
    for index, link in enumerate(base.data["links"]):
        if isinstance(link, dict):
            known.setdefault(_identity(link), index)
    for index, link in enumerate(over.data.pop("links")):
        path: Path = ("links", index)
        place = over.origins.of_value(path)
        target = known.get(_identity(link)) if isinstance(link, dict) else None
        if target is None:
            names = [_show(identity) for identity in known]
            near = nearest(_show(_identity(link)), names) if isinstance(link, dict) else None
            wanted = "from, to and when exactly as a link of the topology has them"
            base.mistakes.append(place.mistake(path, "the topology has no such link", wanted, near))
            continue
        moved = Origins(over.origins.top)
        over.origins.move(path, ("links", target), moved)
        _merge(base, moved, base.data["links"][target], link, ("links", target))


def _identity(link: dict[str, Any]) -> tuple[str, str, str]:
    return str(link.get("from")), str(link.get("to")), str(link.get("when", "always"))


def _show(identity: tuple[str, ...]) -> str:
    return "from {}, to {}, when {}".format(*identity)


def from_environment(env: Mapping[str, str], base: Any) -> list[Source]:
    """One override for each variable such as ``FAIRLEAD_SITES__LOS_ANGELES__KAFKA__BOOTSTRAP``, in order of the names.

    Parts are separated by two underscores and found without regard to case, ``-`` being written ``_``. Values are
    text. Variables without two underscores, and ``FAIRLEAD_SECRET_...``, are for others.
    """
    found: list[Source] = []
    for variable in sorted(env):
        if variable.startswith(PREFIX) and "__" in variable and not variable.startswith(f"{PREFIX}SECRET_"):
            found.append(_variable(variable, env[variable], base))
    return found


def _variable(variable: str, text: str, base: Any) -> Source:
    parts = variable.removeprefix(PREFIX).split("__")
    path: Path = ()
    current = base
    for part in parts:
        name = _match(part, path, current)
        path = (*path, name)
        current = current.get(name) if isinstance(current, dict) else None
    place = Place(f"${variable}")
    origins = Origins(place)
    # A lone half of a surrogate pair stands for a byte that is no text; no other library takes it.
    data: Any = text.encode("utf-8", "backslashreplace").decode()
    origins.values[path] = place
    for length in range(len(path), 0, -1):
        data = {path[length - 1]: data}
        origins.keys[path[:length]] = place
    source = Source(place.file, data, origins)
    if not all(parts):
        source.data = None
        source.mistakes.append(
            place.mistake((), "an empty part in the name", f"{PREFIX}SITES__<SITE>__KAFKA__BOOTSTRAP")
        )
    return source


def _match(part: str, path: Path, current: Any) -> str:
    """The key that a part of a variable's name means; the part in lower case when there is none."""
    fields = schema.fields_at(Topology, path)
    names = [
        *fields,
        *(current if isinstance(current, dict) else ()),
        *(DEFAULT_STREAMS if path == ("streams",) else ()),
    ]
    for name in names:
        if name.upper().replace("-", "_") == part.upper():
            return str(name)
    return part.lower() if fields else part.lower().replace("_", "-")
