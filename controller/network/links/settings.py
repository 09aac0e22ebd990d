"""What a link's death by loss takes, for those who read settings and for those who judge links."""

from __future__ import annotations

from typing import Final

LEAST_SAMPLES: Final = 10
"""So many packets have to be measured on a link within a window for it to die by loss."""
