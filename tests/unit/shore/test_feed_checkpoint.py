"""Job ``feeds`` after an update: a checkpoint of fewer inputs is put aside, since Spark would refuse it for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from shore.jobs.feeds import INPUTS, renew_checkpoint
from tests.unit.shore.test_checkpoint import checkpoint


@pytest.mark.parametrize("inputs", [3, len(INPUTS)])
def test_a_checkpoint_of_other_inputs_is_put_aside(tmp_path: Path, inputs: int) -> None:
    table = '{"sourceVersion":1,"reservoirId":"t-1","reservoirVersion":5,"index":-1,"isStartingVersion":false}'
    places = checkpoint(tmp_path, {0: "\n".join([table] * inputs)}, [0], job="feeds")
    renew_checkpoint(places)
    assert places.has_checkpoint("feeds") == (inputs == len(INPUTS))
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1  # aside, or where it was
    renew_checkpoint(places)
