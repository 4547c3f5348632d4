"""Parts of the sea chart."""

from __future__ import annotations

import subprocess
import sys

import pytest

from topologies.drawing.seachart import frame


@pytest.mark.parametrize(
    ("places", "longitude", "latitude"),
    [
        ([(100.0, 0.0), (140.0, 0.0)], 120.0, 0.0),
        ([(170.0, 10.0), (-170.0, 10.0)], -180.0, 10.0),  # across the date line, not around the world
        ([(-10.0, -5.0), (10.0, 5.0)], 0.0, 0.0),
        ([(5.0, 50.0)], 5.0, 50.0),
    ],
)
def test_the_middle_of_some_places(places: list[tuple[float, float]], longitude: float, latitude: float) -> None:
    found = frame(places, 900, 420)
    assert (found.longitude - longitude) % 360 == pytest.approx(0, abs=1e-9)
    assert found.latitude == pytest.approx(latitude)


@pytest.mark.parametrize("places", [[(103.8, 1.3), (139.8, 35.6)], [(179.0, -20.0), (-150.0, 30.0)], [(0.0, 0.0)]])
def test_all_places_are_in_the_frame_with_a_margin(places: list[tuple[float, float]]) -> None:
    found = frame(places, 900, 420)
    assert all(found.has(*place) for place in places)
    assert not found.has(found.longitude + 1.3 * found.half_width, found.latitude)
    assert found.half_width >= 2.0
    assert found.half_width / found.half_height == pytest.approx(900 / 420)


def test_ports_are_read_without_importing_searoute() -> None:
    """The replicator looks up ports; searoute's graphs would cost each replicator a second and its memory."""
    code = "import sys; from topologies.drawing.seachart import ports; print(len(ports()), 'searoute' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    count, imported = done.stdout.split()
    assert int(count) > 3900 and imported == "False"
