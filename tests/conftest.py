"""Settings for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no failure: what is slow shows in --durations, not in a deadline.
settings.register_profile("millrace", deadline=None, max_examples=50)
settings.load_profile("millrace")


@pytest.fixture(autouse=True, scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Compiled code goes to a cache of the test run's own, also that of the processes that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        base = tmp_path_factory.getbasetemp()
        path = base.parent / "cache" if "PYTEST_XDIST_WORKER" in os.environ else base / "cache"  # one for all workers
        patch.setenv("MILLRACE_CACHE_DIR", str(path))
        yield path
