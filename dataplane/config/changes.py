"""Difference between two settings, to report after a reload which changes are not in effect."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec


def changed_keys(before: msgspec.Struct, after: msgspec.Struct) -> tuple[str, ...]:
    """Return the keys whose values differ, descending into sections that both sides have (`feed.address`)."""
    return tuple(_changed(before, after, ""))


def not_in_force(before: msgspec.Struct, after: msgspec.Struct, *, reloaded: Collection[str]) -> str:
    """Return a line naming the changed keys that require a restart, '' if there are none.

    `reloaded` are the keys that take effect at once, each with everything below it.
    """
    waiting = [
        key
        for key in changed_keys(before, after)
        if not any(key == parent or key.startswith(f"{parent}.") for parent in reloaded)
    ]
    return f"restart required for: {', '.join(waiting)}" if waiting else ""


def _changed(before: msgspec.Struct, after: msgspec.Struct, prefix: str) -> Iterator[str]:
    for field in msgspec.structs.fields(before):
        old, new = getattr(before, field.name), getattr(after, field.name)
        key = f"{prefix}{field.encode_name}"
        if isinstance(old, msgspec.Struct) and type(old) is type(new):
            yield from _changed(old, new, f"{key}.")
        elif old != new:
            yield key
