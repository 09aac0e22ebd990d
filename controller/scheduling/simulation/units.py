"""Units of measurement and limits of flows in the simulation."""

from __future__ import annotations

from typing import Final

ONE_BITS: Final = 20
ONE: Final = 1 << ONE_BITS
"""A whole flow: the unit for the part of a flow that crosses a link."""
ROW_BITS: Final = 20
MOST_LINKS: Final = 1 << ROW_BITS
MOST_BPS: Final = 1 << 42
"""The fastest link and the fastest flow, 4.4 Tbit/s: a rate and a link number fit into 62 bits together."""
NEVER: Final = (1 << 63) - 1
"""The finishing time of a flow that gets no rate."""
MOST_SECONDS: Final = 1 << 32
"""A transfer that would take longer, 136 years, never ends."""
MOST_BITS: Final = 1 << 52
"""The largest transfer, 562 TB."""
