"""Settings for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no failure: what is slow shows in --durations, not in a deadline.
settings.register_profile("millrace", deadline=None, max_examples=50)
settings.load_profile("millrace")


@pytest.fixture(autouse=True, scope="session")
def cache_dir(pytestconfig: pytest.Config) -> Iterator[Path]:
    """Compiled code goes to a cache of the tests' own, also that of the processes that they start; it outlives a run.

    What determines the code is in its key, so that a run finds what an earlier one compiled, but never something else.
    """
    path = pytestconfig.rootpath / ".pytest_cache" / "compiled"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLRACE_CACHE_DIR", str(path))
        yield path
