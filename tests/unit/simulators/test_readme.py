"""README.md's section "By hand" is about what make demo leaves: its container is in that voyage."""

from __future__ import annotations

import re
from pathlib import Path

from fairlead.cli.commands.voyage.app import planned
from tests.support.operators_day import by_hand

ROOT = Path(__file__).parents[3]
VOYAGE = re.compile(r"fairlead voyage run (?P<topology>\S+) --containers (?P<containers>\d+) --seed (?P<seed>\d+) ")
COMMANDS = [line for line in by_hand() if line.startswith("fairlead ")]


def test_its_container_goes_overboard_in_the_voyage_of_the_demo() -> None:
    sails = VOYAGE.search((ROOT / "tools" / "demo.sh").read_text(encoding="utf-8"))
    assert sails is not None
    _, voyage = planned(
        sails["topology"], None, calm=False, scale=None, interval=None, seed=int(sails["seed"]),
        containers=int(sails["containers"]), start=None, with_bad=False,
    )  # fmt: skip
    lost = {box.number for box in voyage.plan.boxes if box.falls is not None}
    numbers = {number for line in COMMANDS for number in re.findall(r"[A-Z]{4}\d{7}", line)}
    assert len(numbers) == 1 and numbers <= lost
    assert {line.split()[1] for line in COMMANDS if numbers & set(re.findall(r"[A-Z]{4}\d{7}", line))} == {
        *("report", "custody", "acl"),
    }
