"""Size of a training worker's installation: the wheel without extras, in an empty environment, locked versions."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.soak.environments import build_wheel, install, site_megabytes


def measure(*, quick: bool) -> dict[str, float | None]:
    """Return `worker_install_mb`: the files of site-packages, PyTorch apart; None where wheels cannot be had."""
    del quick  # there is nothing shorter
    with tempfile.TemporaryDirectory(prefix="worker") as folder:
        environment = Path(folder) / "environment"
        install(environment, str(build_wheel(Path(folder))))
        megabytes = site_megabytes(environment)
    print(f"a worker's site-packages: {megabytes:.0f} MB")
    return {"worker_install_mb": round(megabytes)}
