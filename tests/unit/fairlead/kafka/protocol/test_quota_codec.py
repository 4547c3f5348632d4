"""The requests about client quotas, byte for byte against kafka-python's."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

from fairlead.kafka.protocol.admin_codec import alter_quotas_request, describe_quotas_request
from tests.support.kafka.oracle import I16, I32, NAMES, TEXT, read, same

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
USERS = st.dictionaries(NAMES, st.dictionaries(NAMES, NUMBERS, max_size=3), max_size=3)


def made(kind: Any, version: int, **fields: Any) -> Any:
    return kind(version=version, **fields)


def test_users_are_asked_for() -> None:
    kind = DescribeClientQuotasRequest
    component = kind.ComponentData(version=1, entity_type="user", match_type=2, match=None)
    same(describe_quotas_request(), made(kind, 1, components=[component], strict=True))


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, st.one_of(st.none(), NUMBERS), max_size=3), max_size=3))
def test_quotas_are_set_and_taken_away(changes: dict[str, dict[str, float | None]]) -> None:
    kind = AlterClientQuotasRequest
    data = kind.EntryData
    entries = [
        data(
            version=1,
            entity=[data.EntityData(version=1, entity_type="user", entity_name=user)],
            ops=[
                data.OpData(version=1, key=key, value=value or 0.0, remove=value is None)
                for key, value in values.items()
            ],
        )
        for user, values in changes.items()
    ]
    same(alter_quotas_request(changes), made(kind, 1, entries=entries, validate_only=False))


@given(USERS, I16, TEXT, I32)
def test_what_is_described(users: dict[str, dict[str, float]], code: int, message: str | None, throttle: int) -> None:
    """The default of all users, and quotas of a user's client ids, are none of one user."""
    kind = DescribeClientQuotasResponse
    data = kind.EntryData

    def entry(values: dict[str, float], **entity: str | None) -> Any:
        parts = [data.EntityData(version=1, entity_type=k.replace("_", "-"), entity_name=v) for k, v in entity.items()]
        return data(
            version=1, entity=parts, values=[data.ValueData(version=1, key=k, value=v) for k, v in values.items()]
        )

    entries = [entry(values, user=user) for user, values in users.items()]
    strangers = [entry({"x": 1.0}, user=None), entry({"x": 1.0}, user="u", client_id="c")]
    answer = made(
        kind, 1, throttle_time_ms=throttle, error_code=code, error_message=message, entries=[*strangers, *entries]
    )
    assert read(describe_quotas_request(), answer) == (code, users)


@given(st.dictionaries(NAMES, I16, max_size=3), TEXT)
def test_what_became_of_changes(codes: dict[str, int], message: str | None) -> None:
    kind = AlterClientQuotasResponse
    data = kind.EntryData
    entries = [
        data(
            version=1,
            error_code=code,
            error_message=message,
            entity=[data.EntityData(version=1, entity_type="user", entity_name=user)],
        )
        for user, code in codes.items()
    ]
    assert read(alter_quotas_request({}), made(kind, 1, throttle_time_ms=0, entries=entries)) == codes
