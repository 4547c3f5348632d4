"""Access expressions: formatting and parsing agree, and so does evaluation with a truth table."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.expression import (
    And,
    Expression,
    ExpressionError,
    Kind,
    Name,
    Nobody,
    Not,
    Or,
    Public,
    Subject,
    evaluate,
    format_expression,
    names,
    parse,
)

NAMES = ("u:ann", "u:bob", "g:staff", "r:audit")
# A tree as plain tuples, written and evaluated here without any code of acl: ("name", n), ("!", t), ("&"|"|", [t, …]).
Tree = tuple[str, Any]
trees: st.SearchStrategy[Tree] = st.recursive(
    st.sampled_from(NAMES).map(lambda name: ("name", name)),
    lambda inner: st.one_of(
        st.tuples(st.just("!"), inner),
        st.tuples(st.sampled_from("&|"), st.lists(inner, min_size=2, max_size=4)),
    ),
    max_leaves=12,
)


def written(tree: Tree, blank: str, *, needless: bool) -> str:
    """The tree as text; with ``needless`` every part stands in parentheses."""
    kind, inside = tree
    if kind == "name":
        return f"({inside})" if needless else str(inside)
    if kind == "!":
        text = written(inside, blank, needless=needless)
        return f"!{blank}{text}" if needless or inside[0] in ("name", "!") else f"!({text})"
    parts = (written(part, blank, needless=needless) for part in inside)
    wrapped = (
        text if needless or part[0] in ("name", "!") else f"({text})" for part, text in zip(inside, parts, strict=True)
    )
    joined = f"{blank}{kind}{blank}".join(wrapped)
    return f"({joined})" if needless else joined


def truth(tree: Tree, true: frozenset[str]) -> bool:
    kind, inside = tree
    if kind == "name":
        return inside in true
    if kind == "!":
        return not truth(inside, true)
    values = [truth(part, true) for part in inside]
    return all(values) if kind == "&" else any(values)


def subject(true: frozenset[str]) -> Subject:
    """A subject for whom exactly these names hold (at most one user)."""
    user = next((name[2:] for name in sorted(true) if name.startswith("u:")), "nobody")
    groups = frozenset(name[2:] for name in true if name.startswith("g:"))
    return Subject(user, groups, frozenset(name[2:] for name in true if name.startswith("r:")))


ASSIGNMENTS = [
    frozenset(chosen)
    for n in range(len(NAMES) + 1)
    for chosen in itertools.combinations(NAMES, n)
    if not {"u:ann", "u:bob"} <= set(chosen)
]


@given(trees, st.sampled_from(["", " ", "\t ", "\n"]), st.booleans())
def test_an_expression_equals_its_truth_table(tree: Tree, blank: str, needless: bool) -> None:
    expression = parse(written(tree, blank, needless=needless))
    for true in ASSIGNMENTS:
        assert evaluate(expression, subject(true)) == truth(tree, true)


name_texts = st.text(
    st.characters(exclude_characters=":&|!()*", exclude_categories=("Z", "C")), min_size=1, max_size=8
).filter(lambda text: not any(c.isspace() for c in text))
leaves = st.builds(Name, st.sampled_from(Kind), name_texts)


def _joined(kind: type[And] | type[Or], parts: list[Any]) -> Any:
    flat = [term for part in parts for term in (part.operands if isinstance(part, kind) else (part,))]
    return kind(tuple(flat))


terms = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: _joined(And, parts)),
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: _joined(Or, parts)),
    ),
    max_leaves=15,
)
expressions: st.SearchStrategy[Expression] = st.one_of(st.just(Nobody()), st.just(Public()), terms)


@given(expressions)
def test_a_formatted_expression_is_parsed_back(expression: Expression) -> None:
    text = format_expression(expression)
    assert parse(text) == expression
    assert format_expression(parse(text)) == text


@given(trees)
def test_needless_parentheses_and_blanks_vanish(tree: Tree) -> None:
    plain, dressed = written(tree, " ", needless=False), written(tree, "  ", needless=True)
    assert format_expression(parse(dressed)) == format_expression(parse(plain))


@given(st.text(st.sampled_from("ugrp:&|!() ab*") | st.characters(), max_size=40))
def test_any_text_is_an_expression_or_a_located_error(text: str) -> None:
    try:
        expression = parse(text)
    except ExpressionError as error:
        assert 0 <= error.position <= len(text)
        assert error.problem
        assert error.hint
    else:
        assert parse(format_expression(expression)) == expression


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_expression_matches_nobody(text: str) -> None:
    assert parse(text) == Nobody()
    assert not evaluate(parse(text), Subject("ann", frozenset({"staff"}), frozenset({"audit"})))


def test_p_matches_everybody() -> None:
    assert evaluate(parse(" p "), Subject("anyone"))


def test_the_example_of_the_documentation() -> None:
    text = "u:cfkane | (g:admin & !g:cl3) | (g:qa & (g:app2 | g:app3)) | (g:ba & g:dept_7a) | g:ds"
    expression = parse(text)
    assert format_expression(expression) == text
    assert evaluate(expression, Subject("x", frozenset({"qa", "app3"})))
    assert not evaluate(expression, Subject("x", frozenset({"admin", "cl3"})))
    assert [name.name for name in names(expression)][:3] == ["cfkane", "admin", "cl3"]


@pytest.mark.parametrize(
    ("text", "position", "problem", "hint"),
    [
        ("u:a & u:b | u:c", 10, "mixed without parentheses", "(u:a & g:b) | u:c"),
        ("u:a | (u:b | u:c & u:d)", 17, "mixed without parentheses", "parentheses"),
        ("p | u:a", 0, "cannot be combined", "write p alone"),
        ("!p", 1, "cannot be combined", "write p alone"),
        ("(p)", 1, "cannot be combined", "write p alone"),
        ("(u:a | g:b", 0, "never closed", "add the missing )"),
        ("u:a)", 3, "has no (", "remove it"),
        ("u:a |", 5, "found the end", "u:ducks"),
        ("| u:a", 0, "found '|'", "u:ducks"),
        ("u:a && u:b", 5, "doubled &", "a single &"),
        ("u:a and u:b", 4, "expected & or | before 'and'", "write &"),
        ("not u:a", 0, "not an operator", "write !"),
        ("u:a u:b", 4, "expected & or |", "u:ducks"),
        ("ducks", 0, "'ducks' has no prefix", "u:ducks for a user"),
        ("user:ducks", 0, "unknown prefix 'user:'", "did you mean u:ducks"),
        ("U:ducks", 0, "unknown prefix 'U:'", "did you mean u:ducks"),
        ("x:ducks", 0, "unknown prefix 'x:'", "valid: u: (user)"),
        ("u: ducks", 0, "directly", "u:ducks"),
        ("u:*", 2, "no *", "u:ducks"),
        ("u:a:b", 3, "no colon", "u:ducks"),
        ("()", 1, "found ')'", "u:ducks"),
        ("!", 1, "found the end", "u:ducks"),
        ("(" * 200 + "u:a" + ")" * 200, 101, "nested deeper", "groups"),
        ("u:a | " * 20_000 + "u:a", 65536, "longer than", "groups"),
    ],
)
def test_mistakes_are_located_and_explained(text: str, position: int, problem: str, hint: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.position == position
    assert problem in caught.value.what
    assert hint in caught.value.hint
    assert f"character {position + 1}" in str(caught.value)
