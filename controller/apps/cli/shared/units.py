"""Figures formatted for table cells."""

from __future__ import annotations

from dataplane.clock import NS_PER_S


def milliseconds(time_ns: int | None) -> str | None:
    """Return nanoseconds as milliseconds, None as it is."""
    return None if time_ns is None else f"{time_ns / 1e6:.3f}"


def seconds(time_ns: int | None) -> str | None:
    """Return nanoseconds as seconds, None as it is."""
    return None if time_ns is None else f"{time_ns / NS_PER_S:.1f}"


def percent(share: float | None) -> str | None:
    """Return a share as a percentage, None as it is."""
    return None if share is None else f"{100 * share:.3f}"


def percent_of(share: float | None) -> float | None:
    """Return a share as a percentage to a tenth, None as it is."""
    return None if share is None else round(100 * share, 1)


def gibibytes(nbytes: int | None) -> float | None:
    """Return bytes as GiB to a thousandth, None as it is."""
    return None if nbytes is None else round(nbytes / (1 << 30), 3)
