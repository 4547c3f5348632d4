"""docs/shore-alerts.md: the example of a rule works, and the table has the kinds of all rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from shore.alerts.machine import SILENCE, advance
from shore.alerts.rules import RULES
from tests.support.shore.logs import BOX, LOG, every

PAGE: Final = (Path(__file__).parents[4] / "docs" / "shore-alerts.md").read_text(encoding="utf-8")


def test_the_rule_of_the_page_is_short_and_works() -> None:
    found = re.search(r"^```python rule\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    names: dict[str, Any] = {"__name__": "heat"}
    exec(compile(found[1], "docs/shore-alerts.md", "exec"), names)  # noqa: S102 - the page's own example
    warm = every(10, 200, return_temperature=12.0)
    _, states = advance(LOG, None, [*warm, *every(10, 400, since=200)], rules=(*RULES, names["CargoHeats"]()))
    assert [(s.alert_id, s.state, s.detail) for s in states] == [
        (f"CARGO_HEATS.{BOX}@1", "OPENED", "return air 12.0 C, supply air 4.0 C, for 120 min"),
        (f"CARGO_HEATS.{BOX}@1", "CLEARED", "in order again; it lasted 200 min"),
    ]


def test_the_table_has_every_kind() -> None:
    assert re.findall(r"^\| `([A-Z0-9_]+)` \|", PAGE, re.MULTILINE) == [*(rule.kind for rule in RULES), SILENCE]
