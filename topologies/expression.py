"""Access expressions in MapR's grammar: what they are, what they mean, how they are written. Pure.

An expression says which users a permission is for: ``u:`` a user, ``g:`` a group, ``r:`` a role, ``p`` everybody,
``!`` not, ``&`` and, ``|`` or, parentheses. The empty text is nobody. As with MapR, ``p`` stands alone. MapR does not
document whether ``&`` binds stronger than ``|``; so mixing them needs parentheses here, see
``topologies.expression_parser``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from fairlead.errors import ConfigurationError

MAX_LENGTH = 65536  # MapR's own limit, in characters here


class Kind(StrEnum):
    """What a name in an expression stands for."""

    USER = "u"
    GROUP = "g"
    ROLE = "r"


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom an expression is asked about: a user with its groups and roles."""

    user: str
    groups: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Nobody:
    """The empty expression."""


@dataclass(frozen=True, slots=True)
class Public:
    """``p``: everybody who can log in."""


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
    """All of two or more operands, none of them an ``And`` itself."""

    operands: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of two or more operands, none of them an ``Or`` itself."""

    operands: tuple[Term, ...]


Term = Name | Not | And | Or
Expression = Nobody | Public | Term


class ExpressionError(ConfigurationError):
    """An expression that cannot be understood. ``position`` counts characters from 0."""

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
    """Whether the expression includes the subject."""
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
    """The names in an expression, from left to right, repeats included."""
    match expression:
        case Name():
            yield expression
        case Not(operand):
            yield from names(operand)
        case And(operands) | Or(operands):
            for operand in operands:
                yield from names(operand)


def format_expression(expression: Expression) -> str:
    """The one canonical way to write an expression: single blanks around ``&`` and ``|``, no needless parentheses.

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
    """``operands`` joined by ``&``, flattened: ``(a & b) & c`` is the same expression as ``a & b & c``."""
    flat: list[Term] = []
    for operand in operands:
        flat.extend(operand.operands if isinstance(operand, And) else (operand,))
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def either(operands: list[Term]) -> Term:
    """``operands`` joined by ``|``, flattened."""
    flat: list[Term] = []
    for operand in operands:
        flat.extend(operand.operands if isinstance(operand, Or) else (operand,))
    return flat[0] if len(flat) == 1 else Or(tuple(flat))
