"""Who may read a container's log, or any topic, and why: what ``fairlead acl explain`` answers, for auditors.

The page says what the topology gives. ``fairlead acl drift`` says whether the clusters agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from acl.explain import AccessAnswer, explain
from acl.rules import Operation
from board.openapi import Field
from board.service import BoardService, Page
from board.viewer import Access
from fairlead.names import is_container_number
from shore.report.container import normalised
from shore.report.entitled import ContainerFeeds, feeds_of_container
from topologies.model import Topology
from topologies.users import Role, service_users

_PEOPLE: Final = (Role.CUSTOMER, Role.USER)
LONGEST: Final = 249
"""Characters of a topic's name, as in Kafka."""


@dataclass(frozen=True, slots=True)
class Reader:
    """What one customer or user may read of a topic. ``sites``: where it may; ``because``: why, or why nowhere."""

    name: str
    title: str
    role: str
    sites: tuple[str, ...]
    because: tuple[str, ...]
    rules: tuple[str, ...]


async def access(board: BoardService, request: Request) -> Response:
    """Everybody who may read a topic or a container, then everybody who may not, each with the reasons."""
    asked = request.query_params.get("topic", "").strip()[:LONGEST]
    number = normalised(asked)
    box = number if is_container_number(number) else None
    stream = board.topology.container_stream(box) if box else None
    topic = f"{stream}.{box}" if stream else asked
    values: dict[str, Any] = {"asked": asked, "topic": topic, "box": box, "readers": (), "others": (), "feeds": None}
    if box and stream is None:
        values["warnings"] = [f"No stream of this topology has containers of owner {box[:4]}."]
    elif topic:
        found = readers(board.topology, topic)
        values |= {"readers": [r for r in found if r.sites], "others": [r for r in found if not r.sites]}
    if box:
        feeds: ContainerFeeds = await board.read(feeds_of_container, board.topology, board.context.folder, box)
        values["feeds"] = feeds
    return board.page(request, "access.html.j2", **values)


def readers(topology: Topology, topic: str) -> list[Reader]:
    """Return every customer and user of the topology with what it may read of a topic, in order of their names."""
    people = {
        name: user
        for site in topology.sites
        for name, user in service_users(topology, site).items()
        if user.role in _PEOPLE
    }
    found = []
    for name in sorted(people):
        answers = explain(topology, name, topic, Operation.READ)
        given = [answer for answer in answers if answer.allowed]
        party = topology.customers.get(name) or topology.users[name]
        found.append(
            Reader(
                name,
                party.title,
                people[name].role.value,
                tuple(answer.site for answer in given),
                _reasons(given or [each for each in answers if "does not exist at site" not in " ".join(each.because)]),
                tuple(dict.fromkeys(rule for answer in given for rule in answer.rules)),
            )
        )
    return found


def _reasons(answers: list[AccessAnswer]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for answer in answers for text in answer.because))


_TOPIC: Final = Field("topic", "A topic, or a container's number.", example="CSQU3054383")

PAGES: Final = (Page("/access", access, Access.STAFF, fields=(_TOPIC,)),)
