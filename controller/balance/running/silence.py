"""A unit that stops reporting: its levers are held where they are, and after a while released; pure."""

from __future__ import annotations

from enum import StrEnum

from dataplane.config import Strict


class Watch(StrEnum):
    """Whether somebody may go by what a unit reported last."""

    FRESH = "fresh"
    HELD = "held"
    """Nothing is moved: what it needs is not known, and what it has may be in use."""
    RELEASED = "released"
    """Its levers are put back to where they were found; what it has of a pool is given back but for its least share."""


class SilenceSettings(Strict, frozen=True):
    """For how long a unit may be silent."""

    stale_s: float = 5.0
    """A sample that is older is not gone by: levers are held."""
    release_s: float = 60.0
    """A unit that was silent for so long is let go."""

    def __post_init__(self) -> None:
        if not 0 < self.stale_s <= self.release_s:
            raise ValueError(f"0 < stale_s <= release_s is wanted: they are {self.stale_s:g} and {self.release_s:g}")


def watch(settings: SilenceSettings, last_s: float, now_s: float) -> Watch:
    """Return what may be done at `now_s` about a unit whose last good sample is of `last_s` (at first: its start).

    A sample of the future, as when a machine's clock was read wrongly, is as good as none: it is held until it is past.
    """
    silent_s = now_s - last_s
    if silent_s >= settings.release_s:
        return Watch.RELEASED
    return Watch.FRESH if 0 <= silent_s < settings.stale_s else Watch.HELD
