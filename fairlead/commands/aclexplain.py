"""``fairlead acl explain``: may a user do something with a topic, where, and why."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.markup import escape

from acl.explain import Answer
from acl.explain import explain as explain_access
from acl.rules import Operation
from fairlead.commands.context import DEFAULT_TOPOLOGY, JsonOption, TopologyOption, open_topology
from fairlead.console import console, emit
from fairlead.errors import UnknownNameError


def explain(
    user: Annotated[str, typer.Argument(help="A customer, a user, or a service such as bridge.")],
    topic: Annotated[str, typer.Argument(help="A topic, for example feeds.ducks.")],
    operation: Annotated[str | None, typer.Argument(help="READ, WRITE, CREATE, … Default: READ and WRITE.")] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: Annotated[str | None, typer.Option("--site", "-s", help="Only this site.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say at which sites a user may do something with a topic, and why; or why not.

    This is what the topology says; fairlead acl drift tells whether the clusters agree.

    Example: fairlead acl explain ducks feeds.ducks READ
    """
    context = open_topology(topology)
    answers = explain_access(context.topology, user, topic, _operation(operation), site)

    def render() -> None:
        shown: dict[tuple[tuple[str, ...], tuple[str, ...], str, bool], list[str]] = {}
        for answer in answers:
            generic = tuple(text.replace(f"site {answer.site}", "this site") for text in answer.because)
            shown.setdefault((answer.rules, generic, answer.operation, answer.allowed), []).append(answer.site)
        for (rules, because, what, allowed), sites in shown.items():
            verdict = "[green]may[/]" if allowed else "[red]may not[/]"
            console.print(f"{user} {verdict} {what} {topic} at {', '.join(sites)}")
            for text in because:
                console.print(f"    because {escape(text)}")
            for rule in rules:
                console.print(f"    by rule {escape(rule)}")

    emit([_builtins(answer) for answer in answers], as_json=as_json, render=render)


def _builtins(answer: Answer) -> dict[str, object]:
    body: dict[str, object] = msgspec.to_builtins(answer)
    return body


def _operation(text: str | None) -> Operation | None:
    if text is None:
        return None
    try:
        return Operation(text.upper())
    except ValueError:
        raise UnknownNameError("operation", text, Operation) from None
