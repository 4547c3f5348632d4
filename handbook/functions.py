"""What typer makes of commands' functions: names, values, flags. For whatever is written from them."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any, Union, get_args, get_origin

import typer
from typer.models import OptionInfo


def commands_of(group: typer.Typer) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The commands of a group that are shown, by name and with their functions."""
    for each in group.registered_commands:
        if each.callback is not None and not each.hidden:
            yield each.name or each.callback.__name__.strip("_").replace("_", "-"), each.callback


def takes(annotation: Any) -> tuple[Any, bool]:
    """The type of one value of a parameter, and whether there may be several."""
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next(each for each in get_args(annotation) if each is not type(None))
    if get_origin(annotation) in (list, tuple):
        return get_args(annotation)[0], True
    return annotation, False


def option_names(name: str, option: OptionInfo, kind: Any) -> tuple[str, ...]:
    """How an option is written: as it is declared, else as typer names it."""
    if option.param_decls:
        return tuple(option.param_decls)
    usual = f"--{name.replace('_', '-')}"
    return (f"{usual}/--no-{usual[2:]}",) if kind is bool else (usual,)
