"""Leases of nodes and centres, by a clock that nobody sets: a wall clock that is stepped forward ends none of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from controller.apiserver.resources import Node
from controller.apiserver.resources.base import Resource
from controller.apiserver.resources.centre import Centre

_NS_PER_S = 1_000_000_000


def _boot_time_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Leases:
    """When this server has seen each last report come, by `now_ns`, which only goes on.

    A report that it has not seen come, of another server or of before its start, counts from when it first sees it: a
    lease may seem longer then, and never shorter.
    """

    def __init__(self, now_ns: Callable[[], int] = _boot_time_ns) -> None:
        self._now_ns = now_ns
        self._seen: dict[tuple[str, str], tuple[int | None, int]] = {}

    def note(self, resource: Resource) -> None:
        """Take note of a report that has come now."""
        if isinstance(resource, Node | Centre):
            self._seen[self._key(resource)] = (resource.status.heartbeat_ns, self._now_ns())

    def is_over(self, resource: Resource) -> bool:
        """Return whether the lease is over that a node's or centre's last report has given it."""
        if not isinstance(resource, Node | Centre) or resource.status.heartbeat_ns is None:
            return True
        heartbeat_ns, seen_ns = self._seen.get(self._key(resource), (None, 0))
        if heartbeat_ns != resource.status.heartbeat_ns:
            self.note(resource)
            return False
        return self._now_ns() >= seen_ns + round(resource.spec.lease_s * _NS_PER_S)

    @staticmethod
    def _key(resource: Resource) -> tuple[str, str]:
        return type(resource).__name__, resource.metadata.name
