"""A topology whose sites are all elsewhere: the command line beside it starts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.errors import UnavailableError
from fairlead.local import sites


def test_no_sites_ask_neither_for_java_nor_for_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_here() -> Path:
        raise UnavailableError("no Java")

    monkeypatch.setattr(sites, "find_java", none_here)
    folder = tmp_path / "state"
    sites.LocalSites(folder).up([])
    assert not folder.exists()
    with pytest.raises(UnavailableError, match="no Java"):
        sites.LocalSites(folder).up([sites.SiteSpec("tokyo")])
