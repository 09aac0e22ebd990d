"""What differs between two settings of a kind: whoever reads them again says what is not in force."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec


def changed_keys(before: msgspec.Struct, after: msgspec.Struct) -> tuple[str, ...]:
    """Return the keys whose values differ, as deep as both sides have the same sections (`feed.address`)."""
    return tuple(_changed(before, after, ""))


def not_in_force(before: msgspec.Struct, after: msgspec.Struct, *, reloaded: Collection[str]) -> str:
    """Return a line that names the changed keys that wait for a new start, '' if there are none.

    `reloaded` are the keys that are in force at once, each with all below it.
    """
    waiting = [
        key
        for key in changed_keys(before, after)
        if not any(key == one or key.startswith(f"{one}.") for one in reloaded)
    ]
    return f"not in force before the next start: {', '.join(waiting)}" if waiting else ""


def _changed(before: msgspec.Struct, after: msgspec.Struct, prefix: str) -> Iterator[str]:
    for field in msgspec.structs.fields(before):
        old, new = getattr(before, field.name), getattr(after, field.name)
        key = f"{prefix}{field.encode_name}"
        if isinstance(old, msgspec.Struct) and type(old) is type(new):
            yield from _changed(old, new, f"{key}.")
        elif old != new:
            yield key
