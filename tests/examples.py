"""Number of examples that tests draw: few in CI, as many as MILLRACE_EXAMPLES says in `make deep`."""

from __future__ import annotations

import os
from typing import Final

IS_DEEP: Final = "MILLRACE_EXAMPLES" in os.environ
"""True if tests try more than in CI."""


def examples(count: int) -> int:
    """Return how many examples to draw where nothing else is asked for."""
    return int(os.environ.get("MILLRACE_EXAMPLES", count))
