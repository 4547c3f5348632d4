"""What is known about the versions of requests, against kafka-python's schemas."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Final

import kafka.protocol
import pytest
from kafka.protocol.api_message import ApiMessage

from fairlead.kafka.protocol import fetch_codec, produce_codec, versions

SENT: Final = {
    (produce_codec.API_KEY, produce_codec.VERSION),
    (produce_codec.API_KEY, produce_codec.BY_ID),
    (fetch_codec.API_KEY, fetch_codec.VERSION),
    *(value for value in vars(versions).values() if isinstance(value, tuple) and len(value) == 2),
}


def answers(kind: type[Any]) -> dict[int, Any]:
    """Return the schemas of answers by API key."""
    found = {each.API_KEY: each for each in kind.__subclasses__() if each.__name__.endswith("Response")}
    for each in kind.__subclasses__():
        found |= answers(each)
    return found


@pytest.fixture(scope="module")
def schemas() -> dict[int, Any]:
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        importlib.import_module(module.name)
    return answers(ApiMessage)


@pytest.mark.parametrize(("key", "version"), sorted(SENT))
def test_answers_begin_with_throttle_time_ms_or_are_listed(key: int, version: int, schemas: dict[int, Any]) -> None:
    answer = schemas[key]
    first = next(field.name for field in answer.fields.values() if field.for_version_q(version))
    if key in versions.WITHOUT_THROTTLE_TIME:
        assert first != "throttle_time_ms"
    else:
        assert first == "throttle_time_ms" and answer.flexible_version_q(version)


@pytest.mark.parametrize(("offered", "sent"), [((0, 11), 9), ((0, 12), 9), ((3, 13), 13), ((3, 14), 13), ((14, 15), 9)])
def test_produce_names_topics_by_id_where_the_broker_offers_it(offered: tuple[int, int], sent: int) -> None:
    assert versions.produce_version({produce_codec.API_KEY: offered}) == sent
