"""What the board answers, as an OpenAPI 3.1 document. Pure.

A page or route says beside its handler what it takes (``Field``) and what it answers (``Answer``); the handler's
docstring is its description. ``board.app`` has the list of all, and serves the document as ``/openapi.json``. It is
made from the program alone, so it names nothing of a topology.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from board.security import COOKIE

Json: TypeAlias = Mapping[str, Any]

TEXT: Final[Json] = {"type": "string"}
NUMBER: Final[Json] = {"type": "integer", "minimum": 0}
DAY: Final[Json] = {"type": "string", "format": "date"}
MOMENT: Final[Json] = {"type": "string", "format": "date-time"}

HTML: Final = "text/html"
JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"

SESSION: Final = "session"
TOKEN: Final = "token"  # noqa: S105 - the name of a way to sign in
_SCHEMES: Final[Json] = {
    SESSION: {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "POST /sign-in sets the cookie. It ends after an hour without a request.",
    },
    TOKEN: {
        "type": "http",
        "scheme": "bearer",
        "description": "The token of a profile file for Delta Sharing (`fairlead feed --client delta-sharing`).",
    },
}
_PARAMETER: Final = re.compile(r"\{([a-z_]+)(?::[a-z]+)?\}")
_ALL: Final[Mapping[int, str]] = {
    421: "The request is for a name that is none of the board's.",
    500: "The board has an error; its log has the details.",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One value that a request gives: in its path where that has the name, else in the query, or in the body of a POST.

    Args:
        schema: As in JSON Schema.
        example: A value that could be right.
    """

    name: str
    text: str
    schema: Json = field(default_factory=lambda: TEXT)
    example: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer.

    Args:
        media: The types that its body may have; empty without a body.
        schema: Of the body; None for text or bytes.
        headers: Headers that mean something, and what.
    """

    text: str
    media: tuple[str, ...] = ()
    schema: Json | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PathOperation:
    """What one method of one path answers.

    Args:
        path: As Starlette writes it, with ``{parameters}``.
        about: The handler, whose docstring describes the operation; or a description.
        group: The heading under which it stands.
        readers: A sentence: for whom it is.
        security: The way to sign in; empty where nobody needs to.
        roles: Who, of those that have signed in; all of them where it is empty.
        body: The media type of a POST's fields.
    """

    method: str
    path: str
    about: Callable[..., object] | str
    group: str
    readers: str
    security: str
    fields: tuple[Field, ...]
    answers: Mapping[int, Answer]
    body: str = FORM
    roles: tuple[str, ...] = ()

    @property
    def template(self) -> str:
        """The path as OpenAPI writes it."""
        return _PARAMETER.sub(r"{\1}", self.path)

    def as_json(self) -> dict[str, Any]:
        """Return the operation's object of the document.

        Raises:
            ValueError: the handler has no docstring, or a parameter of the path is not described.
        """
        summary, description = self._description()
        in_path = _PARAMETER.findall(self.path)
        missing = set(in_path) - {each.name for each in self.fields}
        if missing:
            raise ValueError(f"{self.method} {self.path}: {', '.join(sorted(missing))} is not described")
        posted = [each for each in self.fields if self.method == "POST" and each.name not in in_path]
        parameters = [_parameter(each, in_path) for each in self.fields if each not in posted]
        slug = re.sub(r"[^a-z]+", "_", self.template.lower()).strip("_") or "first"
        found: dict[str, Any] = {
            "operationId": f"{self.method.lower()}_{slug}",
            "tags": [self.group],
            "summary": summary,
            "description": " ".join(filter(None, (description, self.readers))),
            "security": [{self.security: list(self.roles)}] if self.security else [],
            "responses": {str(status): _response(each) for status, each in sorted(self.answers.items())}
            | {
                str(status): {"$ref": f"#/components/responses/{status}"}
                for status in _ALL
                if status not in self.answers
            },
        }
        if parameters:
            found["parameters"] = parameters
        if posted:
            found["requestBody"] = _body(posted, self.body)
        return found

    def _description(self) -> tuple[str, str]:
        doc = self.about if isinstance(self.about, str) else inspect.getdoc(self.about)
        text = (doc or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")
        if not text:
            raise ValueError(f"{self.method} {self.path}: the handler has no docstring")
        first, _, rest = text.partition(". ")
        return first.removesuffix(".") + ".", rest


def document(operations: Iterable[PathOperation], version: str) -> dict[str, Any]:
    """Return the OpenAPI document.

    Args:
        version: Of the program.

    Raises:
        ValueError: an operation has no description, or two have the same path and method.
    """
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        methods = paths.setdefault(each.template, {})
        if each.method.lower() in methods:
            raise ValueError(f"{each.method} {each.path} is there twice")
        methods[each.method.lower()] = each.as_json()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fairlead's board",
            "version": version,
            "description": "Pages, downloads, live events and Delta Sharing. What is not for somebody answers as if it "
            "did not exist (404). `HEAD` answers wherever `GET` does, without a body.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "securitySchemes": _SCHEMES,
            "responses": {
                str(status): _response(Answer(text, ("text/plain",) if status == 421 else (HTML,)))
                for status, text in _ALL.items()
            },
        },
    }


def _parameter(given: Field, in_path: Iterable[str]) -> dict[str, Any]:
    where = "path" if given.name in in_path else "query"
    found = {
        "name": given.name,
        "in": where,
        "description": given.text,
        "required": where == "path" or given.required,
        "schema": given.schema,
    }
    return found | ({"example": given.example} if given.example else {})


def _body(fields: Iterable[Field], media: str) -> dict[str, Any]:
    properties = {
        each.name: {**each.schema, "description": each.text} | ({"examples": [each.example]} if each.example else {})
        for each in fields
    }
    needed = [each.name for each in fields if each.required]
    schema = {"type": "object", "properties": properties} | ({"required": needed} if needed else {})
    return {"required": bool(needed), "content": {media: {"schema": schema}}}


def _response(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answer.text}
    if answer.media:
        found["content"] = {media: {"schema": _schema(answer, media)} for media in answer.media}
    if answer.headers:
        found["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in answer.headers.items()
        }
    return found


def _schema(answer: Answer, media: str) -> Json:
    if answer.schema is not None:
        return answer.schema
    return TEXT if media.startswith("text/") else {}
