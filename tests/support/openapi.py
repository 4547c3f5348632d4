"""The board's OpenAPI document, for tests: what it says of a request, and whether an answer is one that it names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx
from starlette.routing import compile_path

import board.app
from board.openapi import SESSION

DOCUMENT: Final = board.app.openapi_document()


@dataclass(frozen=True)
class Described:
    """One operation of the document."""

    method: str
    path: str
    content: Mapping[str, Any]
    route: re.Pattern[str]

    @property
    def roles(self) -> list[str]:
        """Whose session it needs: none where it needs no session, or that of anybody."""
        return [role for each in self.content["security"] for role in each.get(SESSION, ())]

    @property
    def schemes(self) -> list[str]:
        """The ways to sign in; none where nobody needs to."""
        return [name for each in self.content["security"] for name in each]

    def parameters(self, where: str) -> list[Mapping[str, Any]]:
        return [each for each in self.content.get("parameters", ()) if each["in"] == where]

    @property
    def guessed(self) -> list[str]:
        """The parameters of the path that name something: all but those that are one of a few words."""
        return [each["name"] for each in self.parameters("path") if "enum" not in each["schema"]]

    @property
    def body(self) -> dict[str, Mapping[str, Any]]:
        """The fields of the body, with their schemas."""
        found: Mapping[str, Any] = next(iter(self.content.get("requestBody", {}).get("content", {}).values()), {})
        return dict(found.get("schema", {}).get("properties", {}))

    def addresses(self, values: Mapping[str, str], unknown: str = "") -> list[str]:
        """Return its paths: each word of parameters that have a few, for others their value, or ``unknown``."""
        given = self.parameters("path")
        found: list[str] = []
        for chosen in itertools.product(*(each["schema"].get("enum", [None]) for each in given)):
            path = self.path
            for each, word in zip(given, chosen, strict=True):
                path = path.replace(f"{{{each['name']}}}", quote(word or values.get(each["name"], unknown), safe=""))
            found.append(path)
        return found

    def address(self, values: Mapping[str, str], unknown: str = "", turn: int = 0) -> str:
        """Return one of its paths; with another ``turn`` another one."""
        found = self.addresses(values, unknown)
        return found[turn % len(found)]

    def matches(self, method: str, path: str) -> bool:
        """Return whether the board's route of this operation answers a request."""
        return method in (self.method, *(("HEAD",) if self.method == "GET" else ())) and bool(self.route.match(path))

    def check(self, answer: httpx.Response) -> None:
        """Fail unless the document names the answer's status and the type of its body."""
        where = f"{self.method} {self.path}: {answer.status_code}"
        assert str(answer.status_code) in self.content["responses"], f"{where} is not in the document"
        found = self.content["responses"][str(answer.status_code)]
        if "$ref" in found:
            found = DOCUMENT["components"]["responses"][found["$ref"].rpartition("/")[2]]
        media = answer.headers.get("content-type", "").partition(";")[0]
        wanted = found.get("content", {})
        if answer.request.method != "HEAD" and answer.headers.get("content-length") != "0":
            assert media in wanted or "*/*" in wanted, f"{where} has the type {media}"


OPERATIONS: Final = tuple(
    Described(
        each.method, each.template, DOCUMENT["paths"][each.template][each.method.lower()], compile_path(each.path)[0]
    )
    for each in board.app.OPERATIONS
)
"""All operations of the document, in the order in which the board tries its routes."""


def check_answer(answer: httpx.Response) -> None:
    """Fail if the document has the request, and not the answer. An event hook of clients in tests."""
    path = answer.request.url.path
    found = next((each for each in OPERATIONS if each.matches(answer.request.method, path)), None)
    if found is not None:
        found.check(answer)
