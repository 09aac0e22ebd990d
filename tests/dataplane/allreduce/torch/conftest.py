"""Nothing here needs root: a run of tests that do would load PyTorch in each of its processes only to leave all out."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the folder out where only tests with root are asked for."""
    return True if config.getoption("markexpr").startswith("root") else None
