"""Files of figures: resolution, and less of it where a picture would be too large to draw."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from controller.common.errors import ControllerError
from controller.common.figures import save


@pytest.mark.parametrize(("size_in", "pixels"), [((5, 4), (550, 440)), ((1, 650), (100, 65_000))])
def test_png_has_no_more_pixels_than_can_be_drawn(
    size_in: tuple[float, float], pixels: tuple[int, int], tmp_path: Path
) -> None:
    save(Figure(figsize=size_in), tmp_path / "picture.png", ControllerError)
    header = (tmp_path / "picture.png").read_bytes()[:24]
    assert header[1:4] == b"PNG"
    assert (int.from_bytes(header[16:20]), int.from_bytes(header[20:24])) == pixels
