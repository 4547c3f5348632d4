"""The logs of a topology as an AsyncAPI 3.0 document: where they are, what is in them, and who may use them. Pure.

A channel is a kind of log: ``containers.{equipmentReference}`` stands for one topic for each container. Payloads are
the structs of ``fairlead.records``. An application that ``receive``s reads a log; one that ``send``s writes to it.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from acl.compile import exists_at, log_exists_at
from fairlead.kafka.admin import LOG_DEFAULTS
from fairlead.kafka.endpoint import SaslMechanism
from fairlead.records import headers
from fairlead.records.alert import RAISED_BY_SHORE, Alert
from fairlead.records.booking import Booking, Retraction
from fairlead.records.custody import ClaimEntry, CustodyEntry, Marker, RefusalEntry, ReturnEntry
from fairlead.records.edge import DeadLetter, Stray
from fairlead.records.ends import EndsEntry
from fairlead.records.event import Event
from fairlead.records.reading import Reading
from fairlead.records.ship import Environment, Position, RollCall
from fairlead.streams.inventory import Inventory, StreamPositions, describe_stream, retention_at
from fairlead.versions import fairlead_version
from topologies.model import ENDS, InsertPoint, Site, SiteKind, Topology
from topologies.values import format_duration, parse_bootstrap

_SCHEMAS: Final = "#/components/schemas/"
_DIGEST: Final = "Digest"
_MADE: Final[Mapping[str, str]] = {
    "ShipDigest": "What the ship's newest digest says of a container at sea.",
    "Milestone": "A milestone of a container or its ship.",
    "Conditions": "A container's hour: temperatures, minutes out of band, without power, observed.",
    "Movement": "A movement of a ship or container at a port.",
}
"""Records of feeds that shore makes itself, as JSON (docs/feeds.md)."""
_FEEDS: Final[Mapping[str, tuple[type[msgspec.Struct] | str, ...]]] = {
    "detailed": (Reading, Alert, CustodyEntry, "ShipDigest", Retraction),
    "coarse": ("Milestone", "Conditions", Alert, Retraction),
    "movements": ("Movement", Retraction),
    "alerts": (Alert, Retraction),
}
"""The records of a customer's feed, by its kind."""
_HEADERS: Final[Mapping[str, tuple[str, str]]] = {
    headers.RECEIVED: ("^[0-9]+$", "When a site received it: milliseconds since 1970, UTC."),
    headers.ORIGIN: ("^.+@[0-9]+$", "Of a copied record: its first log and offset."),
    headers.RETRACTS: ("^.+@[0-9]+$", "The header `origin` of the record that this one takes back."),
    headers.LATE: ("^1$", "The log has a newer reading of the same device before this one."),
}
_WRITERS: Final[Mapping[InsertPoint, str]] = {
    InsertPoint.MOVES: "The site that has custody of the container appends; others have copies at the same offsets.",
    InsertPoint.SHIP: "The ship appends; others have copies at the same offsets.",
    InsertPoint.SITE: "The site in its name appends; others have copies at the same offsets.",
    InsertPoint.SHORE: "Shore appends.",
}


@dataclass(frozen=True, slots=True)
class _LogKind:
    """A kind of log.

    Args:
        key: What follows the stream's name, with ``{parameters}``.
        content: Structs, or the names of records that are none.
        parameters: By name: what it is, and the values that there are; none where these are not known.
    """

    stream: str
    key: str
    content: tuple[type[msgspec.Struct] | str, ...]
    parameters: Mapping[str, tuple[str, Sequence[str]]]

    @property
    def name(self) -> str:
        """The channel's name."""
        words = f"{self.stream}.{self.key}".replace("{", "").replace("}", "")
        return words.replace(".", "-")


def asyncapi(topology: Topology) -> dict[str, Any]:
    """Return the AsyncAPI document of a topology. It has no secret: users have names, and passwords are nowhere."""
    kinds = list(_kinds(topology))
    described = {name: describe_stream(topology, Inventory(), StreamPositions(), name) for name in topology.streams}
    channels = {each.name: _channel(topology, each) for each in kinds if _sites(topology, each)}
    return {
        "asyncapi": "3.0.0",
        "id": f"urn:fairlead:{topology.name}",
        "info": {
            "title": topology.title or topology.name,
            "version": fairlead_version(),
            "description": " ".join(f"{topology.description} {_ABOUT}".split()),
        },
        "defaultContentType": "application/json",
        "servers": {name: _server(topology, name, site) for name, site in topology.sites.items()},
        "channels": channels,
        "operations": dict(_operations([each for each in kinds if each.name in channels], described)),
        "components": {
            "securitySchemes": dict(filter(None, itertools.starmap(_security, topology.sites.items()))),
            "schemas": _schemas(kinds),
            "messages": _messages(kinds),
        },
    }


_ABOUT: Final = (
    "Generated by `fairlead topology show --asyncapi`. A log is a topic of one partition, with the same records at the "
    "same offsets at every site that has it. Records with the header `fairlead` are markers and fillers, which readers "
    "pass over. `x-retention` says for how long each site keeps records, and `x-access` who may read or write and why; "
    "Fairlead's own services are not in it."
)


def _kinds(topology: Topology) -> Iterator[_LogKind]:
    shipping = any(site.kind in (SiteKind.SHIP, SiteKind.PORT) for site in topology.sites.values())
    for stream, spec in topology.streams.items():
        if spec.insert_point is InsertPoint.MOVES:
            numbers = ("ISO 6346 number of a container, of owner " + ", ".join(spec.owners), ())
            yield _LogKind(stream, "{equipmentReference}", (Reading, Marker), {"equipmentReference": numbers})
        elif stream == "feeds" and shipping:
            for name, customer in topology.customers.items():
                if customer.feed_at is not None:
                    yield _LogKind(stream, name, _FEEDS[customer.feed], {})
        elif stream == "ships" and shipping:
            ships = [site.imo for site in topology.sites.values() if site.imo]
            imo = {"imo": ("IMO number of a ship", ships)}
            for key, content in (
                ("location", Position),
                ("environment", Environment),
                ("roll-calls", RollCall),
                ("digest", _DIGEST),
            ):
                yield _LogKind(stream, f"{{imo}}.{key}", (content,), imo)
        elif stream == ENDS or (shipping and stream in _OF_SITES):
            yield _LogKind(stream, "{site}", _OF_SITES[stream], {"site": ("A site", _writers(topology, stream))})
        else:
            yield _LogKind(stream, "{key}", ("Record",), {"key": (_KEYS[spec.insert_point], ())})


_KEYS: Final[Mapping[InsertPoint, str]] = {
    InsertPoint.MOVES: "ISO 6346 number of a container",
    InsertPoint.SHIP: "The IMO number of a ship, and what may follow after a dot",
    InsertPoint.SITE: "The name of a site, and what may follow after a dot",
    InsertPoint.SHORE: "Any key",
}
_OF_SITES: Final[Mapping[str, tuple[type[msgspec.Struct], ...]]] = {
    "events": (Event,),
    "alerts": (Alert,),
    "custody": (CustodyEntry, ReturnEntry, RefusalEntry, ClaimEntry),
    "strays": (Stray,),
    "deadletters": (DeadLetter,),
    "bookings": (Booking,),
    ENDS: (EndsEntry,),
}
"""The records of streams with one log for each site."""


def _writers(topology: Topology, stream: str) -> list[str]:
    if stream == ENDS:
        return [name for name in topology.sites if topology.has_replicator(name)]
    found = topology.sites_with_bridge
    return [*found, RAISED_BY_SHORE] if stream == "alerts" and topology.shore_raises_alerts else found


def _sites(topology: Topology, kind: _LogKind) -> list[str]:
    """Return the sites that can have logs of a kind."""
    if kind.parameters:
        return [name for name in topology.sites if exists_at(topology, kind.stream, name)]
    return [name for name in topology.sites if log_exists_at(topology, kind.stream, kind.key, name)]


def _server(topology: Topology, name: str, site: Site) -> dict[str, Any]:
    if site.kafka is None:
        tls = topology.tls or site.certificate is not None
        host, where = "localhost", "`fairlead up` starts it on this machine and chooses the port."
    else:
        tls = site.kafka.tls
        addresses = [
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            for host, port in parse_bootstrap(site.kafka.bootstrap)
        ]
        host, where = addresses[0], f"Bootstrap addresses: {', '.join(addresses)}."
    login = _security(name, site)
    return {
        "host": host,
        "protocol": "kafka-secure" if tls else "kafka",
        "title": site.title or name,
        "description": f"{site.kind.value}. {where}",
        **({"security": [{"$ref": f"#/components/securitySchemes/{login[0]}"}]} if login is not None else {}),
        "bindings": {"kafka": {"bindingVersion": "0.5.0"}},
    }


_BY_PASSWORD: Final = {
    SaslMechanism.SCRAM_SHA_512: ("scram", "scramSha512"),
    SaslMechanism.SCRAM_SHA_256: ("scram-sha-256", "scramSha256"),
    SaslMechanism.PLAIN: ("plain", "plain"),
}


def _security(site: str, of: Site) -> tuple[str, dict[str, Any]] | None:
    """Return how users of a site's Kafka log in, with a name for it; None for a way that AsyncAPI has no word for."""
    address = of.kafka
    if address is not None and address.security == "SSL":
        return "certificate", {"type": "X509", "description": "The user's TLS certificate."}
    if address is not None and address.oauth is not None:
        flow = {
            "tokenUrl": address.oauth.endpoint,
            "availableScopes": {each: "" for each in address.oauth.scope.split()},
        }
        about = "The client id and secret of a Kafka user of the site."
        return f"oauth-{site}", {"type": "oauth2", "description": about, "flows": {"clientCredentials": flow}}
    mechanism = address.sasl_mechanism if address is not None else SaslMechanism.SCRAM_SHA_512
    if mechanism not in _BY_PASSWORD:
        return None
    name, kind = _BY_PASSWORD[mechanism]
    return name, {"type": kind, "description": "The name and password of a Kafka user of the site."}


def _channel(topology: Topology, kind: _LogKind) -> dict[str, Any]:
    spec = topology.streams[kind.stream]
    sites = _sites(topology, kind)
    kept = retention_at(topology, kind.stream)
    found: dict[str, Any] = {
        "address": f"{kind.stream}.{kind.key}",
        "title": spec.title or kind.stream,
        "description": _WRITERS[spec.insert_point],
        "servers": [{"$ref": f"#/servers/{site}"} for site in sites],
        "messages": {_name(each): {"$ref": f"#/components/messages/{_name(each)}"} for each in kind.content},
        "bindings": {"kafka": _binding(kind)},
        "x-retention": {site: format_duration(kept[site]) for site in sites},
        "x-priority": str(spec.priority),
    }
    if kind.parameters:
        found["parameters"] = {
            name: {"description": f"{text}."} | ({"enum": list(values)} if values else {})
            for name, (text, values) in kind.parameters.items()
        }
    return found


def _binding(kind: _LogKind) -> dict[str, Any]:
    found: dict[str, Any] = {"bindingVersion": "0.5.0"}
    if kind.content == ("Record",):
        return found  # somebody else's topic: it has the settings that its maker gave it
    return found | {
        "partitions": 1,
        "topicConfiguration": {
            "cleanup.policy": [LOG_DEFAULTS["cleanup.policy"]],
            "retention.ms": int(LOG_DEFAULTS["retention.ms"]),  # the replicator deletes, after all sites have it
            "retention.bytes": int(LOG_DEFAULTS["retention.bytes"]),
            "max.message.bytes": int(LOG_DEFAULTS["max.message.bytes"]),
        },
    }


def _operations(
    kinds: Sequence[_LogKind], described: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in kinds:
        access = [each for each in described[kind.stream]["access"] if _covers(each["logs"], kind)]
        for name, action, right in (("read", "receive", "READ"), ("write", "send", "WRITE")):
            given = [each for each in access if right in each["operations"]]
            if action == "send" and not given:
                continue
            people = sorted({each["user"] for each in given})
            who = f"For {', '.join(people)}." if people else "For Fairlead's own services and administrators alone."
            yield (
                f"{name}-{kind.name}",
                {
                    "action": action,
                    "channel": {"$ref": f"#/channels/{kind.name}"},
                    "description": who,
                    "x-access": [{key: each[key] for key in ("user", "logs", "sites", "because")} for each in given],
                },
            )


def _covers(logs: str, kind: _LogKind) -> bool:
    """Return whether a rule on these logs (``feeds.ducks``, ``ships.9074729.*``) can be about a kind's."""
    fixed = f"{kind.stream}.{kind.key.partition('{')[0]}"
    if kind.parameters:
        return logs.removesuffix("*").startswith(fixed) or fixed.startswith(logs.removesuffix("*"))
    return fixed.startswith(logs.removesuffix("*")) if logs.endswith("*") else logs == fixed


# --- what is in a record


def _name(content: type[msgspec.Struct] | str) -> str:
    return content if isinstance(content, str) else content.__name__


def _schemas(kinds: Sequence[_LogKind]) -> dict[str, Any]:
    structs = dict.fromkeys(each for kind in kinds for each in kind.content if not isinstance(each, str))
    _, found = msgspec.json.schema_components(structs, ref_template=_SCHEMAS + "{name}")
    return dict(found)


def _messages(kinds: Sequence[_LogKind]) -> dict[str, Any]:
    contents = dict.fromkeys(each for kind in kinds for each in kind.content)
    return {_name(each): _message(each) for each in contents}


def _message(content: type[msgspec.Struct] | str) -> dict[str, Any]:
    name = _name(content)
    found: dict[str, Any] = {"name": name, "title": name, "headers": _headers(content)}
    if not isinstance(content, str):
        summary = (inspect.getdoc(content) or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")
        return found | {"summary": summary, "payload": {"$ref": _SCHEMAS + name}}
    if content in _MADE:
        return found | {"summary": _MADE[content], "payload": {"type": "object"}}
    if content == _DIGEST:
        summary = "The newest reading of each container aboard, in a binary form (`fairlead.records.digest`)."
        return found | {"summary": summary, "contentType": "application/octet-stream"}
    return found | {"summary": "A record of its own producers; Fairlead copies it as it is."}


def _headers(content: type[msgspec.Struct] | str) -> dict[str, Any]:
    if content == "Record":
        return {"type": "object"}
    if content is Marker:
        named = {headers.KIND: {"type": "string", "const": headers.MARKER.decode(), "description": "A marker."}}
        return {"type": "object", "required": [headers.KIND], "properties": named}
    properties = {
        name: {"type": "string", "pattern": pattern, "description": text}
        for name, (pattern, text) in _HEADERS.items()
        if name != headers.RETRACTS or content is Retraction
    }
    return {"type": "object", "properties": properties} | (
        {"required": [headers.RETRACTS]} if content is Retraction else {}
    )
