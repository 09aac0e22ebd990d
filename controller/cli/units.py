"""Figures as cells of a table show them."""

from __future__ import annotations


def milliseconds(time_ns: int | None) -> str | None:
    """Return nanoseconds as milliseconds, None as it is."""
    return None if time_ns is None else f"{time_ns / 1e6:.3f}"


def seconds(time_ns: int | None) -> str | None:
    """Return nanoseconds as seconds, None as it is."""
    return None if time_ns is None else f"{time_ns / 1e9:.1f}"


def percent(share: float | None) -> str | None:
    """Return a share as per cent, None as it is."""
    return None if share is None else f"{100 * share:.3f}"
