"""Usage of what quotas limit, by account: each project, and each owner without one; pure."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from controller.apiserver.resources import Kind
from controller.apiserver.resources.base import R
from controller.apiserver.resources.kind import Usage
from controller.apiserver.resources.project import Quota

NOTHING: Final = Usage()
_PARTS: Final = Usage.__struct_fields__


class UsageBook:
    """Usage of each account, tracked per resource."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[str, Usage]] = {}
        self._totals: dict[str, Usage] = {}

    def put(self, key: str, kind: Kind[R], resource: R | None, nbytes: int) -> None:
        """Record what is stored under a key, and its size; None: deleted."""
        before = self._entries.pop(key, None)
        if before is not None:
            self._add(before[0], minus(NOTHING, before[1]))
        usage = NOTHING if resource is None else usage_of(kind, resource, nbytes)
        if resource is not None and usage is not NOTHING:
            entry = resource.metadata.account, usage
            self._entries[key] = entry
            self._add(*entry)

    def of(self, account: str) -> Usage:
        """Return an account's usage."""
        return self._totals.get(account, NOTHING)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._totals.clear()

    def _add(self, account: str, usage: Usage) -> None:
        total = plus(self.of(account), usage)
        if total == NOTHING:
            self._totals.pop(account, None)
        else:
            self._totals[account] = total


def usage_of(kind: Kind[R], resource: R, nbytes: int) -> Usage:
    """Return a resource's usage: nothing if quotas ignore its kind."""
    usage = kind.strategy.usage(resource)
    return NOTHING if usage is None else replace(usage, objects=1, bytes=nbytes)


def plus(usage: Usage, other: Usage) -> Usage:
    """Return the sum of two usages."""
    return Usage(**{part: getattr(usage, part) + getattr(other, part) for part in _PARTS})


def minus(usage: Usage, other: Usage) -> Usage:
    """Return the difference of two usages; parts of it may be negative."""
    return Usage(**{part: getattr(usage, part) - getattr(other, part) for part in _PARTS})


def excess(quota: Quota, had: Usage, added: Usage) -> str | None:
    """Return which part of a quota an addition would exceed, None if it fits.

    Parts that do not grow are ignored: usage above a lowered quota may shrink.
    """
    for part in _PARTS:
        most, more = getattr(quota, part), getattr(added, part)
        total = getattr(had, part) + more
        if most is not None and more > 0 and total > most:
            return f"{part}: {total}, at most {most}"
    return None
