"""Parse, evaluate and format access expressions in MapR's grammar. Pure.

An expression selects the users that have a permission: ``u:`` a user, ``g:`` a group, ``r:`` a role, ``p`` everybody,
``!`` not, ``&`` and, ``|`` or, parentheses. The empty text selects nobody. As in MapR, ``p`` cannot be combined with
anything else. MapR does not document whether ``&`` binds stronger than ``|``, so here an expression that mixes them
needs parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from fairlead.errors import ConfigurationError

MAX_LENGTH = 65536  # MapR's own limit, in characters here


class Kind(StrEnum):
    """The kind of a name in an expression."""

    USER = "u"
    GROUP = "g"
    ROLE = "r"


@dataclass(frozen=True, slots=True)
class Subject:
    """A user with its groups and roles, for whom an expression is evaluated."""

    user: str
    groups: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Nobody:
    """The empty expression."""


@dataclass(frozen=True, slots=True)
class Public:
    """``p``: every user who can log in."""


@dataclass(frozen=True, slots=True)
class Name:
    """``u:NAME``, ``g:NAME`` or ``r:NAME``."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Not:
    """``!operand``."""

    operand: Term


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more operands, none of which is an ``And`` itself."""

    operands: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of two or more operands, none of them an ``Or`` itself."""

    operands: tuple[Term, ...]


Term = Name | Not | And | Or
Expression = Nobody | Public | Term


class ExpressionError(ConfigurationError):
    """An expression that cannot be parsed. ``position`` counts characters from 0."""

    def __init__(self, text: str, position: int, problem: str, hint: str) -> None:
        shown = text if len(text) <= 200 else text[:200] + "…"
        super().__init__(
            f"access expression {shown!r}, character {position + 1}: {problem}",
            hint=hint,
            text=shown,
            position=position,
            problem=problem,
        )
        self.position = position
        self.problem = problem


def evaluate(expression: Expression, subject: Subject) -> bool:
    """Return whether the expression includes the subject."""
    match expression:
        case Nobody():
            return False
        case Public():
            return True
        case Name(kind, name):
            if kind is Kind.USER:
                return name == subject.user
            return name in (subject.groups if kind is Kind.GROUP else subject.roles)
        case Not(operand):
            return not evaluate(operand, subject)
        case And(operands):
            return all(evaluate(operand, subject) for operand in operands)
        case Or(operands):
            return any(evaluate(operand, subject) for operand in operands)


def names(expression: Expression) -> Iterator[Name]:
    """Yield the names in an expression, from left to right, with repeats."""
    match expression:
        case Name():
            yield expression
        case Not(operand):
            yield from names(operand)
        case And(operands) | Or(operands):
            for operand in operands:
                yield from names(operand)


def format_expression(expression: Expression) -> str:
    """Return the canonical text of an expression: single blanks around ``&`` and ``|``, no needless parentheses.

    ``parse(format_expression(e)) == e`` for every expression.
    """
    match expression:
        case Nobody():
            return ""
        case Public():
            return "p"
        case Name(kind, name):
            return f"{kind}:{name}"
        case Not(operand):
            return "!" + _operand(operand)
        case And(operands):
            return " & ".join(_operand(operand) for operand in operands)
        case Or(operands):
            return " | ".join(_operand(operand) for operand in operands)


def _operand(term: Term) -> str:
    text = format_expression(term)
    return f"({text})" if isinstance(term, And | Or) else text


def every(operands: list[Term]) -> Term:
    """Join ``operands`` by ``&``, flattened: ``(a & b) & c`` is the same expression as ``a & b & c``."""
    flat: list[Term] = []
    for operand in operands:
        flat.extend(operand.operands if isinstance(operand, And) else (operand,))
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def either(operands: list[Term]) -> Term:
    """Join ``operands`` by ``|``, flattened."""
    flat: list[Term] = []
    for operand in operands:
        flat.extend(operand.operands if isinstance(operand, Or) else (operand,))
    return flat[0] if len(flat) == 1 else Or(tuple(flat))


MAX_DEPTH = 100  # nested parentheses and !; more than any person writes, well within Python's stack
_TOKEN = re.compile(r"\s*(?:(?P<symbol>[&|!()])|(?P<word>[^\s&|!()]+))")
_OPERATOR_WORDS = {"and": "&", "or": "|", "not": "!"}
_LONG_PREFIXES = {"user": "u", "group": "g", "role": "r"}
_EXAMPLE = "for example: u:ducks | (g:analysts & !u:temp)"


class _Token(NamedTuple):
    text: str  # "" at the end
    position: int
    is_word: bool


@lru_cache(maxsize=16384)  # every expression of a topology is evaluated for every user
def parse(text: str) -> Expression:
    """Parse an expression.

    Raises:
        ExpressionError: the text is not an expression; the error has the position and the correct form.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(text, MAX_LENGTH, f"longer than {MAX_LENGTH:,} characters", "use groups")
    tokens = _tokens(text)
    if not tokens[0].text:
        return Nobody()
    for token in tokens:
        if token.is_word and token.text == "p":
            if len(tokens) == 2:
                return Public()
            raise ExpressionError(
                text, token.position, "p (everybody) cannot be combined", "write p alone, or leave it out"
            )
    parser = _Parser(text, tokens)
    term = parser.term(0)
    parser.expect_end()
    return term


def _tokens(text: str) -> list[_Token]:
    tokens = [
        _Token(
            match["symbol"] or match["word"], match.end() - len(match["symbol"] or match["word"]), bool(match["word"])
        )
        for match in _TOKEN.finditer(text)
    ]
    return [*tokens, _Token("", len(text), False)]


class _Parser:
    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._at = 0

    def term(self, depth: int) -> Term:
        operands = [self._operand(depth)]
        operator = ""
        while (token := self._next()).text in ("&", "|"):
            if operator and token.text != operator:
                raise self._error(
                    token,
                    "& and | are mixed without parentheses, and neither has precedence",
                    "put one side in parentheses, for example: (u:a & g:b) | u:c",
                )
            operator = token.text
            self._at += 1
            operands.append(self._operand(depth))
        return either(operands) if operator == "|" else every(operands)

    def expect_end(self) -> None:
        token = self._next()
        if token.text == ")":
            raise self._error(token, "this ) has no (", "remove it, or add a ( before")
        if token.text:
            raise self._expected_operator(token)

    def _operand(self, depth: int) -> Term:
        token = self._next()
        if depth > MAX_DEPTH:
            raise self._error(token, f"nested deeper than {MAX_DEPTH}", "use groups")
        self._at += 1
        if token.text == "!":
            return Not(self._operand(depth + 1))
        if token.text == "(":
            inner = self.term(depth + 1)
            closing = self._next()
            if not closing.text:
                raise self._error(token, "this ( is never closed", "add the missing )")
            if closing.text != ")":
                raise self._expected_operator(closing)
            self._at += 1
            return inner
        if token.is_word:
            return self._name(token)
        if token.text in ("&", "|") and self._previous_is(token):
            raise self._error(token, f"doubled {token.text}", f"write a single {token.text}")
        found = repr(token.text) if token.text else "the end"
        raise self._error(token, f"expected a user, group, role, ! or ( but found {found}", _EXAMPLE)

    def _name(self, token: _Token) -> Name:
        prefix, colon, name = token.text.partition(":")
        if not colon:
            if operator := _OPERATOR_WORDS.get(prefix.lower()):
                raise self._error(token, f"{prefix!r} is not an operator", f"write {operator}")
            raise self._error(
                token, f"{prefix!r} has no prefix", f"write u:{prefix} for a user, g: for a group, r: for a role"
            )
        try:
            kind = Kind(prefix)
        except ValueError:
            meant = _LONG_PREFIXES.get(prefix.lower(), prefix.lower())
            hint = (
                f"did you mean {meant}:{name}?"
                if meant in ("u", "g", "r")
                else "valid: u: (user), g: (group), r: (role)"
            )
            raise self._error(token, f"unknown prefix {prefix + ':'!r}", hint) from None
        if not name:
            raise self._error(token, f"a name must follow {prefix}: directly", f"for example {prefix}:ducks")
        for bad, why in ((":", "a name has no colon"), ("*", "a name has no *; write p alone for everybody")):
            if bad in name:
                position = token.position + len(prefix) + 1 + name.index(bad)
                raise ExpressionError(self._text, position, why, _EXAMPLE)
        return Name(kind, name)

    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _previous_is(self, token: _Token) -> bool:
        before = self._tokens[self._at - 2] if self._at >= 2 else None
        return before is not None and before.text == token.text and before.position == token.position - 1

    def _expected_operator(self, token: _Token) -> ExpressionError:
        word = _OPERATOR_WORDS.get(token.text.lower()) if token.is_word else None
        return self._error(token, f"expected & or | before {token.text!r}", f"write {word}" if word else _EXAMPLE)

    def _error(self, token: _Token, problem: str, hint: str) -> ExpressionError:
        return ExpressionError(self._text, token.position, problem, hint)
