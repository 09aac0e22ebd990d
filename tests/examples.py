"""Number of examples that tests draw: few in CI, MILLRACE_EXAMPLES in `make deep`."""

from __future__ import annotations

import os
from typing import Final

IS_DEEP: Final = "MILLRACE_EXAMPLES" in os.environ
"""True if tests try more than in CI."""


def examples(count: int) -> int:
    """Return the default number of examples to draw."""
    return int(os.environ.get("MILLRACE_EXAMPLES", count))
