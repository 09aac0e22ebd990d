"""A unit that stops reporting: its levers are held in place, and released after a while; pure."""

from __future__ import annotations

from enum import StrEnum

from dataplane.config import Settings


class Watch(StrEnum):
    """Permitted actions after a unit's last report."""

    FRESH = "fresh"
    HELD = "held"
    """Nothing is moved: its needs are unknown, and its units may be in use."""
    RELEASED = "released"
    """Its levers return to their original positions; a pool's units are given back except for its minimum share."""


class SilenceSettings(Settings, frozen=True):
    """Limits of a unit's silence."""

    stale_s: float = 5.0
    """Age from which a sample is ignored: levers are held."""
    release_s: float = 60.0
    """Silence after which a unit is released."""

    def __post_init__(self) -> None:
        if not 0 < self.stale_s <= self.release_s:
            raise ValueError(f"0 < stale <= release required, got {self.stale_s:g} s and {self.release_s:g} s")


def watch(settings: SilenceSettings, last_s: float, now_s: float) -> Watch:
    """Return what may be done at `now_s` about a unit whose last good sample is from `last_s` (at first: its start).

    A sample from the future, as after a misread clock, counts as none: the unit is held until that time has passed.
    """
    silent_s = now_s - last_s
    if silent_s >= settings.release_s:
        return Watch.RELEASED
    return Watch.FRESH if 0 <= silent_s < settings.stale_s else Watch.HELD
