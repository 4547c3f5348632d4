from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.errors import ConfigurationError
from fairlead.kafka.endpoint import KafkaEndpoint
from topologies.endpoints import read_address_overrides, write_address_overrides


def test_written_address_overrides_are_read_back(tmp_path: Path) -> None:
    address_overrides = {"tokyo": {"sydney": ((("10.0.0.7", 9092), ("127.0.0.1", 40001)), (("::1", 9093), ("::1", 2)))}}
    write_address_overrides(tmp_path / "run" / "address-overrides.json", address_overrides)
    assert read_address_overrides(tmp_path / "run" / "address-overrides.json") == address_overrides


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        ("[]", "should be an object"),
        ('{"tokyo": {"sydney": {"10.0.0.7": "127.0.0.1:1"}}}', "host:port"),
        ('{"tokyo": {"sydney": {"a:1,b:2": "127.0.0.1:1"}}}', "expected one address"),
    ],
)
def test_an_invalid_file_of_address_overrides_is_refused(tmp_path: Path, content: str | None, why: str) -> None:
    file = tmp_path / "address-overrides.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=why) as error:
        read_address_overrides(file)
    assert str(file) in str(error.value)


def test_without_an_override_an_endpoint_is_unchanged() -> None:
    endpoint = KafkaEndpoint("tokyo", (("a", 1), ("b", 2)), address_overrides=((("a", 1), ("c", 3)),))
    assert [endpoint.reached_at(*each) for each in endpoint.bootstrap] == [("c", 3), ("b", 2)]
