"""Units and bounds of flows in the simulation."""

from __future__ import annotations

from typing import Final

ONE_BITS: Final = 20
ONE: Final = 1 << ONE_BITS
"""A whole flow: what part of it crosses a link is counted in these."""
ROW_BITS: Final = 20
MOST_LINKS: Final = 1 << ROW_BITS
MOST_BPS: Final = 1 << 42
"""The fastest link and the fastest flow, 4.4 Tbit/s: rate and link fit into 62 bits."""
NEVER: Final = (1 << 63) - 1
"""The time at which a flow finishes that nothing is left for."""
MOST_SECONDS: Final = 1 << 32
"""A transfer that would take longer, 136 years, never ends."""
MOST_BITS: Final = 1 << 52
"""The largest transfer, 562 TB."""
