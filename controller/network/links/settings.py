"""Conditions for a link's death by loss, shared by readers of settings and judges of links."""

from __future__ import annotations

from typing import Final

LEAST_SAMPLES: Final = 10
"""Packets that must be measured on a link within a window before it can die by loss."""
